/** The recorded pods of the kubelet, on docker. */
import { podParity } from './pod-parity.ts';
import { skipWithoutDocker } from './running-cluster.ts';

podParity('docker', skipWithoutDocker);
