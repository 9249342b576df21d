/** Streams and logs of pods, on Docker. */
import { podStreams } from './pod-streams.ts';
import { skipWithoutDocker } from './running-cluster.ts';

podStreams('docker', skipWithoutDocker);
