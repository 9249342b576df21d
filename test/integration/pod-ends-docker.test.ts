/** Probes, hooks, restarts and ends of pods, on Docker. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutDocker } from './running-cluster.ts';

podEnds('docker', skipWithoutDocker);
