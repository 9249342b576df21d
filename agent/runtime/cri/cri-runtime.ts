/**
 * Implements the container runtime boundary with CRI v1 (containerd, CRI-O). It is a thin adapter: all state that must
 * survive a restart of the agent is in the runtime. All sandboxes with pod labels belong to this node, because only one
 * node agent may use a runtime.
 */
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { CniPlaces } from '../../base/model/cni-places.ts';
import { instanceOf, LABEL_INSTANCE } from '../instance.ts';
import {
  type ContainerConfig,
  type ContainerStatus,
  type LinuxResources,
  type Runtime,
  type RuntimeCondition,
  RuntimeError,
  type RuntimeEvent,
  type RuntimeFeatures,
  type RuntimeInfo,
  type SandboxConfig,
  type SandboxStatus,
  type StreamIo,
} from '../runtime.ts';
import { makeLogFolder, makePodLogFolder } from '../logs/log-files.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import { cniPlacesOf } from './cni-places.ts';
import { connectCri, type CriClient, unlessGone } from './cri-client.ts';
import { containerMessage, resourcesMessage, sandboxMessage } from './cri-config.ts';
import { followCriEvents, type Started } from './cri-events.ts';
import { CriImages } from './cri-images.ts';
import { CriStates, LABEL_POD_UID } from './cri-states.ts';
import { containerStatsOf } from './cri-stats.ts';
import { forwardRemotePort, runRemoteCommand } from './remote-streams.ts';
import { CRI } from './schema.ts';

const DEFAULT_TIMEOUT_MS = 120_000;
/** The maximum timeout of the first call, so that a socket that does not answer fails soon. */
const VERSION_TIMEOUT_MS = 20_000;
/** Creating a sandbox includes its network plugins, so it has a longer timeout. */
const SANDBOX_TIMEOUT_FACTOR = 2;
/** The time that a call to stop a container may take beyond the grace period and the usual timeout. */
const STOP_MARGIN_MS = 60_000;

/** The sockets and limits of the connection. */
interface CriRuntimeOptions {
  /** The address of the runtime service, such as `unix:///run/containerd/containerd.sock`. */
  readonly endpoint: string;
  /** The address of the image service. If it is empty or absent, `endpoint` is used. */
  readonly imageEndpoint?: string;
  /** The value of `--runtime-request-timeout`. */
  readonly requestTimeoutMs?: number;
  /** Sandboxes get a label with the instance of the agent, if both of these are there. */
  readonly nodeName?: string;
  readonly rootDirectory?: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Connects and requests the version, so that a wrong socket fails at once. */
export async function startCriRuntime(options: CriRuntimeOptions): Promise<Runtime> {
  const timeoutMs = options.requestTimeoutMs ?? DEFAULT_TIMEOUT_MS;
  const client = await connectCri({ runtime: options.endpoint, images: options.imageEndpoint ?? '', timeoutMs });
  try {
    const version = await client.call(
      'version',
      { version: 'v1' },
      { timeoutMs: Math.min(timeoutMs, VERSION_TIMEOUT_MS) },
    );
    return new CriRuntime(options, client, version.runtimeName, timeoutMs);
  } catch (error) {
    client.close();
    throw error;
  }
}

class CriRuntime implements Runtime {
  readonly #options: CriRuntimeOptions;
  readonly #client: CriClient;
  readonly #states: CriStates;
  readonly #images: CriImages;
  readonly #timeoutMs: number;
  readonly #closed = new AbortController();
  /** The listeners to call after a request that changes the lists. */
  readonly #listeners = new Set<(started?: Started) => void>();
  /** The containers that have not been started, with the uids of their pods. */
  readonly #unstarted = new Map<string, string>();

  constructor(options: CriRuntimeOptions, client: CriClient, name: string, timeoutMs: number) {
    this.#options = options;
    this.#client = client;
    this.#states = new CriStates(client, options.clock);
    const endpoint = options.imageEndpoint || options.endpoint;
    this.#images = new CriImages({ client, clock: options.clock, runtimeName: name, endpoint });
    this.#timeoutMs = timeoutMs;
  }

  async info(): Promise<RuntimeInfo> {
    const version = await this.#client.call('version', { version: 'v1' });
    return { name: version.runtimeName, version: version.runtimeVersion, apiVersion: version.runtimeApiVersion };
  }

  async conditions(): Promise<readonly RuntimeCondition[]> {
    const { status } = await this.#client.call('status', {});
    return (status?.conditions ?? []).map(({ type, status: ready, reason, message }) => ({
      type,
      ready,
      reason,
      message,
    }));
  }

  async features(): Promise<RuntimeFeatures> {
    const { runtimeHandlers, features: all } = await this.#client.call('status', {});
    const handlers = runtimeHandlers.map(({ name, features }) => ({
      name,
      recursiveReadOnlyMounts: features?.recursiveReadOnlyMounts ?? false,
      userNamespaces: features?.userNamespaces ?? false,
    }));
    return { handlers, supplementalGroupsPolicy: all?.supplementalGroupsPolicy ?? false };
  }

  async cgroupDriver(): Promise<'cgroupfs' | 'systemd' | undefined> {
    try {
      const { linux } = await this.#client.call('runtimeConfig', {});
      return linux === null ? undefined : CRI.cgroupDrivers[linux.cgroupDriver];
    } catch (error) {
      if (error instanceof RuntimeError && error.code === 'unsupported') return this.#configuredDriver();
      throw error;
    }
  }

  /**
   * Reads the cgroup driver from the verbose status. containerd before 2.0 has no call for it and shows its whole
   * configuration there. Resolves to `undefined` if the status has no configuration.
   */
  async #configuredDriver(): Promise<'cgroupfs' | 'systemd' | undefined> {
    const { info } = await this.#client.call('status', { verbose: true });
    const config = info['config'];
    if (config === undefined) return undefined;
    return /"SystemdCgroup":\s*true/.test(config) ? 'systemd' : 'cgroupfs';
  }

  async cniPlaces(): Promise<CniPlaces> {
    const { info } = await this.#client.call('status', { verbose: true });
    return cniPlacesOf(info['config'] ?? '');
  }

  async setPodCidr(cidrs: readonly string[]): Promise<void> {
    try {
      await this.#client.call('updateRuntimeConfig', {
        runtimeConfig: { networkConfig: { podCidr: cidrs.join(',') } },
      });
    } catch (error) {
      if (!(error instanceof RuntimeError) || error.code !== 'unsupported') throw error;
    }
  }

  async runSandbox(config: SandboxConfig): Promise<SandboxId> {
    await makePodLogFolder(config.logDirectory);
    const { podSandboxId } = await this.#client.call(
      'runPodSandbox',
      { config: this.#message(config), runtimeHandler: config.runtimeHandler },
      { timeoutMs: this.#timeoutMs * SANDBOX_TIMEOUT_FACTOR },
    );
    this.#changed(podSandboxId, { podUid: config.pod.uid, sandbox: true });
    return podSandboxId as SandboxId;
  }

  /** Adds the label by which `orchlet reset` knows the sandboxes of this agent. */
  #message(config: SandboxConfig): ReturnType<typeof sandboxMessage> {
    const { nodeName, rootDirectory } = this.#options;
    if (nodeName === undefined || rootDirectory === undefined) return sandboxMessage(config);
    const instance = instanceOf({ nodeName, rootDirectory });
    return sandboxMessage({ ...config, labels: { ...config.labels, [LABEL_INSTANCE]: instance } });
  }

  async stopSandbox(id: SandboxId): Promise<void> {
    // The runtime would call its network plugins again.
    if (this.#states.isSandboxStopped(id)) return;
    await unlessGone(this.#client.call('stopPodSandbox', { podSandboxId: id }));
    this.#states.noteSandboxStopped(id);
    this.#changed(id);
  }

  async removeSandbox(id: SandboxId): Promise<void> {
    await unlessGone(this.#client.call('removePodSandbox', { podSandboxId: id }));
    this.#changed(id);
  }

  sandboxStatus(id: SandboxId): Promise<SandboxStatus> {
    return this.#states.sandbox(id);
  }

  sandboxProcess(id: SandboxId): Promise<number> {
    return this.#states.sandboxProcess(id);
  }

  listSandboxes(filter: { readonly podUid?: string } = {}): Promise<readonly SandboxStatus[]> {
    return this.#states.sandboxes(filter);
  }

  async createContainer(
    sandbox: SandboxId,
    sandboxConfig: SandboxConfig,
    config: ContainerConfig,
  ): Promise<ContainerId> {
    await makeLogFolder(join(sandboxConfig.logDirectory, config.logPath));
    const { containerId } = await this.#client.call('createContainer', {
      podSandboxId: sandbox,
      config: containerMessage(config),
      sandboxConfig: this.#message(sandboxConfig),
    });
    this.#unstarted.set(containerId, sandboxConfig.pod.uid);
    return containerId as ContainerId;
  }

  async startContainer(id: ContainerId): Promise<void> {
    const podUid = this.#unstarted.get(id);
    this.#unstarted.delete(id);
    try {
      await this.#client.call('startContainer', { containerId: id });
    } catch (error) {
      this.#changed(id);
      throw error;
    }
    this.#changed(id, podUid === undefined ? undefined : { podUid, sandbox: false });
  }

  async stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    this.#states.noteStop(id);
    await unlessGone(
      this.#client.call(
        'stopContainer',
        { containerId: id, timeout: gracePeriodSeconds },
        { timeoutMs: gracePeriodSeconds * 1000 + STOP_MARGIN_MS + this.#timeoutMs },
      ),
    );
    this.#changed(id);
  }

  async removeContainer(id: ContainerId): Promise<void> {
    await unlessGone(this.#client.call('removeContainer', { containerId: id }));
    this.#unstarted.delete(id);
    this.#changed(id);
  }

  containerStatus(id: ContainerId): Promise<ContainerStatus> {
    return this.#states.container(id);
  }

  listContainers(
    filter: { readonly podUid?: string; readonly sandboxId?: SandboxId } = {},
  ): Promise<readonly ContainerStatus[]> {
    return this.#states.containers(filter);
  }

  async updateResources(id: ContainerId, resources: LinuxResources): Promise<void> {
    await this.#client.call('updateContainerResources', { containerId: id, linux: resourcesMessage(resources) });
    this.#states.forget(id);
  }

  async reopenLog(id: ContainerId): Promise<void> {
    await this.#client.call('reopenContainerLog', { containerId: id });
  }

  async checkpoint(
    id: ContainerId,
    archive: string,
    { timeoutSeconds }: { readonly timeoutSeconds: number },
  ): Promise<void> {
    await this.#client.call(
      'checkpointContainer',
      { containerId: id, location: archive, timeout: timeoutSeconds },
      { timeoutMs: 0 },
    );
  }

  async execSync(
    id: ContainerId,
    command: readonly string[],
    options: Parameters<Runtime['execSync']>[2],
  ): ReturnType<Runtime['execSync']> {
    // CRI accepts whole seconds only. The runtime ends the command, so the deadline of the call is later; 0 means none.
    const timeout = Math.ceil(options.timeoutMs / 1000);
    const result = await this.#client.call(
      'execSync',
      { containerId: id, cmd: command, timeout },
      {
        timeoutMs: timeout === 0 ? 0 : timeout * 1000 + this.#timeoutMs,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      },
    );
    const limit = options.maxOutputBytes ?? Infinity;
    return {
      exitCode: result.exitCode,
      stdout: result.stdout.subarray(0, limit),
      stderr: result.stderr.subarray(0, limit),
      outputBytes: result.stdout.length + result.stderr.length,
    };
  }

  async exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number> {
    const { url } = await this.#client.call('exec', {
      containerId: id,
      cmd: command,
      tty: io.tty,
      stdin: io.stdin !== undefined,
      stdout: io.stdout !== undefined,
      stderr: io.stderr !== undefined && !io.tty,
    });
    return runRemoteCommand(url, io, this.#options.clock);
  }

  async attach(id: ContainerId, io: StreamIo): Promise<void> {
    const { url } = await this.#client.call('attach', {
      containerId: id,
      tty: io.tty,
      stdin: io.stdin !== undefined,
      stdout: io.stdout !== undefined,
      stderr: io.stderr !== undefined && !io.tty,
    });
    await runRemoteCommand(url, io, this.#options.clock);
  }

  async portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream> {
    const { url } = await this.#client.call('portForward', { podSandboxId: id, port: [port] }, { signal });
    return forwardRemotePort(url, port, signal);
  }

  listImages(): ReturnType<Runtime['listImages']> {
    return this.#images.list();
  }

  imageStatus(reference: string): ReturnType<Runtime['imageStatus']> {
    return this.#images.status(reference);
  }

  pullImage(...request: Parameters<Runtime['pullImage']>): ReturnType<Runtime['pullImage']> {
    return this.#images.pull(...request);
  }

  removeImage(reference: string): Promise<void> {
    return this.#images.remove(reference);
  }

  loadImages(archive: string): Promise<readonly string[]> {
    return this.#images.load(archive, this.#closed.signal);
  }

  imageFilesystems(): ReturnType<Runtime['imageFilesystems']> {
    return this.#images.filesystems();
  }

  async containerStats(filter: { readonly podUid?: string } = {}): ReturnType<Runtime['containerStats']> {
    const { stats } = await this.#client.call('listContainerStats', { filter: podFilter(filter.podUid) });
    return stats.filter((entry) => LABEL_POD_UID in (entry.attributes?.labels ?? {})).map(containerStatsOf);
  }

  events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void> {
    const { clock, logger } = this.#options;
    const either = AbortSignal.any([signal, this.#closed.signal]);
    const onOwnChange = (listener: (started?: Started) => void): (() => void) => {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    };
    const notify = (event: RuntimeEvent): void => {
      this.#states.changed();
      onEvent(event);
    };
    return followCriEvents({ client: this.#client, clock, logger, onOwnChange }, either, notify, onDisconnect);
  }

  /** Drops the cached status of a container or sandbox, and notifies the listeners that the lists have changed. */
  #changed(id: string, started?: Omit<Started, 'id'>): void {
    this.#states.forget(id);
    for (const listener of this.#listeners) listener(started === undefined ? undefined : { id, ...started });
  }

  close(): Promise<void> {
    this.#closed.abort();
    this.#client.close();
    return Promise.resolve();
  }
}

function podFilter(podUid: string | undefined): { readonly labelSelector?: Readonly<Record<string, string>> } {
  return podUid === undefined ? {} : { labelSelector: { [LABEL_POD_UID]: podUid } };
}
