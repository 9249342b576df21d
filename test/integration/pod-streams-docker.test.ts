/** Tests streams and logs of pods, on Docker. */
import { podStreams } from './pod-streams.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podStreams('docker', skipWithoutDocker);
