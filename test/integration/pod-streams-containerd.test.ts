/** Tests streams and logs of pods, on containerd. */
import { podStreams } from './pod-streams.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podStreams('containerd', skipWithoutContainerd);
