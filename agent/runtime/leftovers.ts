/**
 * Finds what an agent has left in container runtimes: pods, and the network of its pods in Docker. Several agents and other
 * programs may share a runtime, so each thing is known by the label of the agent's instance. Sandboxes of a CRI runtime
 * without that label, which earlier versions created, are known by the uids of the agent's pods.
 */
import { existsSync } from 'node:fs';
import type { Clock } from '../../api/machinery/clock.ts';
import { connectCri } from './cri/cri-client.ts';
import { LABEL_INSTANCE } from './instance.ts';
import { DOCKER_SOCKET, KNOWN_CRI_SOCKETS } from './known-sockets.ts';

const TIMEOUT_MS = 120_000;
const LIST_TIMEOUT_MS = 10_000;

/** Something that can be removed. Removing what is gone is no error. */
export interface Leftover {
  readonly text: string;
  /** The uid of the pod that it belongs to. */
  readonly podUid?: string;
  remove(): Promise<void>;
}

interface LeftoverSearch {
  readonly instance: string;
  /** The uids of pods that have a directory of the agent. */
  readonly podUids: ReadonlySet<string>;
  readonly clock: Clock;
}

interface RuntimeEndpoints {
  /** `unix:///path`; empty for the usual socket. */
  readonly docker: string;
  readonly cri: string;
}

/** Returns the endpoints to search: the named ones, and usual sockets that exist. */
export function endpointsToSearch({ docker, cri }: RuntimeEndpoints): RuntimeEndpoints[] {
  const existing = KNOWN_CRI_SOCKETS.filter((path) => existsSync(path)).map((path) => `unix://${path}`);
  const cris = [...new Set([...(cri === '' ? [] : [cri]), ...existing])];
  const usual = `unix://${DOCKER_SOCKET}`;
  const dockers = [...new Set([...(docker === '' ? [] : [docker]), usual])].filter(
    (endpoint) => endpoint !== usual || existsSync(DOCKER_SOCKET),
  );
  return [
    ...cris.map((endpoint) => ({ docker: '', cri: endpoint })),
    ...dockers.map((docker) => ({ docker, cri: '' })),
  ];
}

/** Lists the sandboxes of an agent that a CRI runtime has. Rejects if the runtime does not answer. */
export async function criLeftovers(endpoint: string, { instance, podUids }: LeftoverSearch): Promise<Leftover[]> {
  const client = await connectCri({ runtime: endpoint, images: '', timeoutMs: TIMEOUT_MS });
  try {
    const { items } = await client.call('listPodSandbox', { filter: {} }, { timeoutMs: LIST_TIMEOUT_MS });
    const ownSandboxes = items.filter(({ labels, metadata }) => {
      const owner = labels[LABEL_INSTANCE];
      return owner === undefined ? podUids.has(metadata?.uid ?? '') : owner === instance;
    });
    return ownSandboxes.map(({ id, metadata }) => ({
      text: `pod ${metadata?.namespace ?? ''}/${metadata?.name ?? ''} in ${endpoint}`,
      ...(metadata === null ? {} : { podUid: metadata.uid }),
      remove: () => removeSandbox(endpoint, id),
    }));
  } finally {
    client.close();
  }
}

async function removeSandbox(endpoint: string, id: string): Promise<void> {
  const client = await connectCri({ runtime: endpoint, images: '', timeoutMs: TIMEOUT_MS });
  try {
    // Both calls succeed if the sandbox is gone, as CRI demands.
    await client.call('stopPodSandbox', { podSandboxId: id });
    await client.call('removePodSandbox', { podSandboxId: id });
  } finally {
    client.close();
  }
}

/**
 * Lists the containers and the network of an agent that the engine has. Rejects if the engine does not answer. The network
 * follows the pods, because it cannot be removed while they use it.
 */
export async function dockerLeftovers(endpoint: string, { instance, clock }: LeftoverSearch): Promise<Leftover[]> {
  const { createDockerClient, unlessGone } = await import('./docker/docker-client.ts');
  const client = createDockerClient(endpoint, clock);
  const filters = { label: [`${LABEL_INSTANCE}=${instance}`] };
  const containers = await client.call('list containers', () => client.docker.listContainers({ all: true, filters }), {
    timeoutMs: LIST_TIMEOUT_MS,
  });
  const networks = await client.call('list networks', () => client.docker.listNetworks({ filters }));
  return [
    ...containers.map(({ Id, Names, Labels }) => ({
      text: `container ${(Names[0] ?? Id).replace(/^\//, '')} in ${endpoint}`,
      podUid: Labels['io.kubernetes.pod.uid'] ?? '',
      remove: () =>
        unlessGone(client.call('remove', () => client.docker.getContainer(Id).remove({ force: true, v: true }))),
    })),
    ...networks.map(({ Id, Name }) => ({
      text: `network ${Name} in ${endpoint}`,
      remove: () => unlessGone(client.call('remove', () => client.docker.getNetwork(Id).remove())),
    })),
  ];
}
