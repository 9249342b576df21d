/** The recorded pods of the reference's node agent, on docker. */
import { podParity } from './pod-parity.ts';
import { skipWithoutDocker } from './running-cluster.ts';

podParity('docker', skipWithoutDocker);
