/** The recorded pods of the kubelet, on containerd. */
import { podParity } from './pod-parity.ts';
import { skipWithoutContainerd } from './running-cluster.ts';

podParity('containerd', skipWithoutContainerd);
