/** Probes, hooks, restarts and ends of pods, on Docker. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podEnds('docker', skipWithoutDocker);
