/**
 * Chooses and connects the container runtime: the one that the flags name, else what answers on the known sockets. Only the
 * client of the one that is used is loaded: the other would take a tenth of the agent's memory.
 */
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { type Runtime, type RuntimeCondition, RuntimeError } from './runtime.ts';

export interface RuntimeChoice {
  /** `docker`, `remote`, or '' for what answers. */
  readonly kind: string;
  readonly dockerEndpoint: string;
  /** `--container-runtime-endpoint`. */
  readonly criEndpoint: string;
  /** `--image-service-endpoint`; '' is the runtime's. */
  readonly imageEndpoint?: string;
  /** `--runtime-request-timeout`. */
  readonly requestTimeoutMs?: number;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly sandboxImage: string;
  /** Pods in a network of Docker's reach themselves through services. */
  readonly hairpin?: boolean;
  /** The pods' addresses come from an API server. */
  readonly awaitsPodCidr?: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Where CRI runtimes are looked for. */
  readonly knownCriSockets?: readonly string[];
}

const KNOWN_CRI_SOCKETS: readonly string[] = ['/run/containerd/containerd.sock', '/run/crio/crio.sock'];
const DEFAULT_DOCKER_ENDPOINT = 'unix:///var/run/docker.sock';

/** Throws `RuntimeError('unavailable')` with one line that says what was tried. */
export async function selectRuntime(choice: RuntimeChoice): Promise<Runtime> {
  const { kind, criEndpoint, dockerEndpoint } = choice;
  const connectTo = async (endpoint: string): Promise<Runtime> => {
    const { startCriRuntime } = await import('./cri/cri-runtime.ts');
    return startCriRuntime({ ...choice, endpoint });
  };
  if (kind !== 'docker' && criEndpoint !== '') return connectTo(criEndpoint);
  // A socket that somebody named is the one they mean.
  const searches = kind === 'remote' || (kind === '' && dockerEndpoint === DEFAULT_DOCKER_ENDPOINT);
  const tried: string[] = [];
  for (const socket of searches ? (choice.knownCriSockets ?? KNOWN_CRI_SOCKETS) : []) {
    const found = await usable(socket, connectTo, choice.rootDirectory);
    if (typeof found !== 'string') return found;
    tried.push(`${socket}: ${found}`);
  }
  const hint = 'name another socket with --container-runtime-endpoint or --docker-endpoint';
  if (kind === 'remote') throw new RuntimeError('unavailable', `no container runtime: ${tried.join('; ')} (${hint})`);
  if (dockerEndpoint.startsWith('unix://') && !(await answers(dockerEndpoint.slice('unix://'.length)))) {
    throw new RuntimeError(
      'unavailable',
      `no container runtime: ${[...tried, `${dockerEndpoint}: nothing answers`].join('; ')} (${hint})`,
    );
  }
  const { startDockerRuntime } = await import('./docker/docker-runtime.ts');
  return startDockerRuntime({ ...choice, endpoint: dockerEndpoint });
}

/**
 * The runtime, or why it will not do: a containerd that serves Docker only has no CRI or no network for pods, and the pods of
 * another node agent would be ended as nobody's.
 */
async function usable(
  socket: string,
  connectTo: (endpoint: string) => Promise<Runtime>,
  rootDirectory: string,
): Promise<Runtime | string> {
  if (!(await answers(socket))) return 'nothing answers';
  let runtime: Runtime | undefined;
  try {
    runtime = await connectTo(`unix://${socket}`);
    const missing = unmetCondition(await runtime.conditions());
    const isTaken = !existsSync(join(rootDirectory, 'pods')) && (await runtime.listSandboxes()).length > 0;
    if (missing === undefined && !isTaken) return runtime;
    await runtime.close();
    if (missing === undefined) return 'it runs pods of another node agent';
    return missing.message === '' ? missing.reason : missing.message;
  } catch (error) {
    await runtime?.close();
    return (error as Error).message;
  }
}

/** Why pods cannot run; other conditions are warnings: containerd 2 tells of deprecated parts of its configuration so. */
export function unmetCondition(conditions: readonly RuntimeCondition[]): RuntimeCondition | undefined {
  return conditions.find(({ type, ready }) => !ready && (type === 'RuntimeReady' || type === 'NetworkReady'));
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
