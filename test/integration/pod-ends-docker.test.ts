/** Tests probes, hooks, restarts and the termination of pods on Docker. */
import { podEnds } from './pod-ends.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podEnds('docker', skipWithoutDocker);
