/** The life of pods, on containerd. */
import { podLife } from './pod-life.ts';
import { skipWithoutContainerd } from './running-cluster.ts';

podLife('containerd', skipWithoutContainerd);
