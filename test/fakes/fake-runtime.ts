/**
 * Implements a container runtime in memory that passes the runtime contract. No processes run, but it interprets a few shell
 * commands (`sleep`, `exit`, `false`, `echo`, `cat`). Tests stop containers with `exit`, and make calls fail with `failNext`.
 */
import {
  type ContainerConfig,
  type ContainerStatus,
  type ImageInfo,
  type Runtime,
  type RuntimeCondition,
  RuntimeError,
  type RuntimeEvent,
  type SandboxConfig,
  type SandboxStatus,
  type StreamIo,
} from '../../agent/runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../../agent/runtime/runtime-identity.ts';
import type { Clock } from '../../api/machinery/clock.ts';

interface FakeContainer {
  status: ContainerStatus;
  readonly config: ContainerConfig;
}

/** The state that outlives the agent. Several `FakeRuntime`s can share it. */
export interface FakeHost {
  readonly sandboxes: Map<string, SandboxStatus>;
  readonly containers: Map<string, FakeContainer>;
  readonly images: Map<string, ImageInfo>;
  readonly listeners: Set<(event: RuntimeEvent) => void>;
  counter: number;
}

/** Returns the state of a host with these images, which several runtimes may share, as an agent and its successor do. */
export function createFakeHost(images: readonly string[]): FakeHost {
  const host: FakeHost = {
    sandboxes: new Map(),
    containers: new Map(),
    images: new Map(),
    listeners: new Set(),
    counter: 0,
  };
  for (const image of images) addImage(host, image);
  return host;
}

function addImage(host: FakeHost, reference: string): ImageInfo {
  const info: ImageInfo = {
    id: `sha256:${Buffer.from(reference).toString('hex')}`,
    repoTags: [reference],
    repoDigests: [],
    sizeBytes: 1_000,
    user: '',
    pinned: false,
  };
  host.images.set(reference, info);
  return info;
}

const notFound = (what: string, id: string): RuntimeError => new RuntimeError('not-found', `${what} ${id} not found`);

/** The fake runtime. Several of them can share one `host`, like an agent that is restarted. */
export class FakeRuntime implements Runtime {
  readonly host: FakeHost;
  /** The calls in order, as `name id`. */
  readonly calls: string[] = [];
  ready = true;
  readonly #clock: Clock;
  readonly #failures = new Map<string, RuntimeError>();

  constructor(clock: Clock, host: FakeHost = createFakeHost([])) {
    this.#clock = clock;
    this.host = host;
  }

  /** Makes the next call with this name throw. */
  failNext(call: string, error: RuntimeError): void {
    this.#failures.set(call, error);
  }

  /** Stops a container's process as if it had exited by itself. */
  exit(id: string, exitCode: number, reason = exitCode === 0 ? 'Completed' : 'Error'): void {
    const container = this.host.containers.get(id);
    if (container === undefined) throw notFound('container', id);
    if (container.status.state !== 'running') return;
    container.status = { ...container.status, state: 'exited', exitCode, reason, finishedAtMs: this.#clock.now() };
    this.#notify('stopped', container);
  }

  info(): ReturnType<Runtime['info']> {
    return Promise.resolve({ name: 'fake', version: '1', apiVersion: '1' });
  }
  conditions(): Promise<readonly RuntimeCondition[]> {
    return Promise.resolve(
      ['RuntimeReady', 'NetworkReady'].map((type) => ({ type, ready: this.ready, reason: '', message: '' })),
    );
  }
  features(): ReturnType<Runtime['features']> {
    const handlers = [{ name: '', recursiveReadOnlyMounts: false, userNamespaces: false }];
    return Promise.resolve({ handlers, supplementalGroupsPolicy: false });
  }
  cgroupDriver(): ReturnType<Runtime['cgroupDriver']> {
    return Promise.resolve('cgroupfs');
  }
  cniPlaces(): Promise<undefined> {
    return Promise.resolve(undefined);
  }
  setPodCidr(): Promise<void> {
    return Promise.resolve();
  }

  async runSandbox(config: SandboxConfig): Promise<SandboxId> {
    await this.#call('runSandbox', config.pod.uid);
    const number = ++this.host.counter;
    const id = `sandbox-${number}` as SandboxId;
    const onNode = config.namespaces.network === 'node';
    this.host.sandboxes.set(id, {
      id,
      pod: config.pod,
      state: 'ready',
      createdAtMs: this.#clock.now(),
      ips: onNode ? [] : [`10.0.0.${number % 250}`],
      labels: config.labels,
      annotations: config.annotations,
      networkMode: config.namespaces.network,
      runtimeHandler: config.runtimeHandler,
    });
    this.#event({ type: 'sandbox-changed', podUid: config.pod.uid, containerId: id });
    return id;
  }
  async stopSandbox(id: SandboxId): Promise<void> {
    await this.#call('stopSandbox', id);
    const sandbox = this.host.sandboxes.get(id);
    if (sandbox === undefined) return;
    for (const [container, { status }] of this.host.containers) if (status.sandboxId === id) this.#kill(container);
    this.host.sandboxes.set(id, { ...sandbox, state: 'not-ready', ips: [] });
    this.#event({ type: 'sandbox-changed', podUid: sandbox.pod.uid, containerId: id });
  }
  async removeSandbox(id: SandboxId): Promise<void> {
    await this.#call('removeSandbox', id);
    for (const [container, { status }] of this.host.containers)
      if (status.sandboxId === id) this.host.containers.delete(container);
    this.host.sandboxes.delete(id);
  }
  sandboxStatus(id: SandboxId): Promise<SandboxStatus> {
    const sandbox = this.host.sandboxes.get(id);
    return sandbox === undefined ? Promise.reject(notFound('sandbox', id)) : Promise.resolve(sandbox);
  }
  sandboxProcess(): Promise<number> {
    return Promise.resolve(0);
  }
  listSandboxes(filter: { readonly podUid?: string } = {}): Promise<readonly SandboxStatus[]> {
    return Promise.resolve(
      [...this.host.sandboxes.values()].filter(
        (sandbox) => filter.podUid === undefined || sandbox.pod.uid === filter.podUid,
      ),
    );
  }

  async createContainer(
    sandbox: SandboxId,
    sandboxConfig: SandboxConfig,
    config: ContainerConfig,
  ): Promise<ContainerId> {
    await this.#call('createContainer', config.name);
    const id = `container-${++this.host.counter}` as ContainerId;
    const status: ContainerStatus = {
      id,
      sandboxId: sandbox,
      name: config.name,
      attempt: config.attempt,
      state: 'created',
      createdAtMs: this.#clock.now(),
      startedAtMs: 0,
      finishedAtMs: 0,
      exitCode: 0,
      reason: '',
      message: '',
      image: config.userImage,
      imageRef: config.image,
      imageId: config.image,
      labels: { 'io.kubernetes.pod.uid': sandboxConfig.pod.uid, ...config.labels },
      annotations: config.annotations,
      logPath: `${sandboxConfig.logDirectory}/${config.logPath}`,
      mounts: config.mounts,
    };
    const container = { status, config };
    this.host.containers.set(id, container);
    this.#notify('created', container);
    return id;
  }
  async startContainer(id: ContainerId): Promise<void> {
    const container = this.#container(id);
    await this.#call('startContainer', container.config.name);
    const [program = ''] = container.config.command;
    const now = this.#clock.now();
    if (program.startsWith('/no/')) {
      const message = `exec: "${program}": stat ${program}: no such file or directory: unknown`;
      container.status = {
        ...container.status,
        state: 'exited',
        exitCode: 128,
        reason: 'StartError',
        message,
        finishedAtMs: now,
      };
      throw new RuntimeError('invalid', message);
    }
    container.status = { ...container.status, state: 'running', startedAtMs: now };
    this.#notify('started', container);
    const exit = /^exit (\d+)$/.exec(container.config.command.at(-1) ?? '');
    if (exit !== null) this.exit(id, Number(exit[1]));
  }
  async stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void> {
    await this.#call('stopContainer', `${id} ${gracePeriodSeconds}`);
    this.#kill(id);
  }
  async removeContainer(id: ContainerId): Promise<void> {
    await this.#call('removeContainer', id);
    this.host.containers.delete(id);
  }
  containerStatus(id: ContainerId): Promise<ContainerStatus> {
    const container = this.host.containers.get(id);
    return container === undefined ? Promise.reject(notFound('container', id)) : Promise.resolve(container.status);
  }
  listContainers(
    filter: { readonly podUid?: string; readonly sandboxId?: SandboxId } = {},
  ): Promise<readonly ContainerStatus[]> {
    const all = [...this.host.containers.values()].map(({ status }) => status);
    return Promise.resolve(
      all.filter(
        (status) =>
          (filter.sandboxId === undefined || status.sandboxId === filter.sandboxId) &&
          (filter.podUid === undefined || this.host.sandboxes.get(status.sandboxId)?.pod.uid === filter.podUid),
      ),
    );
  }
  async updateResources(id: ContainerId): Promise<void> {
    await this.#call('updateResources', id);
  }
  reopenLog(): Promise<void> {
    return Promise.resolve();
  }
  checkpoint(): Promise<void> {
    return Promise.reject(new RuntimeError('unsupported', 'checkpoints are not supported by the fake runtime'));
  }

  execSync(
    id: ContainerId,
    command: readonly string[],
    options: Parameters<Runtime['execSync']>[2],
  ): ReturnType<Runtime['execSync']> {
    this.#container(id);
    if (command[0] === 'sleep')
      return Promise.reject(
        new RuntimeError(
          'timeout',
          `command ${JSON.stringify(command.join(' '))} timed out after ${options.timeoutMs} ms`,
        ),
      );
    const output = { stdout: '', stderr: '' };
    let exitCode = 0;
    for (const part of (command.at(-1) ?? '').split(';').map((text) => text.trim())) {
      const [word, ...rest] = part.split(' ');
      if (word === 'echo')
        output[rest.at(-1) === '>&2' ? 'stderr' : 'stdout'] += `${rest.filter((text) => text !== '>&2').join(' ')}\n`;
      if (word === 'exit') exitCode = Number(rest[0] ?? 0);
      if (word === 'false') exitCode = 1;
    }
    const [stdout, stderr] = [Buffer.from(output.stdout), Buffer.from(output.stderr)];
    return Promise.resolve({ exitCode, stdout, stderr, outputBytes: stdout.length + stderr.length });
  }
  async exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number> {
    this.#container(id);
    if (command[0] === 'cat' && io.stdin !== undefined) for await (const chunk of io.stdin) io.stdout?.write(chunk);
    return 0;
  }
  attach(id: ContainerId): Promise<void> {
    this.#container(id);
    return Promise.resolve();
  }
  portForward(): Promise<NodeJS.ReadWriteStream> {
    return Promise.reject(new RuntimeError('unsupported', 'the fake runtime has no network'));
  }

  listImages(): Promise<readonly ImageInfo[]> {
    return Promise.resolve([...this.host.images.values()]);
  }
  imageStatus(reference: string): Promise<ImageInfo | undefined> {
    return Promise.resolve(
      this.host.images.get(reference) ?? [...this.host.images.values()].find((image) => image.id === reference),
    );
  }
  async pullImage(reference: string): Promise<string> {
    await this.#call('pullImage', reference);
    return addImage(this.host, reference).id;
  }
  async removeImage(reference: string): Promise<void> {
    await this.#call('removeImage', reference);
    for (const [key, image] of this.host.images)
      if (key === reference || image.id === reference) this.host.images.delete(key);
  }
  loadImages(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }
  imageFilesystems(): ReturnType<Runtime['imageFilesystems']> {
    return Promise.resolve({ images: [], containers: [] });
  }
  containerStats(): ReturnType<Runtime['containerStats']> {
    return Promise.resolve([]);
  }
  async events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void> {
    this.host.listeners.add(onEvent);
    onDisconnect();
    await new Promise<void>((resolve) =>
      signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true }),
    );
    this.host.listeners.delete(onEvent);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }

  #container(id: string): FakeContainer {
    const container = this.host.containers.get(id);
    if (container === undefined) throw notFound('container', id);
    return container;
  }
  #kill(id: string): void {
    if (this.host.containers.get(id)?.status.state === 'running') this.exit(id, 137);
  }
  #notify(type: 'created' | 'started' | 'stopped', { status }: FakeContainer): void {
    this.#event({ type, podUid: status.labels['io.kubernetes.pod.uid'] ?? '', containerId: status.id });
  }
  #event(event: RuntimeEvent): void {
    for (const listener of this.host.listeners) listener(event);
  }
  /** Records a call, and yields once, so that callers see no effect before they await it. Throws what `failNext` set. */
  async #call(name: string, about: string): Promise<void> {
    this.calls.push(`${name} ${about}`);
    await Promise.resolve();
    const failure = this.#failures.get(name);
    if (failure === undefined) return;
    this.#failures.delete(name);
    throw failure;
  }
}
