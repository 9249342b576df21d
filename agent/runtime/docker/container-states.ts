/**
 * Translates the engine's container list and inspections into the runtime boundary's statuses. A list costs one call, plus one
 * inspection for each container whose status is not cached: those of running and exited containers are, by id and state.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type Docker from 'dockerode';
import type { ContainerStatus, LinuxResources, Mount, SandboxStatus } from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import { statusOrFallback } from '../bounded-wait.ts';
import { isCode, startMessage, type DockerClient } from './docker-client.ts';
import { engineTime } from './engine-time.ts';
import type { DockerImages } from './images.ts';
import { LABEL_INSTANCE } from '../instance.ts';
import { LABEL_POD_UID, LABEL_SANDBOX, LABEL_TYPE, readLabels } from './labels.ts';
import { KILLED, OOM_RECHECKS_MS } from '../oom-kill.ts';

interface ContainerStatesDeps {
  readonly client: DockerClient;
  readonly clock: Clock;
  readonly images: DockerImages;
  readonly instance: string;
  /** Resolves when the log of an exited container is complete, or will not be completed. */
  readonly logSettled: (id: string) => Promise<void>;
}

interface CachedStatus {
  readonly state: string;
  readonly status: Promise<ContainerStatus>;
}

/** Reads statuses and owns their cache. Methods throw `RuntimeError`s. */
export class ContainerStates {
  readonly #deps: ContainerStatesDeps;
  readonly #cached = new Map<string, CachedStatus>();
  /** The ids of containers that the agent itself stops. */
  readonly #stopped = new Set<string>();
  /** The times at which starts failed, by container id. The engine does not record them. */
  readonly #startFailures = new Map<string, number>();

  constructor(deps: ContainerStatesDeps) {
    this.#deps = deps;
  }

  /** Records that the container did not start now, because the engine does not record the time. */
  noteStartFailure(id: string): void {
    this.#startFailures.set(id, this.#deps.clock.now());
    this.#cached.delete(id);
  }

  /** Forgets the status of a container, so that the next read requests it from the engine. */
  forget(id: string): void {
    this.#cached.delete(id);
  }

  async sandboxes(filter: { readonly podUid?: string; readonly id?: string }): Promise<readonly SandboxStatus[]> {
    const listed = await this.#list(
      [`${LABEL_TYPE}=podsandbox`, ...(filter.podUid === undefined ? [] : [`${LABEL_POD_UID}=${filter.podUid}`])],
      filter.id,
    );
    return listed.map(sandboxStatus).toSorted((a, b) => b.createdAtMs - a.createdAtMs || b.pod.attempt - a.pod.attempt);
  }

  async containers(filter: {
    readonly podUid?: string;
    readonly sandboxId?: string;
    readonly id?: string;
  }): Promise<readonly ContainerStatus[]> {
    const listed = await this.#list(
      [
        `${LABEL_TYPE}=container`,
        ...(filter.podUid === undefined ? [] : [`${LABEL_POD_UID}=${filter.podUid}`]),
        ...(filter.sandboxId === undefined ? [] : [`${LABEL_SANDBOX}=${filter.sandboxId}`]),
      ],
      filter.id,
    );
    const isOverview = Object.keys(filter).length === 0;
    if (isOverview) this.#prune(new Set(listed.map((entry) => entry.Id)));
    // The list of all containers does not wait for a single container that hangs.
    const statuses = await Promise.all(
      listed.map((entry) =>
        isOverview
          ? statusOrFallback(this.#deps.clock, this.#status(entry), () => listedStatus(entry))
          : this.#status(entry),
      ),
    );
    return statuses.filter((status) => status !== undefined);
  }

  #list(labels: readonly string[], id: string | undefined): Promise<Docker.ContainerInfo[]> {
    const filters = {
      label: [`${LABEL_INSTANCE}=${this.#deps.instance}`, ...labels],
      ...(id === undefined ? {} : { id: [id] }),
    };
    return this.#deps.client.call('list containers', () =>
      this.#deps.client.docker.listContainers({ all: true, filters }),
    );
  }

  #prune(listed: ReadonlySet<string>): void {
    for (const id of [...this.#cached.keys(), ...this.#startFailures.keys(), ...this.#stopped]) {
      if (listed.has(id)) continue;
      this.#stopped.delete(id);
      this.#cached.delete(id);
      this.#startFailures.delete(id);
    }
  }

  async #status(entry: Docker.ContainerInfo): Promise<ContainerStatus | undefined> {
    const cached = this.#cached.get(entry.Id);
    const current = cached?.state === entry.State ? cached : { state: entry.State, status: this.#inspect(entry.Id) };
    this.#cached.set(entry.Id, current);
    try {
      const status = await current.status;
      // A created container may have failed to start in the meantime. A status read between two states is not cached.
      const isCacheable =
        status.state === 'exited'
          ? entry.State !== 'running'
          : status.state === entry.State && entry.State === 'running';
      if (!isCacheable && this.#cached.get(entry.Id) === current) this.#cached.delete(entry.Id);
      return status;
    } catch (error) {
      if (this.#cached.get(entry.Id) === current) this.#cached.delete(entry.Id);
      if (isCode(error, 'not-found')) return undefined;
      throw error;
    }
  }

  /** Records that the agent itself stops the container, so that the status does not wait for an OOM kill to be reported. */
  noteStop(id: string): void {
    this.#stopped.add(id);
  }

  async #inspect(id: string): Promise<ContainerStatus> {
    const inspect = (): Promise<Docker.ContainerInspectInfo> =>
      this.#deps.client.call('inspect container', () => this.#deps.client.docker.getContainer(id).inspect());
    let inspected = await inspect();
    if (!inspected.State.Running) await this.#deps.logSettled(id);
    // The engine learns of the exit and of the OOM kill through separate events, and does not wait for the second.
    for (const delayMs of this.#stopped.has(id) ? [] : OOM_RECHECKS_MS) {
      const { State, HostConfig } = inspected;
      if (State.Running || State.ExitCode !== KILLED || State.OOMKilled || (HostConfig.Memory ?? 0) === 0) break;
      await this.#deps.clock.sleep(delayMs);
      inspected = await inspect();
    }
    return containerStatus(
      inspected,
      await this.#deps.images.reference(inspected.Image),
      this.#startFailures.get(id) ?? 0,
    );
  }
}

/** Builds a status from a list entry alone. Pure. */
function listedStatus(entry: Docker.ContainerInfo): ContainerStatus {
  const facts = readLabels(entry.Labels);
  const state =
    entry.State === 'running' || entry.State === 'created' || entry.State === 'exited' ? entry.State : 'unknown';
  return {
    id: entry.Id as ContainerId,
    sandboxId: facts.sandboxId as SandboxId,
    name: facts.container,
    attempt: facts.attempt,
    state,
    createdAtMs: facts.createdAtMs === 0 ? entry.Created * 1000 : facts.createdAtMs,
    startedAtMs: 0,
    finishedAtMs: 0,
    exitCode: 0,
    reason: '',
    message: '',
    image: facts.userImage,
    imageRef: entry.ImageID,
    imageId: entry.ImageID,
    labels: facts.labels,
    annotations: facts.annotations,
    logPath: facts.logPath,
    mounts: [],
  };
}

function sandboxStatus(entry: Docker.ContainerInfo): SandboxStatus {
  const facts = readLabels(entry.Labels);
  const networks = Object.values(entry.NetworkSettings?.Networks ?? {});
  const ips =
    facts.network === 'node'
      ? []
      : networks
          .flatMap((network) => [network.IPAddress, network.GlobalIPv6Address])
          .filter((ip) => ip !== undefined && ip !== '');
  return {
    id: entry.Id as SandboxId,
    pod: facts.pod,
    state: entry.State === 'running' ? 'ready' : 'not-ready',
    createdAtMs: facts.createdAtMs === 0 ? entry.Created * 1000 : facts.createdAtMs,
    ips,
    labels: facts.labels,
    annotations: facts.annotations,
    networkMode: facts.network,
    runtimeHandler: facts.runtimeHandler,
  };
}

/**
 * Builds a status from an inspection. A container that could not be started has exited with reason `StartError` and exit code
 * 128, as in CRI runtimes. Pure.
 */
function containerStatus(
  inspected: Docker.ContainerInspectInfo,
  imageRef: string,
  startFailedAtMs: number,
): ContainerStatus {
  const facts = readLabels(inspected.Config.Labels);
  const { State } = inspected;
  const startFailed = State.Status === 'created' && ((State as { Error?: string }).Error ?? '') !== '';
  const common = {
    id: inspected.Id as ContainerId,
    sandboxId: facts.sandboxId as SandboxId,
    name: facts.container,
    attempt: facts.attempt,
    createdAtMs: facts.createdAtMs === 0 ? engineTime(inspected.Created) : facts.createdAtMs,
    image: facts.userImage,
    imageRef,
    imageId: inspected.Image,
    labels: facts.labels,
    annotations: facts.annotations,
    logPath: facts.logPath,
    resources: resourcesOf(inspected.HostConfig),
    mounts: mountsOf(inspected),
  };
  if (startFailed) {
    const finishedAtMs = startFailedAtMs === 0 ? common.createdAtMs : startFailedAtMs;
    return {
      ...common,
      state: 'exited',
      startedAtMs: 0,
      finishedAtMs,
      exitCode: 128,
      reason: 'StartError',
      message: startMessage((State as { Error?: string }).Error ?? ''),
    };
  }
  if (State.Running)
    return {
      ...common,
      state: 'running',
      startedAtMs: engineTime(State.StartedAt),
      finishedAtMs: 0,
      exitCode: 0,
      reason: '',
      message: '',
    };
  if (State.Status === 'created')
    return { ...common, state: 'created', startedAtMs: 0, finishedAtMs: 0, exitCode: 0, reason: '', message: '' };
  return {
    ...common,
    state: 'exited',
    startedAtMs: engineTime(State.StartedAt),
    finishedAtMs: engineTime(State.FinishedAt),
    exitCode: State.ExitCode,
    reason: endReason(State.OOMKilled, State.ExitCode),
    message: '',
  };
}

function endReason(oomKilled: boolean, exitCode: number): string {
  if (oomKilled) return 'OOMKilled';
  return exitCode === 0 ? 'Completed' : 'Error';
}

function resourcesOf(host: Docker.HostConfig): Partial<LinuxResources> {
  return {
    cpuPeriodUs: host.CpuPeriod ?? 0,
    cpuQuotaUs: host.CpuQuota ?? 0,
    cpuShares: host.CpuShares ?? 0,
    memoryLimitBytes: host.Memory ?? 0,
    oomScoreAdj: host.OomScoreAdj ?? 0,
    cpusetCpus: host.CpusetCpus ?? '',
    cpusetMems: host.CpusetMems ?? '',
  };
}

function mountsOf(inspected: Docker.ContainerInspectInfo): readonly Mount[] {
  return (inspected.HostConfig.Mounts ?? []).map((mount) => ({
    containerPath: mount.Target,
    hostPath: mount.Source,
    readonly: mount.ReadOnly ?? false,
    recursiveReadOnly:
      (mount.BindOptions as { ReadOnlyForceRecursive?: boolean } | undefined)?.ReadOnlyForceRecursive ?? false,
    propagation:
      ({ rslave: 'host-to-container', rshared: 'bidirectional' } as const)[
        mount.BindOptions?.Propagation as 'rslave' | 'rshared'
      ] ?? 'private',
    seLinuxRelabel: false,
  }));
}
