/** Probes, hooks, restarts and ends of pods, on containerd. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutContainerd } from './running-cluster.ts';

podEnds('containerd', skipWithoutContainerd);
