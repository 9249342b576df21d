/**
 * Selects the container runtime and connects to it: the runtime that the flags name, else the first one that responds on a
 * known socket. The client of a kind of runtime is loaded only if such a runtime may answer, because it takes a tenth of
 * the agent's memory.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { DOCKER_SOCKET, KNOWN_CRI_SOCKETS, socketAnswers } from './known-sockets.ts';
import { type Runtime, type RuntimeCondition, RuntimeError } from './runtime.ts';

/** The flags of the runtime, and what a connection needs. */
export interface RuntimeChoice {
  /** `docker`, `remote`, or empty to detect the runtime. */
  readonly kind: string;
  readonly dockerEndpoint: string;
  /** The value of `--container-runtime-endpoint`. */
  readonly criEndpoint: string;
  /** The value of `--image-service-endpoint`. If empty, the runtime's endpoint is used. */
  readonly imageEndpoint?: string;
  /** The value of `--runtime-request-timeout`. */
  readonly requestTimeoutMs?: number;
  readonly nodeName: string;
  readonly rootDirectory: string;
  readonly sandboxImage: string;
  /** Pods in a Docker network can reach themselves through services. */
  readonly hairpin?: boolean;
  /** The pod CIDR is assigned by the API server. */
  readonly awaitsPodCidr?: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The agent can configure the network of a CRI runtime that has none. */
  readonly providesNetwork?: boolean;
  /** The sockets on which CRI runtimes are searched. */
  readonly knownCriSockets?: readonly string[];
  /** Where Docker is searched if the user named no endpoint. */
  readonly defaultDockerEndpoint?: string;
}

const DEFAULT_DOCKER_ENDPOINT = `unix://${DOCKER_SOCKET}`;

/**
 * Connects to the chosen runtime, or to the first one that can be used. A CRI runtime that lacks a network, which the agent can
 * provide, is used only if no other runtime answers. If none can be used, throws `RuntimeError('unavailable')` with a one-line
 * message that lists the sockets that were tried. Throws the error of the connection if the chosen endpoint does not answer.
 */
export async function selectRuntime(choice: RuntimeChoice): Promise<Runtime> {
  const { kind, criEndpoint, defaultDockerEndpoint = DEFAULT_DOCKER_ENDPOINT } = choice;
  const isDefault = choice.dockerEndpoint === DEFAULT_DOCKER_ENDPOINT;
  const dockerEndpoint = isDefault ? defaultDockerEndpoint : choice.dockerEndpoint;
  const connectTo = async (endpoint: string): Promise<Runtime> => {
    const { startCriRuntime } = await import('./cri/cri-runtime.ts');
    return startCriRuntime({ ...choice, endpoint });
  };
  if (kind !== 'docker' && criEndpoint !== '') return connectTo(criEndpoint);
  // If the user named a Docker socket, no other sockets are searched.
  const searches = kind === 'remote' || (kind === '' && isDefault);
  const tried: string[] = [];
  // A runtime that lacks nothing but a network comes after Docker, whose own containerd may be such a runtime.
  let spare: Runtime | undefined;
  for (const socket of searches ? (choice.knownCriSockets ?? KNOWN_CRI_SOCKETS) : []) {
    const found = await usable(socket, connectTo, choice);
    if (typeof found === 'string') tried.push(`${socket}: ${found}`);
    else if (found.hasNetwork) {
      await spare?.close();
      return found.runtime;
    } else if (spare === undefined) spare = found.runtime;
    else await found.runtime.close();
  }
  const withDocker = kind !== 'remote' && (await isDocker(dockerEndpoint));
  if (spare !== undefined && !withDocker) return spare;
  await spare?.close();
  const hint = 'name another socket with --container-runtime-endpoint or --docker-endpoint';
  if (kind === 'remote') throw new RuntimeError('unavailable', `no container runtime: ${tried.join('; ')} (${hint})`);
  if (!withDocker) {
    throw new RuntimeError(
      'unavailable',
      `no container runtime: ${[...tried, `${dockerEndpoint}: no response`].join('; ')} (${hint})`,
    );
  }
  const { startDockerRuntime } = await import('./docker/docker-runtime.ts');
  return startDockerRuntime({ ...choice, endpoint: dockerEndpoint });
}

/**
 * Returns the runtime, or the reason why it cannot be used. A containerd that serves only Docker has no CRI plugin or
 * no pod network. If another node agent uses the runtime, this agent would kill that agent's pods as unknown.
 */
async function usable(
  socket: string,
  connectTo: (endpoint: string) => Promise<Runtime>,
  { rootDirectory, providesNetwork = false }: Pick<RuntimeChoice, 'rootDirectory' | 'providesNetwork'>,
): Promise<{ readonly runtime: Runtime; readonly hasNetwork: boolean } | string> {
  if (!(await socketAnswers(socket))) return 'no response';
  let runtime: Runtime | undefined;
  try {
    runtime = await connectTo(`unix://${socket}`);
    const missing = unmetCondition(await runtime.conditions());
    const isTaken = !existsSync(join(rootDirectory, 'pods')) && (await runtime.listSandboxes()).length > 0;
    const hasNetwork = missing?.type !== 'NetworkReady';
    const isUsable = missing === undefined || (!hasNetwork && providesNetwork);
    if (isUsable && !isTaken) return { runtime, hasNetwork };
    await runtime.close();
    if (isUsable) return 'it runs pods of another node agent';
    return missing.message === '' ? missing.reason : missing.message;
  } catch (error) {
    await runtime?.close();
    return (error as Error).message;
  }
}

/**
 * Returns the condition that keeps pods from running. Other conditions are warnings, such as those of containerd 2 about
 * deprecated configuration.
 */
export function unmetCondition(conditions: readonly RuntimeCondition[]): RuntimeCondition | undefined {
  return conditions.find(({ type, ready }) => !ready && (type === 'RuntimeReady' || type === 'NetworkReady'));
}

/** Whether Docker listens at the endpoint. An endpoint that is no socket is used without a check. */
async function isDocker(endpoint: string): Promise<boolean> {
  return !endpoint.startsWith('unix://') || socketAnswers(endpoint.slice('unix://'.length));
}
