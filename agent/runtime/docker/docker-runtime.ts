/**
 * The container runtime boundary over the Docker Engine (20.10 and later): a pod sandbox is a pause container, the pod's
 * containers join its namespaces. Everything that must outlive the agent stands in labels; in memory are only caches and
 * the log writers, which are rebuilt at start.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import {
  RuntimeError,
  type ContainerConfig,
  type ContainerId,
  type ContainerStatus,
  type FilesystemUsage,
  type LinuxResources,
  type Runtime,
  type RuntimeCondition,
  type RuntimeEvent,
  type SandboxConfig,
  type SandboxId,
  type SandboxStatus,
} from '../runtime.ts';
import {
  containerCreateOptions,
  resourceOptions,
  sandboxCreateOptions,
  type EngineFacts,
} from './container-options.ts';
import { ContainerStates } from './container-states.ts';
import { createDockerClient, isCode, unlessGone, type DockerClient } from './docker-client.ts';
import { attachStream, execCollect, execStream } from './exec.ts';
import { ImageVolumes } from './image-volumes.ts';
import { DockerImages } from './images.ts';
import {
  containerLabels,
  dockerName,
  LABEL_INSTANCE,
  LABEL_POD_UID,
  LABEL_SANDBOX,
  LABEL_TYPE,
  sandboxLabels,
} from './labels.ts';
import { LogWriter } from './log-writer.ts';
import { PodNetwork } from './network.ts';
import { dialPort } from './port-forward.ts';
import { DockerStats } from './stats.ts';

const EVENTS_RETRY_MS = 1_000;
/** How long an ended container's status waits for the rest of its log. */
const LOG_SETTLE_MS = 2_000;
/** What the engine may need beyond the grace period to see a process dead. */
const STOP_MARGIN_MS = 60_000;
const CAP_SYS_RESOURCE = 24n;

export interface DockerRuntimeOptions {
  /** `unix:///var/run/docker.sock`. */
  readonly endpoint: string;
  readonly nodeName: string;
  /** The agent's root directory: with the node's name it tells whose containers are whose. */
  readonly rootDirectory: string;
  readonly sandboxImage: string;
  readonly hairpin?: boolean;
  /** The pods' addresses come from an API server. */
  readonly awaitsPodCidr?: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Connects, reads what the engine can, and takes up the logs of the containers that are there. */
export async function startDockerRuntime(options: DockerRuntimeOptions): Promise<Runtime> {
  const runtime = new DockerRuntime(options);
  await runtime.start();
  return runtime;
}

class DockerRuntime implements Runtime {
  readonly #options: DockerRuntimeOptions;
  readonly #client: DockerClient;
  readonly #instance: string;
  readonly #network: PodNetwork;
  readonly #images: DockerImages;
  readonly #imageVolumes: ImageVolumes;
  readonly #states: ContainerStates;
  readonly #stats: DockerStats;
  readonly #writers = new Map<string, LogWriter>();
  #facts: EngineFacts = {
    swapLimit: false,
    lowestOomScoreAdj: -1000,
    recursiveReadOnly: false,
    seLinux: false,
  };

  constructor(options: DockerRuntimeOptions) {
    this.#options = options;
    this.#client = createDockerClient(options.endpoint, options.clock);
    this.#instance = createHash('sha256')
      .update(`${options.nodeName}\0${options.rootDirectory}`)
      .digest('hex')
      .slice(0, 16);
    this.#network = new PodNetwork({
      client: this.#client,
      logger: options.logger,
      instance: this.#instance,
      nodeName: options.nodeName,
      awaitsCidr: options.awaitsPodCidr === true,
    });
    this.#images = new DockerImages(this.#client);
    this.#imageVolumes = new ImageVolumes(this.#client, options.rootDirectory);
    this.#stats = new DockerStats(this.#client, options.clock, this.#instance);
    this.#states = new ContainerStates({
      client: this.#client,
      clock: options.clock,
      images: this.#images,
      instance: this.#instance,
      logSettled: (id) => this.#logSettled(id),
    });
  }

  async start(): Promise<void> {
    const [version, info] = [await this.#version(), await this.#info()];
    this.#facts = {
      swapLimit: info.SwapLimit,
      lowestOomScoreAdj: await this.#lowestOomScoreAdj(),
      recursiveReadOnly: Number.parseInt(version.Version, 10) >= 25,
      seLinux: info.SecurityOptions.some((option) => option.includes('selinux')),
    };
    for (const container of await this.listContainers())
      this.#writeLog(container.id, container.logPath, await this.#isTty(container.id));
  }

  async info(): Promise<{ name: string; version: string; apiVersion: string }> {
    const version = await this.#version();
    return { name: 'docker', version: version.Version, apiVersion: version.ApiVersion };
  }

  async conditions(): Promise<readonly RuntimeCondition[]> {
    const well = { ready: true, reason: '', message: '' };
    try {
      await this.#client.call('ping', () => this.#client.docker.ping(), { timeoutMs: 10_000 });
    } catch (error) {
      const message = `docker: ${(error as Error).message}`;
      this.#network.forget();
      return [
        { type: 'RuntimeReady', ready: false, reason: 'DockerDaemonNotReady', message },
        { type: 'NetworkReady', ...well },
      ];
    }
    await this.#network.ensure().catch(() => undefined);
    const { problem } = this.#network;
    return [
      { type: 'RuntimeReady', ...well },
      problem === ''
        ? { type: 'NetworkReady', ...well }
        : { type: 'NetworkReady', ready: false, reason: 'NetworkPluginNotReady', message: `docker: ${problem}` },
    ];
  }

  async handlers(): Promise<readonly { name: string; recursiveReadOnlyMounts: boolean; userNamespaces: boolean }[]> {
    const info = await this.#info();
    const features = { recursiveReadOnlyMounts: this.#facts.recursiveReadOnly, userNamespaces: false };
    return ['', ...Object.keys(info.Runtimes ?? {})].map((name) => ({ name, ...features }));
  }

  async cgroupDriver(): Promise<'cgroupfs' | 'systemd' | undefined> {
    const { CgroupDriver: driver } = await this.#info();
    return driver === 'systemd' || driver === 'cgroupfs' ? driver : undefined;
  }

  setPodCidr(cidrs: readonly string[]): Promise<void> {
    this.#network.setPodCidrs(cidrs);
    return Promise.resolve();
  }

  async runSandbox(config: SandboxConfig): Promise<SandboxId> {
    const onNode = config.namespaces.network === 'node';
    if (!onNode) await this.#network.ensure();
    const name = dockerName('POD', config.pod, config.pod.attempt, this.#instance);
    const labels = sandboxLabels(this.#instance, config, this.#options.clock.now());
    const create = sandboxCreateOptions(
      config,
      { image: this.#options.sandboxImage, network: onNode ? undefined : this.#network.name, labels, name },
      this.#facts,
    );
    const id = (await this.#create(create, name)) as SandboxId;
    try {
      if (config.dns !== undefined) await this.#writeResolvConf(id, config.dns);
      await this.#client.call('start sandbox', () => this.#client.docker.getContainer(id).start());
      if (!onNode && this.#options.hairpin === true) await this.#network.openHairpins();
    } catch (error) {
      if (isCode(error, 'not-found')) this.#network.forget();
      await this.removeSandbox(id).catch((cause: unknown) =>
        this.#options.logger.warn({ cause, id }, 'Cannot remove a sandbox that did not start'),
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
    await rm(this.#sandboxDirectory(id), { recursive: true, force: true });
  }

  async sandboxStatus(id: SandboxId): Promise<SandboxStatus> {
    const [status] = await this.#states.sandboxes({ id });
    if (status === undefined) throw new RuntimeError('not-found', `sandbox ${id} not found`);
    return status;
  }

  listSandboxes(filter: { readonly podUid?: string } = {}): Promise<readonly SandboxStatus[]> {
    return this.#states.sandboxes(filter);
  }

  async createContainer(
    sandbox: SandboxId,
    sandboxConfig: SandboxConfig,
    config: ContainerConfig,
  ): Promise<ContainerId> {
    const name = dockerName(config.name, sandboxConfig.pod, config.attempt, this.#instance);
    const labels = containerLabels(this.#instance, sandbox, sandboxConfig, config, this.#options.clock.now());
    const { seccomp } = config.security;
    const seccompProfile =
      seccomp.type === 'Localhost' ? await this.#seccompProfile(seccomp.localhost ?? '') : undefined;
    const resolvConf =
      sandboxConfig.dns === undefined ? undefined : await this.#writeResolvConf(sandbox, sandboxConfig.dns);
    const mounts = await Promise.all(config.mounts.map((mount) => this.#imageVolumes.bind(mount)));
    const create = containerCreateOptions(
      sandboxConfig,
      { ...config, mounts },
      { sandboxId: sandbox, labels, name, seccompProfile, resolvConf },
      this.#facts,
    );
    return (await this.#create(create, name)) as ContainerId;
  }

  async startContainer(id: ContainerId): Promise<void> {
    const status = await this.containerStatus(id);
    try {
      await this.#client.call('start container', () => this.#client.docker.getContainer(id).start());
    } catch (error) {
      this.#states.noteStartFailure(id);
      throw error;
    }
    this.#states.forget(id);
    this.#writeLog(id, status.logPath, await this.#isTty(id));
  }

  async stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    const container = this.#client.docker.getContainer(id);
    this.#states.noteStop(id);
    const timeoutMs = gracePeriodSeconds * 1000 + STOP_MARGIN_MS;
    if (gracePeriodSeconds > 0) {
      await unlessGone(
        this.#client.call('stop container', () => container.stop({ t: gracePeriodSeconds }), { timeoutMs }),
      );
      await this.#settled(id);
      return;
    }
    const ended = this.#client.call('wait for container', () => container.wait({ condition: 'not-running' }), {
      timeoutMs,
    });
    ended.catch(() => undefined);
    try {
      await unlessGone(this.#client.call('kill container', () => container.kill({ signal: 'SIGKILL' })));
    } catch (error) {
      if (!isCode(error, 'invalid')) throw error; // 409: it does not run
    }
    await unlessGone(ended);
    await this.#settled(id);
  }

  async removeContainer(id: ContainerId): Promise<void> {
    const writer = this.#writers.get(id);
    this.#writers.delete(id);
    try {
      await unlessGone(
        this.#client.call('remove container', () =>
          this.#client.docker.getContainer(id).remove({ force: true, v: true }),
        ),
      );
    } catch (error) {
      if (!(error instanceof RuntimeError && /removal of container .* is already in progress/i.test(error.message)))
        throw error;
    } finally {
      this.#states.forget(id);
      await writer?.close();
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
    // Zero would leave the quota as it is.
    const quota = resources.cpuQuotaUs === 0 ? { CpuQuota: -1 } : {};
    await this.#client.call('update container', () =>
      this.#client.docker.getContainer(id).update({ ...changes, ...quota }),
    );
    this.#states.forget(id);
  }

  async reopenLog(id: ContainerId): Promise<void> {
    await this.#writers.get(id)?.reopen();
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
    if (status.networkMode === 'node') return dialPort({ ips: [], pid: 0 }, port, signal);
    const inspected = await this.#client.call('inspect sandbox', () => this.#client.docker.getContainer(id).inspect());
    return dialPort({ ips: status.ips, pid: inspected.State.Pid }, port, signal);
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
    const { DockerRootDir: mountpoint } = await this.#info();
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

  sandboxStats(filter: { readonly podUid?: string } = {}): ReturnType<Runtime['sandboxStats']> {
    return this.#stats.sandboxes(filter.podUid);
  }

  async events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void> {
    while (!signal.aborted) {
      try {
        const filters = { type: ['container'], label: [`${LABEL_INSTANCE}=${this.#instance}`] };
        const stream = await this.#client.docker.getEvents({ filters: JSON.stringify(filters), abortSignal: signal });
        onDisconnect();
        for await (const line of createInterface({ input: stream })) {
          const event = line === '' ? undefined : eventOf(JSON.parse(line) as EngineEvent);
          if (event !== undefined) void this.#settled(event.containerId, event.settle).then(() => onEvent(event));
        }
      } catch (error) {
        if (!signal.aborted) this.#options.logger.debug({ error }, 'The event stream of Docker broke off');
      }
      if (signal.aborted) return;
      onDisconnect();
      await this.#options.clock.sleep(EVENTS_RETRY_MS, signal).catch(() => undefined);
    }
  }

  /** Containers stay; the log writers end. Where there are no pods the network goes, too. */
  async close(): Promise<void> {
    const writers = [...this.#writers.values()];
    this.#writers.clear();
    await Promise.all(writers.map((writer) => writer.close()));
    try {
      if ((await this.listSandboxes()).length === 0) await this.#network.release();
    } catch (error) {
      this.#options.logger.debug({ error }, 'The pod network could not be removed');
    }
  }

  async #create(create: Parameters<DockerClient['docker']['createContainer']>[0], name: string): Promise<string> {
    const attempt = (): Promise<string> =>
      this.#client.call('create container', async () => (await this.#client.docker.createContainer(create)).id);
    try {
      return await attempt();
    } catch (error) {
      if (!isCode(error, 'already-exists')) throw error;
      // Left by an agent that died between create and start; nobody refers to it.
      await unlessGone(
        this.#client.call('remove container', () =>
          this.#client.docker.getContainer(name).remove({ force: true, v: true }),
        ),
      );
      return attempt();
    }
  }

  /**
   * The engine tells of an end before its list does. It does both under the container's lock, which an inspection takes:
   * after one, the list is as new as the news. A container that hangs holds up only its own event.
   */
  async #settled(id: string, needed = true): Promise<void> {
    if (!needed) return;
    try {
      await this.#client.call('inspect container', () => this.#client.docker.getContainer(id).inspect());
    } catch (error) {
      this.#options.logger.debug({ error, id }, 'A container could not be looked at after its event');
    }
  }

  #sandboxDirectory(id: string): string {
    return join(this.#options.rootDirectory, 'docker', id);
  }

  async #writeResolvConf(id: string, dns: NonNullable<SandboxConfig['dns']>): Promise<string> {
    const path = join(this.#sandboxDirectory(id), 'resolv.conf');
    const lines = [
      ...(dns.searches.length === 0 ? [] : [`search ${dns.searches.join(' ')}`]),
      ...dns.servers.map((server) => `nameserver ${server}`),
      ...(dns.options.length === 0 ? [] : [`options ${dns.options.join(' ')}`]),
    ];
    await mkdir(this.#sandboxDirectory(id), { recursive: true, mode: 0o755 });
    await writeFile(path, `${lines.join('\n')}\n`, { mode: 0o644 });
    return path;
  }

  async #seccompProfile(path: string): Promise<string> {
    try {
      return await readFile(path, 'utf8');
    } catch (error) {
      throw new RuntimeError('invalid', `cannot load seccomp profile "${path}": ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  #writeLog(id: string, logPath: string, tty: boolean): void {
    if (this.#writers.has(id) || logPath === '') return;
    const writer = new LogWriter(
      { id, tty, logPath },
      {
        client: this.#client,
        clock: this.#options.clock,
        logger: this.#options.logger,
        running: async (container) => {
          try {
            return (await this.#client.docker.getContainer(container).inspect()).State.Running;
          } catch (error) {
            return (error as { statusCode?: number }).statusCode !== 404;
          }
        },
      },
    );
    this.#writers.set(id, writer);
    void writer.finished.then(() => (this.#writers.get(id) === writer ? this.#writers.delete(id) : false));
  }

  async #isTty(id: string): Promise<boolean> {
    return (await this.#client.call('inspect container', () => this.#client.docker.getContainer(id).inspect())).Config
      .Tty;
  }

  async #logSettled(id: string): Promise<void> {
    const writer = this.#writers.get(id);
    if (writer === undefined) return;
    const limit = new AbortController();
    await Promise.race([
      writer.finished,
      this.#options.clock.sleep(LOG_SETTLE_MS, limit.signal).catch(() => undefined),
    ]);
    limit.abort();
  }

  #version(): Promise<{ Version: string; ApiVersion: string }> {
    return this.#client.call('version', () => this.#client.docker.version(), { timeoutMs: 20_000 });
  }

  async #info(): Promise<{
    SwapLimit: boolean;
    SecurityOptions: string[];
    CgroupDriver: string;
    DockerRootDir: string;
    Runtimes?: Record<string, unknown>;
  }> {
    return (await this.#client.call('info', () => this.#client.docker.info(), { timeoutMs: 20_000 })) as never;
  }

  async #lowestOomScoreAdj(): Promise<number> {
    const status = await readFile('/proc/self/status', 'utf8');
    const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
    if ((effective >> CAP_SYS_RESOURCE) & 1n) return -1000;
    const own = Number((await readFile('/proc/self/oom_score_adj', 'utf8')).trim());
    this.#options.logger.warn(
      { lowest: own },
      'Without CAP_SYS_RESOURCE the out-of-memory score of containers is not lowered',
    );
    return own;
  }
}

interface EngineEvent {
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

const EVENT_TYPES: Readonly<Record<string, RuntimeEvent['type']>> = {
  create: 'created',
  start: 'started',
  die: 'stopped',
  destroy: 'deleted',
};

function eventOf(event: EngineEvent): (RuntimeEvent & { readonly settle: boolean }) | undefined {
  const type = EVENT_TYPES[event.Action];
  const { Attributes: labels, ID: id } = event.Actor;
  const podUid = labels[LABEL_POD_UID];
  if (type === undefined || podUid === undefined) return undefined;
  const sandbox = labels[LABEL_TYPE] === 'podsandbox' || labels[LABEL_SANDBOX] === undefined;
  return { type: sandbox ? 'sandbox-changed' : type, podUid, containerId: id, settle: event.Action === 'die' };
}
