/** Streams and logs of pods, on containerd. */
import { podStreams } from './pod-streams.ts';
import { skipWithoutContainerd } from './running-cluster.ts';

podStreams('containerd', skipWithoutContainerd);
