/** Compares pods on Docker with those that were recorded from the kubelet. */
import { podParity } from './pod-parity.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podParity('docker', skipWithoutDocker);
