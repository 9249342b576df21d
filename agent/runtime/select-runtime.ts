/** Chooses and connects the container runtime: the one that the flags name, else what answers on the known sockets. */
import { connect } from 'node:net';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { startDockerRuntime } from './docker/docker-runtime.ts';
import { type Runtime, RuntimeError } from './runtime.ts';

export interface RuntimeChoice {
  /** `docker`, `remote`, or '' for what answers. */
  readonly kind: string;
  readonly dockerEndpoint: string;
  /** `--container-runtime-endpoint`. */
  readonly criEndpoint: string;
  /** `--image-service-endpoint`; '': that of the runtime. */
  readonly imageEndpoint?: string;
  /** `--runtime-request-timeout`: of requests other than pulls and streams. */
  readonly requestTimeoutMs?: number;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly sandboxImage: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Throws `RuntimeError('unavailable')` with one line that says what was tried. */
export async function selectRuntime(choice: RuntimeChoice): Promise<Runtime> {
  if (choice.kind === 'remote' || choice.criEndpoint !== '') {
    throw new RuntimeError('unsupported', 'CRI runtimes are not supported yet: use --container-runtime=docker');
  }
  if (choice.dockerEndpoint.startsWith('unix://') && !(await answers(choice.dockerEndpoint.slice('unix://'.length)))) {
    throw new RuntimeError(
      'unavailable',
      `no container runtime: nothing answers on ${choice.dockerEndpoint} (name another socket with --docker-endpoint)`,
    );
  }
  return startDockerRuntime({ ...choice, endpoint: choice.dockerEndpoint });
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}
