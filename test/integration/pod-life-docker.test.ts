/** The life of pods, on Docker. */
import { podLife } from './pod-life.ts';
import { skipWithoutDocker } from './running-cluster.ts';

podLife('docker', skipWithoutDocker);
