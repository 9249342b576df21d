/** The recorded pods of the kubelet, on docker. */
import { podParity } from './pod-parity.ts';
import { skipWithoutDocker } from './container-runtimes.ts';

podParity('docker', skipWithoutDocker);
