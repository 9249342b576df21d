/** Tests the lifecycle of pods on Docker. */
import { podLife } from './pod-life.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podLife('docker', skipWithoutDocker);
