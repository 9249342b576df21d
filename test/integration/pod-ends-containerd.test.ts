/** Probes, hooks, restarts and ends of pods, on containerd. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podEnds('containerd', skipWithoutContainerd);
