/** Tests probes, hooks, restarts and the termination of pods on containerd. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podEnds('containerd', skipWithoutContainerd);
