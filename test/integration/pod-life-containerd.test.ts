/** Tests the lifecycle of pods on containerd. */
import { podLife } from './pod-life.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podLife('containerd', skipWithoutContainerd);
