/** Compares pods on containerd with those that were recorded from the kubelet. */
import { podParity } from './pod-parity.ts';
import { skipWithoutContainerd } from './container-runtimes.ts';

podParity('containerd', skipWithoutContainerd);
