/**
 * Implements the container runtime boundary with the Docker Engine (20.10 and later). A pod sandbox is a pause container,
 * and the pod's containers join its namespaces. All state that must survive a restart of the agent is in container labels.
 */
import { statfs } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { instanceOf } from '../instance.ts';
import {
  RuntimeError,
  type ContainerConfig,
  type ContainerStatus,
  type FilesystemUsage,
  type LinuxResources,
  type PodNetworkSettings,
  type Runtime,
  type RuntimeCondition,
  type RuntimeEvent,
  type RuntimeFeatures,
  type SandboxConfig,
  type SandboxStatus,
} from '../runtime.ts';
import type { ContainerId, SandboxId } from '../runtime-identity.ts';
import { ContainerCreation } from './container-creation.ts';
import { exitListed, stopContainer } from './container-exit.ts';
import { resourceOptions, type EngineFacts } from './container-options.ts';
import { ContainerStates } from './container-states.ts';
import { createDockerClient, isCode, unlessGone, type DockerClient } from './docker-client.ts';
import { ContainerLogs } from './container-logs.ts';
import { followEvents } from './engine-events.ts';
import { EngineInfoCache, readEngineFacts } from './engine-facts.ts';
import { attachStream, execCollect, execStream } from './exec.ts';
import { ImageVolumes } from './image-volumes.ts';
import { DockerImages } from './images.ts';
import { PodNetwork } from './network.ts';
import { PortDialer } from './port-forward.ts';
import { SandboxImage } from './sandbox-image.ts';
import { DockerStats } from './stats.ts';

const PING_TIMEOUT_MS = 10_000;

/** The engine, the identity of the agent, and its settings of pods. */
interface DockerRuntimeOptions {
  /** The address of the engine, such as `unix:///var/run/docker.sock`. */
  readonly endpoint: string;
  readonly nodeName: string;
  /** The agent's root directory. Together with the node's name it identifies the containers of this agent. */
  readonly rootDirectory: string;
  readonly sandboxImage: string;
  readonly hairpin?: boolean;
  /** The pod CIDR is assigned by the API server, so the agent waits for it before it creates a pod network. */
  readonly awaitsPodCidr?: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Connects to the engine, reads what it supports, and starts the log writers of the containers that exist. */
export async function startDockerRuntime(options: DockerRuntimeOptions): Promise<Runtime> {
  const runtime = new DockerRuntime(options);
  await runtime.start();
  return runtime;
}

class DockerRuntime implements Runtime {
  readonly #options: DockerRuntimeOptions;
  readonly #client: DockerClient;
  readonly #engine: EngineInfoCache;
  readonly #instance: string;
  readonly #network: PodNetwork;
  readonly #images: DockerImages;
  readonly #imageVolumes: ImageVolumes;
  readonly #creation: ContainerCreation;
  readonly #states: ContainerStates;
  readonly #stats: DockerStats;
  readonly #logs: ContainerLogs;
  readonly #ports = new PortDialer();
  #facts: EngineFacts = {
    swapLimit: false,
    lowestOomScoreAdj: -1000,
    recursiveReadOnly: false,
    isPodman: false,
    seLinux: false,
  };

  constructor(options: DockerRuntimeOptions) {
    this.#options = options;
    this.#client = createDockerClient(options.endpoint, options.clock);
    this.#engine = new EngineInfoCache(this.#client, options.clock);
    this.#instance = instanceOf(options);
    this.#network = new PodNetwork({
      client: this.#client,
      logger: options.logger,
      instance: this.#instance,
      nodeName: options.nodeName,
      awaitsCidr: options.awaitsPodCidr === true,
    });
    this.#logs = new ContainerLogs({ client: this.#client, clock: options.clock, logger: options.logger });
    this.#images = new DockerImages(this.#client);
    this.#imageVolumes = new ImageVolumes(this.#client, this.#images, options.rootDirectory);
    this.#creation = new ContainerCreation({
      client: this.#client,
      clock: options.clock,
      instance: this.#instance,
      rootDirectory: options.rootDirectory,
      sandboxImage: new SandboxImage(this.#images, options.sandboxImage, options.logger),
      images: this.#images,
      imageVolumes: this.#imageVolumes,
      facts: () => this.#facts,
    });
    this.#stats = new DockerStats(this.#client, options.clock, this.#instance);
    this.#states = new ContainerStates({
      client: this.#client,
      clock: options.clock,
      images: this.#images,
      instance: this.#instance,
      logSettled: (id) => this.#logs.settled(id),
    });
  }

  async start(): Promise<void> {
    this.#facts = await readEngineFacts(this.#engine, this.#options.logger);
    for (const container of await this.listContainers()) await this.#logs.write(container.id);
  }

  async info(): Promise<{ name: string; version: string; apiVersion: string }> {
    const version = await this.#engine.version();
    return { name: 'docker', version: version.Version, apiVersion: version.ApiVersion };
  }

  async conditions(): Promise<readonly RuntimeCondition[]> {
    const healthy = { ready: true, reason: '', message: '' };
    try {
      await this.#client.call('ping', () => this.#client.docker.ping(), { timeoutMs: PING_TIMEOUT_MS });
    } catch (error) {
      const message = `docker: ${(error as Error).message}`;
      this.#network.forget();
      this.#engine.forget();
      return [
        { type: 'RuntimeReady', ready: false, reason: 'DockerDaemonNotReady', message },
        { type: 'NetworkReady', ...healthy },
      ];
    }
    // `PodNetwork` keeps the message of the error, which the NetworkReady condition then has.
    await this.#network.ensure().catch(() => undefined);
    const { problem } = this.#network;
    return [
      { type: 'RuntimeReady', ...healthy },
      problem === ''
        ? { type: 'NetworkReady', ...healthy }
        : { type: 'NetworkReady', ready: false, reason: 'NetworkPluginNotReady', message: `docker: ${problem}` },
    ];
  }

  /**
   * Resolves to the features of the engine. The engine has user namespaces for all containers or for none, so pods cannot have
   * their own. It always adds the supplemental groups of the image.
   */
  async features(): Promise<RuntimeFeatures> {
    const info = await this.#engine.info();
    const features = { recursiveReadOnlyMounts: this.#facts.recursiveReadOnly, userNamespaces: false };
    const handlers = ['', ...Object.keys(info.Runtimes ?? {})].map((name) => ({ name, ...features }));
    return { handlers, supplementalGroupsPolicy: false };
  }

  async cgroupDriver(): Promise<'cgroupfs' | 'systemd' | undefined> {
    const { CgroupDriver: driver } = await this.#engine.info();
    return driver === 'systemd' || driver === 'cgroupfs' ? driver : undefined;
  }

  cniPlaces(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  setPodCidr(cidrs: readonly string[], { mtu }: PodNetworkSettings = {}): Promise<void> {
    this.#network.setPodCidrs(cidrs, mtu);
    return Promise.resolve();
  }

  async runSandbox(config: SandboxConfig): Promise<SandboxId> {
    const onNode = config.namespaces.network === 'node';
    if (!onNode) await this.#network.ensure();
    const id = await this.#creation.sandbox(config, { network: onNode ? undefined : this.#network.name });
    try {
      await this.#client.call('start sandbox', () => this.#client.docker.getContainer(id).start());
      if (!onNode && this.#options.hairpin === true) await this.#network.enableHairpinMode();
    } catch (error) {
      // The engine no longer has the pod network. The next sandbox creates it.
      if (isCode(error, 'not-found')) this.#network.forget();
      await this.removeSandbox(id).catch((cause: unknown) =>
        this.#options.logger.warn({ err: cause, id }, 'Cannot remove a sandbox that did not start'),
      );
      throw error;
    }
    return id;
  }

  async stopSandbox(id: SandboxId): Promise<void> {
    const members = await this.listContainers({ sandboxId: id });
    await Promise.all(
      members
        .filter((container) => container.state === 'running')
        .map((container) => this.stopContainer(container.id, 0)),
    );
    await this.stopContainer(id as unknown as ContainerId, 0);
  }

  async removeSandbox(id: SandboxId): Promise<void> {
    const members = await this.listContainers({ sandboxId: id });
    await Promise.all(members.map((container) => this.removeContainer(container.id)));
    await this.removeContainer(id as unknown as ContainerId);
    await this.#creation.removeFiles(id);
  }

  async sandboxStatus(id: SandboxId): Promise<SandboxStatus> {
    const [status] = await this.#states.sandboxes({ id });
    if (status === undefined) throw new RuntimeError('not-found', `sandbox ${id} not found`);
    return status;
  }

  listSandboxes(filter: { readonly podUid?: string } = {}): Promise<readonly SandboxStatus[]> {
    return this.#states.sandboxes(filter);
  }

  createContainer(sandbox: SandboxId, sandboxConfig: SandboxConfig, config: ContainerConfig): Promise<ContainerId> {
    return this.#creation.container(sandbox, sandboxConfig, config);
  }

  async startContainer(id: ContainerId): Promise<void> {
    try {
      await this.#client.call('start container', () => this.#client.docker.getContainer(id).start());
    } catch (error) {
      this.#states.noteStartFailure(id);
      throw error;
    }
    this.#states.forget(id);
    await this.#logs.write(id);
  }

  async stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    this.#states.noteStop(id);
    await stopContainer(this.#client, id, gracePeriodSeconds);
    await this.#exitListed(id);
  }

  /** Waits until the engine's list of containers shows the exit of the container. */
  #exitListed(id: string): Promise<void> {
    return exitListed(this.#client, this.#options.logger, id);
  }

  async removeContainer(id: ContainerId): Promise<void> {
    const endLog = this.#logs.remove(id);
    try {
      await unlessGone(
        this.#client.call('remove container', () =>
          this.#client.docker.getContainer(id).remove({ force: true, v: true }),
        ),
      );
    } catch (error) {
      // An earlier request is still removing the container.
      if (!(error instanceof RuntimeError && /is already in progress/i.test(error.message))) throw error;
    } finally {
      this.#states.forget(id);
      await endLog();
    }
  }

  async containerStatus(id: ContainerId): Promise<ContainerStatus> {
    const [status] = await this.#states.containers({ id });
    if (status === undefined) throw new RuntimeError('not-found', `container ${id} not found`);
    return status;
  }

  listContainers(
    filter: { readonly podUid?: string; readonly sandboxId?: SandboxId } = {},
  ): Promise<readonly ContainerStatus[]> {
    return this.#states.containers(filter);
  }

  async updateResources(id: ContainerId, resources: LinuxResources): Promise<void> {
    const { OomScoreAdj: _fixed, ...changes } = resourceOptions(resources, this.#facts);
    // The engine ignores a quota of zero and keeps the old one; -1 removes the quota.
    const quota = resources.cpuQuotaUs === 0 ? { CpuQuota: -1 } : {};
    await this.#client.call('update container', () =>
      this.#client.docker.getContainer(id).update({ ...changes, ...quota }),
    );
    this.#states.forget(id);
  }

  reopenLog(id: ContainerId): Promise<void> {
    return this.#logs.reopen(id);
  }

  checkpoint(): Promise<void> {
    return Promise.reject(
      new RuntimeError('unsupported', 'checkpoint archives are not supported by the Docker runtime'),
    );
  }

  execSync(
    id: ContainerId,
    command: readonly string[],
    options: Parameters<Runtime['execSync']>[2],
  ): ReturnType<Runtime['execSync']> {
    return execCollect({ client: this.#client, clock: this.#options.clock }, id, command, options);
  }

  exec(id: ContainerId, command: readonly string[], io: Parameters<Runtime['exec']>[2]): Promise<number> {
    return execStream({ client: this.#client, clock: this.#options.clock }, id, command, io);
  }

  attach(id: ContainerId, io: Parameters<Runtime['attach']>[1]): Promise<void> {
    return attachStream({ client: this.#client, clock: this.#options.clock }, id, io);
  }

  async portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream> {
    const status = await this.sandboxStatus(id);
    if (status.state !== 'ready') throw new RuntimeError('not-found', `sandbox ${id} is not running`);
    const { namespace } = status.pod;
    if (status.networkMode === 'node') return this.#ports.dial({ namespace, ips: [], pid: 0 }, port, signal);
    return this.#ports.dial({ namespace, ips: status.ips, pid: await this.sandboxProcess(id) }, port, signal);
  }

  async sandboxProcess(id: SandboxId): Promise<number> {
    const { State } = await this.#client.call('inspect sandbox', () => this.#client.docker.getContainer(id).inspect());
    return State.Pid;
  }

  listImages(): ReturnType<Runtime['listImages']> {
    return this.#images.list();
  }

  imageStatus(reference: string): ReturnType<Runtime['imageStatus']> {
    return this.#images.status(reference);
  }

  pullImage(
    reference: string,
    auth: Parameters<Runtime['pullImage']>[1],
    options: Parameters<Runtime['pullImage']>[2],
  ): Promise<string> {
    return this.#images.pull(reference, auth, options);
  }

  async removeImage(reference: string): Promise<void> {
    const image = await this.#images.status(reference);
    await this.#images.remove(reference);
    if (image !== undefined) await this.#imageVolumes.forget(image.id);
  }

  loadImages(archive: string): Promise<readonly string[]> {
    return this.#images.load(archive);
  }

  async imageFilesystems(): Promise<{ images: readonly FilesystemUsage[]; containers: readonly FilesystemUsage[] }> {
    const { DockerRootDir: mountpoint } = await this.#engine.info();
    const stats = await statfs(mountpoint);
    const usage = {
      mountpoint,
      usedBytes: (stats.blocks - stats.bfree) * stats.bsize,
      inodesUsed: stats.files - stats.ffree,
    };
    return { images: [usage], containers: [usage] };
  }

  containerStats(filter: { readonly podUid?: string } = {}): ReturnType<Runtime['containerStats']> {
    return this.#stats.containers(filter.podUid);
  }

  events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void> {
    const { clock, logger } = this.#options;
    const settled = (id: string): Promise<void> => this.#exitListed(id);
    const options = { client: this.#client, clock, logger, instance: this.#instance, settled };
    return followEvents(options, signal, onEvent, () => {
      this.#engine.forget();
      onDisconnect();
    });
  }

  /**
   * Stops the log writers, and removes the pod network if no sandbox exists. A network that cannot be removed is logged.
   */
  async close(): Promise<void> {
    await this.#logs.close();
    try {
      if ((await this.listSandboxes()).length === 0) await this.#network.release();
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'Cannot remove the pod network');
    }
  }
}
