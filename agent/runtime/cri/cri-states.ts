/**
 * Translates the statuses of sandboxes and containers of a CRI runtime into the boundary's form. A status is requested once
 * for each state and then cached, so that a list of containers that run or have exited needs one call when nothing has
 * changed.
 */
import { inParallel } from '../../../api/machinery/in-parallel.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { statusOrFallback } from '../bounded-wait.ts';
import { LABEL_INSTANCE } from '../instance.ts';
import { type ContainerStatus, type LinuxResources, type Mount, type SandboxStatus, RuntimeError } from '../runtime.ts';
import type { ContainerId, PodIdentity, SandboxId } from '../runtime-identity.ts';
import type { CriClient } from './cri-client.ts';
import { CRI, type Incoming } from './schema.ts';
import { KILLED, OOM_RECHECKS_MS } from '../oom-kill.ts';

/** The label with the uid of the pod, which the kubelet sets as well. */
export const LABEL_POD_UID = 'io.kubernetes.pod.uid';
const NS_PER_MS = 1e6;
/** The number of statuses that are requested at the same time. */
const PARALLEL = 16;

/** Reads statuses and owns their cache. Methods throw `RuntimeError`s. */
export class CriStates {
  readonly #client: CriClient;
  readonly #clock: Clock;
  /** The ids of containers that the agent itself stops. */
  readonly #stopped = new Set<string>();
  /** The ids of sandboxes that the agent itself has stopped. */
  readonly #stoppedSandboxes = new Set<string>();
  /** The lists of single pods that are requested now, by the pod's uid. */
  readonly #containerLists = new Map<string, Promise<readonly ContainerStatus[]>>();
  readonly #sandboxLists = new Map<string, Promise<readonly SandboxStatus[]>>();
  /** Statuses by container id, with the state in which the status was requested. */
  readonly #containers = new Map<string, { readonly state: number; readonly status: ContainerStatus }>();
  readonly #sandboxes = new Map<string, { readonly state: number; readonly status: SandboxStatus }>();

  constructor(client: CriClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /**
   * Records that the agent itself stops the container, so that the status does not wait for an OOM kill to be reported.
   */
  noteStop(id: string): void {
    this.#stopped.add(id);
  }

  /** Records that the agent itself has stopped the sandbox. A sandbox never starts again. */
  noteSandboxStopped(id: string): void {
    this.#stoppedSandboxes.add(id);
  }

  isSandboxStopped(id: string): boolean {
    return this.#stoppedSandboxes.has(id);
  }

  /** Makes the next list of each pod a new request. To be called after each change of which the runtime notifies. */
  changed(): void {
    this.#containerLists.clear();
    this.#sandboxLists.clear();
  }

  /** Drops the cached status. To be called after each change that the agent itself makes, since lists may not show it. */
  forget(id: string): void {
    this.changed();
    this.#containers.delete(id);
    this.#sandboxes.delete(id);
  }

  /** Requests the status of a container. Rejects with `not-found` if there is none. */
  async container(id: ContainerId): Promise<ContainerStatus> {
    const status = await this.#requestStatus(id);
    if (status === null) throw new RuntimeError('not-found', `container ${id} not found`);
    // The sandbox id of a container never changes. Statuses do not contain it.
    const sandboxId = this.#containers.get(id)?.status.sandboxId ?? (await this.#sandboxOf(id));
    const found = containerStatusOf(status, sandboxId);
    this.#containers.set(id, { state: status.state, status: found });
    return found;
  }

  /** Lists containers. Requests of one pod at the same time share one list, unless something changes in between. */
  containers(filter: {
    readonly podUid?: string;
    readonly sandboxId?: SandboxId;
  }): Promise<readonly ContainerStatus[]> {
    const { podUid, sandboxId } = filter;
    if (podUid === undefined || sandboxId !== undefined) return this.#listContainers(filter);
    return shared(this.#containerLists, podUid, () => this.#listContainers(filter));
  }

  async #listContainers(filter: {
    readonly podUid?: string;
    readonly sandboxId?: SandboxId;
  }): Promise<readonly ContainerStatus[]> {
    const { containers } = await this.#client.call('listContainers', {
      filter: {
        ...(filter.sandboxId === undefined ? {} : { podSandboxId: filter.sandboxId }),
        ...(filter.podUid === undefined ? {} : { labelSelector: { [LABEL_POD_UID]: filter.podUid } }),
      },
    });
    const ours = containers.filter((container) => LABEL_POD_UID in container.labels);
    if (filter.podUid === undefined && filter.sandboxId === undefined) {
      keepOnly(this.#containers, ours);
      const ids = new Set(ours.map((container) => container.id));
      for (const id of this.#stopped) if (!ids.has(id)) this.#stopped.delete(id);
    }
    const isOverview = filter.podUid === undefined && filter.sandboxId === undefined;
    const found = await inParallel(ours, PARALLEL, (listed) => {
      const status = this.#listed(listed);
      return isOverview ? statusOrFallback(this.#clock, status, () => listedStatusOf(listed)) : status;
    });
    return newestFirst(found);
  }

  async #listed(listed: Incoming<'Container'>): Promise<ContainerStatus | undefined> {
    const cached = this.#containers.get(listed.id);
    // A created container may start at any time, so its status is requested again. The status of a running or exited
    // container is valid until the list shows another state.
    const isCreated = CRI.containerStates[listed.state] === 'created';
    if (cached !== undefined && cached.state === listed.state && !isCreated) return cached.status;
    const answer = await goneIsUndefined(this.#requestStatus(listed.id));
    if (answer === undefined || answer === null) return undefined;
    const status = containerStatusOf(answer, listed.podSandboxId as SandboxId, listed.imageId || listed.imageRef);
    this.#containers.set(listed.id, { state: answer.state, status });
    return status;
  }

  /** Requests the status of a sandbox. Rejects with `not-found` if there is none. */
  async sandbox(id: SandboxId): Promise<SandboxStatus> {
    const { status } = await this.#client.call('podSandboxStatus', { podSandboxId: id });
    if (status === null) throw new RuntimeError('not-found', `sandbox ${id} not found`);
    const found = sandboxStatusOf(status);
    this.#sandboxes.set(id, { state: status.state, status: found });
    return found;
  }

  /** Requests the process of a sandbox; 0 if the runtime reports none. */
  async sandboxProcess(id: SandboxId): Promise<number> {
    const { info } = await this.#client.call('podSandboxStatus', { podSandboxId: id, verbose: true });
    return processIn(info['info'] ?? '');
  }

  /** Lists sandboxes. Requests of one pod at the same time share one list, unless something changes in between. */
  sandboxes(filter: { readonly podUid?: string }): Promise<readonly SandboxStatus[]> {
    const { podUid } = filter;
    if (podUid === undefined) return this.#listSandboxes(filter);
    return shared(this.#sandboxLists, podUid, () => this.#listSandboxes(filter));
  }

  async #listSandboxes(filter: { readonly podUid?: string }): Promise<readonly SandboxStatus[]> {
    const { items } = await this.#client.call('listPodSandbox', {
      filter: filter.podUid === undefined ? {} : { labelSelector: { [LABEL_POD_UID]: filter.podUid } },
    });
    const ours = items.filter((item) => LABEL_POD_UID in item.labels);
    if (filter.podUid === undefined) {
      keepOnly(this.#sandboxes, ours);
      const ids = new Set(ours.map(({ id }) => id));
      for (const id of this.#stoppedSandboxes) if (!ids.has(id)) this.#stoppedSandboxes.delete(id);
    }
    const found = await inParallel(ours, PARALLEL, async (listed) => {
      const cached = this.#sandboxes.get(listed.id);
      if (cached !== undefined && cached.state === listed.state) return cached.status;
      const status = goneIsUndefined(this.sandbox(listed.id as SandboxId));
      return filter.podUid === undefined
        ? statusOrFallback(this.#clock, status, () => listedSandboxOf(listed))
        : status;
    });
    return newestFirst(found);
  }

  /**
   * Requests the status; `null` if the runtime's response has none. The runtime learns of the exit and of the OOM kill through
   * separate events, and does not wait for the second. After a SIGKILL that the agent did not send, this function retries a few
   * times until the reason is `OOMKilled`.
   */
  async #requestStatus(id: string): Promise<Incoming<'ContainerStatus'> | null> {
    let { status } = await this.#client.call('containerStatus', { containerId: id });
    for (const delayMs of this.#stopped.has(id) ? [] : OOM_RECHECKS_MS) {
      if (status?.exitCode !== KILLED || status.reason === 'OOMKilled') break;
      await this.#clock.sleep(delayMs);
      ({ status } = await this.#client.call('containerStatus', { containerId: id }));
    }
    return status;
  }

  async #sandboxOf(id: string): Promise<SandboxId> {
    const { containers } = await this.#client.call('listContainers', { filter: { id } });
    return (containers[0]?.podSandboxId ?? '') as SandboxId;
  }
}

/** Returns the promise of the key, or starts the work and keeps its promise until it settles. */
function shared<T>(promises: Map<string, Promise<T>>, key: string, work: () => Promise<T>): Promise<T> {
  const current = promises.get(key);
  if (current !== undefined) return current;
  const started: Promise<T> = work().finally(() => {
    if (promises.get(key) === started) promises.delete(key);
  });
  promises.set(key, started);
  return started;
}

/** Sorts by creation time, newest first. Runtimes return lists in no defined order. */
function newestFirst<T extends { readonly createdAtMs: number }>(found: readonly (T | undefined)[]): readonly T[] {
  return found.filter((status) => status !== undefined).toSorted((left, right) => right.createdAtMs - left.createdAtMs);
}

function keepOnly(map: Map<string, unknown>, listed: readonly { readonly id: string }[]): void {
  const ids = new Set(listed.map((entry) => entry.id));
  for (const id of map.keys()) if (!ids.has(id)) map.delete(id);
}

/** Returns `undefined` if the object was removed between the list and the status request. */
async function goneIsUndefined<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof RuntimeError && error.code === 'not-found') return undefined;
    throw error;
  }
}

function podIdentity(metadata: Incoming<'PodSandboxMetadata'> | null): PodIdentity {
  return {
    name: metadata?.name ?? '',
    namespace: metadata?.namespace ?? '',
    uid: metadata?.uid ?? '',
    attempt: metadata?.attempt ?? 0,
  };
}

function sandboxStatusOf(status: Incoming<'PodSandboxStatus'>): SandboxStatus {
  const onNode = status.linux?.namespaces?.options?.network === CRI.namespace.node;
  const { network } = status;
  const ips = network === null || onNode ? [] : [network.ip, ...network.additionalIps.map((entry) => entry.ip)];
  return {
    id: status.id as SandboxId,
    pod: podIdentity(status.metadata),
    state: status.state === CRI.sandboxReady ? 'ready' : 'not-ready',
    createdAtMs: status.createdAt / NS_PER_MS,
    ips: ips.filter((ip) => ip !== ''),
    labels: podLabels(status.labels),
    annotations: status.annotations,
    networkMode: onNode ? 'node' : 'pod',
    runtimeHandler: status.runtimeHandler,
  };
}

/** Leaves out the label that the adapter adds. */
function podLabels({
  [LABEL_INSTANCE]: _instance,
  ...labels
}: Readonly<Record<string, string>>): Record<string, string> {
  return labels;
}

/** Builds a container status from a list entry alone. */
function listedStatusOf(listed: Incoming<'Container'>): ContainerStatus {
  return {
    id: listed.id as ContainerId,
    sandboxId: listed.podSandboxId as SandboxId,
    name: listed.metadata?.name ?? '',
    attempt: listed.metadata?.attempt ?? 0,
    state: CRI.containerStates[listed.state] ?? 'unknown',
    createdAtMs: listed.createdAt / NS_PER_MS,
    startedAtMs: 0,
    finishedAtMs: 0,
    exitCode: 0,
    reason: '',
    message: '',
    image: listed.image?.userSpecifiedImage || (listed.image?.image ?? ''),
    imageRef: listed.imageRef,
    imageId: listed.imageId || listed.imageRef,
    labels: listed.labels,
    annotations: listed.annotations,
    logPath: '',
    mounts: [],
  };
}

/** Builds a sandbox status from a list entry alone. List entries have no addresses. */
function listedSandboxOf(listed: Incoming<'PodSandbox'>): SandboxStatus {
  return {
    id: listed.id as SandboxId,
    pod: podIdentity(listed.metadata),
    state: listed.state === CRI.sandboxReady ? 'ready' : 'not-ready',
    createdAtMs: listed.createdAt / NS_PER_MS,
    ips: [],
    labels: podLabels(listed.labels),
    annotations: listed.annotations,
    networkMode: 'pod',
    runtimeHandler: listed.runtimeHandler,
  };
}

function containerStatusOf(
  status: Incoming<'ContainerStatus'>,
  sandboxId: SandboxId,
  listedImageId = '',
): ContainerStatus {
  const linux = status.resources?.linux;
  const user = status.user?.linux;
  const state = CRI.containerStates[status.state] ?? 'unknown';
  return {
    id: status.id as ContainerId,
    sandboxId,
    name: status.metadata?.name ?? '',
    attempt: status.metadata?.attempt ?? 0,
    state,
    createdAtMs: status.createdAt / NS_PER_MS,
    startedAtMs: Math.max(0, status.startedAt) / NS_PER_MS,
    finishedAtMs: Math.max(0, status.finishedAt) / NS_PER_MS,
    exitCode: status.exitCode,
    reason: state === 'exited' ? status.reason : '',
    message: status.message,
    image: status.image?.userSpecifiedImage || (status.image?.image ?? ''),
    imageRef: status.imageRef,
    imageId: status.imageId || listedImageId || status.imageRef,
    labels: status.labels,
    annotations: status.annotations,
    logPath: status.logPath,
    ...(linux === null || linux === undefined ? {} : { resources: resourcesOf(linux) }),
    ...(user === null || user === undefined ? {} : { user }),
    mounts: status.mounts.map(mountOf),
  };
}

function resourcesOf(linux: Incoming<'LinuxContainerResources'>): Partial<LinuxResources> {
  return {
    cpuPeriodUs: linux.cpuPeriod,
    cpuQuotaUs: linux.cpuQuota,
    cpuShares: linux.cpuShares,
    memoryLimitBytes: linux.memoryLimitInBytes,
    memorySwapLimitBytes: linux.memorySwapLimitInBytes,
    oomScoreAdj: linux.oomScoreAdj,
    cpusetCpus: linux.cpusetCpus,
    cpusetMems: linux.cpusetMems,
    unified: linux.unified,
  };
}

const PROPAGATIONS = ['private', 'host-to-container', 'bidirectional'] as const;

function mountOf(mount: Incoming<'Mount'>): Mount {
  return {
    containerPath: mount.containerPath,
    hostPath: mount.hostPath,
    readonly: mount.readonly,
    recursiveReadOnly: mount.recursiveReadOnly,
    propagation: PROPAGATIONS[mount.propagation] ?? 'private',
    seLinuxRelabel: mount.selinuxRelabel,
    ...(mount.image === null || mount.image === undefined ? {} : { image: mount.image.image }),
  };
}

/**
 * Returns the process of a sandbox in the member `info` of its verbose status, in which containerd and CRI-O show it; 0 if the
 * text has none, because the specification leaves its contents to the runtime.
 */
function processIn(text: string): number {
  try {
    const { pid } = (JSON.parse(text) ?? {}) as { readonly pid?: unknown };
    return typeof pid === 'number' ? pid : 0;
  } catch {
    // The runtime shows nothing there, or a text of another form.
    return 0;
  }
}
