/** The recorded pods of the kubelet, on containerd. */
import { podParity } from './pod-parity.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podParity('containerd', skipWithoutContainerd);
