/**
 * Creates nodes of a cluster on one host. Each node has a network namespace behind a bridge, a container runtime, and an agent
 * that joined with `orchlet join`. The test removes them, also after a failure.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { closeSync, copyFileSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { imageArchive } from './container-runtimes.ts';
import { unmountBelow } from '../mounts.ts';
import { run } from './running-cluster.ts';
import { namespacePrefix } from './test-namespaces.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ROOT = join(import.meta.dirname, '../..');
const ORCHLET = join(ROOT, 'bin/orchlet');
const RUNTIMES = {
  docker: join(ROOT, 'scripts/docker-private'),
  containerd: join(ROOT, 'scripts/containerd-private'),
} as const;

const has = (command: string): boolean => spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;

const BRIDGE = namespacePrefix('n');

function whyNoNodes(): string | false {
  if (imageArchive === undefined) return 'ORCHLET_TEST_IMAGES is not set: scripts/test sets it';
  const missing = ['ip', 'nsenter', 'dockerd', 'iptables'].filter((name) => !has(name));
  if (missing.length > 0) return `this host lacks ${missing.join(', ')}`;
  const probe = `${BRIDGE}p`;
  const made = spawnSync('ip', ['netns', 'add', probe], { encoding: 'utf8' });
  if (made.status !== 0) return `this host makes no network namespaces: ${made.stderr.trim()}`;
  spawnSync('ip', ['netns', 'delete', probe]);
  return false;
}

/** The reason why nodes in namespaces are not possible here, or `false`. */
export const skipWithoutNamespaces: string | false = whyNoNodes();

/** A subnet that no other run of this test uses at the same time. */
const NET = `10.197.${process.pid % 250}`;
const NET6 = `fd97:${(process.pid % 65_536).toString(16)}:`;
/** The namespace of the switch between the nodes, whose packets the rules of this host do not see. */
const SWITCH = `${BRIDGE}switch`;

export interface NodeSettings {
  readonly runtime: keyof typeof RUNTIMES;
  /** Pods and services have addresses of both families, and the agents find the addresses of their nodes themselves. */
  readonly isDualStack: boolean;
}

const WITH_DOCKER: NodeSettings = { runtime: 'docker', isDualStack: false };
const RANGES = ['--cluster-cidr', '10.196.0.0/16'];
const DUAL_RANGES = [
  ...['--cluster-cidr', '10.196.0.0/16,fd96::/48', '--service-cluster-ip-range', '10.195.0.0/16,fd95::/112'],
];

/** A node in its network namespace, with its runtime and its agent. */
export class NamespacedNode {
  readonly name: string;
  address: string;
  readonly address6: string;
  readonly directory: string;
  readonly namespace: string;
  readonly #port: string;
  readonly #settings: NodeSettings;
  #agent: ChildProcess | undefined;

  constructor(name: string, number: number, parent: string, settings: NodeSettings) {
    this.name = name;
    this.#settings = settings;
    this.address = `${NET}.${10 + number}`;
    this.address6 = `${NET6}:${10 + number}`;
    // The path is short, because it contains sockets.
    this.directory = join(parent, name);
    this.namespace = `${BRIDGE}${name}`;
    this.#port = `${BRIDGE}${number}`.slice(0, 15);
    mkdirSync(join(this.directory, 'images'), { recursive: true });
  }

  /** Creates the namespace and its virtual cable. */
  connect(): void {
    const inside = ['-n', this.namespace];
    run('ip', ['netns', 'add', this.namespace]);
    const peer = ['peer', 'name', 'eth0', 'netns', this.namespace];
    run('ip', ['-n', SWITCH, 'link', 'add', this.#port, 'type', 'veth', ...peer]);
    run('ip', ['-n', SWITCH, 'link', 'set', this.#port, 'master', 'switch', 'up']);
    run('ip', [...inside, 'link', 'set', 'lo', 'up']);
    this.plugIn();
  }

  /** Gives the node its addresses and its default routes. */
  plugIn(): void {
    const inside = ['-n', this.namespace];
    run('ip', [...inside, 'address', 'add', `${this.address}/24`, 'dev', 'eth0']);
    run('ip', [...inside, 'address', 'add', `${this.address6}/64`, 'dev', 'eth0', 'nodad']);
    run('ip', [...inside, 'link', 'set', 'eth0', 'up']);
    run('ip', [...inside, 'route', 'add', 'default', 'via', `${NET}.1`]);
    run('ip', [...inside, '-6', 'route', 'add', 'default', 'via', `${NET6}:1`]);
  }

  /** Takes the addresses and routes of the node away, as on a host whose uplink is not there yet. */
  unplug(): void {
    run('ip', ['-n', this.namespace, 'link', 'set', 'eth0', 'down']);
    run('ip', ['-n', this.namespace, 'address', 'flush', 'dev', 'eth0']);
  }

  /** Gives the node another address in place of its IPv4 address, and its default route again. */
  move(number: number): void {
    const inside = ['-n', this.namespace];
    run('ip', [...inside, 'address', 'del', `${this.address}/24`, 'dev', 'eth0']);
    this.address = `${NET}.${number}`;
    run('ip', [...inside, 'address', 'add', `${this.address}/24`, 'dev', 'eth0']);
    run('ip', [...inside, 'route', 'replace', 'default', 'via', `${NET}.1`]);
  }

  /** Disconnects the node from the network; `false` connects it again. */
  cut(isCut: boolean): void {
    run('ip', ['-n', SWITCH, 'link', 'set', this.#port, isCut ? 'down' : 'up']);
  }

  #within(program: string, args: readonly string[]): [string, string[]] {
    return ['nsenter', [`--net=/run/netns/${this.namespace}`, program, ...args]];
  }

  async startRuntime(): Promise<void> {
    const { runtime } = this.#settings;
    const images = runtime === 'containerd' ? [imageArchive ?? ''] : [];
    const [program, args] = this.#within(RUNTIMES[runtime], ['start', join(this.directory, 'd'), ...images]);
    // The agents configure the network of pods.
    const env = { ...process.env, CONTAINERD_SUBNET: 'none' };
    await finished(spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], env }), `the runtime of ${this.name}`);
  }

  /** Joins like a user, with the command line that the control plane printed. */
  async join(line: string): Promise<void> {
    const [, ...words] = line.trim().split(/\s+/);
    const more = ['--node-name', this.name, '--config-dir', this.directory, '--start=false'];
    const [program, args] = this.#within(ORCHLET, [...words, ...more]);
    await finished(spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] }), `orchlet join on ${this.name}`);
    copyFileSync(imageArchive ?? '', join(this.directory, 'images', 'images.tar'));
    const config = { apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration' };
    // The lease is renewed each second.
    writeFileSync(join(this.directory, 'config.json'), JSON.stringify({ ...config, nodeLeaseDurationSeconds: 4 }));
  }

  /** Starts the agent of the node. `more` are further flags. `around` is a command that runs the agent. */
  startAgent(more: readonly string[] = [], around: readonly string[] = []): void {
    const { directory } = this;
    const joined = /^ORCHLET_JOIN_FLAGS=(.*)$/m.exec(readFileSync(join(directory, 'join.env'), 'utf8'))?.[1] ?? '';
    const [wrapper = ORCHLET, ...wrapped] = [...around, ORCHLET];
    const [program, args] = this.#within(wrapper, [
      ...wrapped,
      'agent',
      ...joined.split(' '),
      ...['--bootstrap-kubeconfig', join(directory, 'bootstrap.kubeconfig')],
      ...['--kubeconfig', join(directory, 'agent.kubeconfig')],
      ...['--config', join(directory, 'config.json')],
      ...['--root-dir', join(directory, 'a'), '--images-dir', join(directory, 'images')],
      ...['--pod-logs-dir', join(directory, 'logs')],
      ...(this.#settings.isDualStack ? [] : ['--node-ip', this.address]),
      // Docker stores its data in the test's directory, on the host's disk, which may be full for other reasons.
      ...['--eviction-hard', 'nodefs.available<1%,imagefs.available<1%', '--cgroup-root', `/${this.namespace}`],
      ...(this.#settings.runtime === 'docker'
        ? ['--container-runtime', 'docker', '--docker-endpoint', `unix://${this.socket}`]
        : ['--container-runtime-endpoint', `unix://${this.socket}`]),
      ...['--fail-swap-on=false', ...more],
    ]);
    const log = openSync(join(directory, 'agent.log'), 'a');
    this.#agent = spawn(program, args, { stdio: ['ignore', log, log] });
    closeSync(log);
  }

  /** The socket of the container runtime. */
  get socket(): string {
    return join(this.directory, 'd', `${this.#settings.runtime}.sock`);
  }

  /** Returns the output of Docker on this node. */
  docker(args: readonly string[]): string {
    return run('docker', ['-H', `unix://${this.socket}`, ...args]);
  }

  /** Returns the process of a running container, by its id in the pod's status (`containerd://…`). */
  processOf(containerId: string): string {
    const id = containerId.replace(/^.*:\/\//, '');
    if (this.#settings.runtime === 'docker') return this.docker(['inspect', '-f', '{{.State.Pid}}', id]).trim();
    return new RegExp(`^${id}\\s+(\\d+)`, 'm').exec(this.#tasks())?.[1] ?? '';
  }

  /** Returns the processes of all running containers, those of sandboxes included. */
  runningProcesses(): readonly string[] {
    if (this.#settings.runtime === 'docker')
      return this.docker(['ps', '-q'])
        .split('\n')
        .filter((id) => id !== '')
        .map((id) => this.processOf(id));
    return [...this.#tasks().matchAll(/^\S+\s+(\d+)\s+RUNNING/gm)].map(([, pid = '']) => pid);
  }

  #tasks(): string {
    return run('ctr', ['--address', this.socket, '--namespace', 'k8s.io', 'tasks', 'ls']);
  }

  /** Returns the output of a command in the node's network namespace. */
  exec(program: string, args: readonly string[]): string {
    const [command, all] = this.#within(program, args);
    return run(command, all);
  }

  /** Returns the last 15 lines of the agent's log. */
  logTail(): string {
    try {
      return readFileSync(join(this.directory, 'agent.log'), 'utf8').split('\n').slice(-15).join('\n');
    } catch {
      return 'no log';
    }
  }

  async stopAgent(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#agent;
    this.#agent = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.stopAgent('SIGKILL');
    // containerd leaves the namespaces of pods that it did not stop itself.
    const links = spawnSync('ip', ['-n', this.namespace, 'link', 'show', 'type', 'veth'], { encoding: 'utf8' }).stdout;
    const podNamespaces = [...links.matchAll(/link-netns (cni-\S+)/g)].map(([, found = '']) => found);
    const [program, args] = this.#within(RUNTIMES[this.#settings.runtime], ['stop', join(this.directory, 'd')]);
    await new Promise<void>((resolve) => spawn(program, args, { stdio: 'ignore' }).once('exit', () => resolve()));
    // A program that serves a link in place of the kernel ends with the link.
    spawnSync('ip', ['-n', this.namespace, 'link', 'delete', 'orchlet.wg']);
    for (const name of [...podNamespaces, this.namespace]) spawnSync('ip', ['netns', 'delete', name]);
    removeCgroups(this.namespace);
  }
}

/** Removes the deepest cgroups first. Those in use stay. */
function removeCgroups(name: string): void {
  const script = `find /sys/fs/cgroup -maxdepth 8 -depth -type d -path '*/${name}*' -exec rmdir {} + 2>/dev/null`;
  spawnSync('sh', ['-c', script]);
}

async function finished(child: ChildProcess, what: string): Promise<void> {
  let output = '';
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once('exit', resolve));
  if (code !== 0) throw new Error(`${what} failed: ${output}`);
}

/** The bridge of a cluster on one host, and the nodes behind it. */
export class NodesOfOneHost {
  /** The address of this host on the network of the nodes. */
  readonly outside = `${NET}.1`;
  readonly plane: ControlPlaneProcess;
  readonly nodes: readonly NamespacedNode[];
  readonly #directory: string;

  private constructor(plane: ControlPlaneProcess, nodes: readonly NamespacedNode[], directory: string) {
    this.plane = plane;
    this.nodes = nodes;
    this.#directory = directory;
  }

  /**
   * Starts the control plane, the namespaces and the runtimes. No node has joined yet. `clean` receives the functions that
   * remove everything.
   */
  static async start(
    names: readonly string[],
    planeFlags: readonly string[],
    settings: NodeSettings = WITH_DOCKER,
  ): Promise<NodesOfOneHost> {
    const directory = temporaryFolder('orcn');
    const nodes = names.map((name, number) => new NamespacedNode(name, number, directory, settings));
    let plane: ControlPlaneProcess | undefined;
    try {
      run('ip', ['netns', 'add', SWITCH]);
      run('ip', ['-n', SWITCH, 'link', 'add', 'switch', 'type', 'bridge']);
      run('ip', ['-n', SWITCH, 'link', 'set', 'switch', 'up']);
      run('ip', ['link', 'add', BRIDGE, 'type', 'veth', 'peer', 'name', 'host', 'netns', SWITCH]);
      run('ip', ['-n', SWITCH, 'link', 'set', 'host', 'master', 'switch', 'up']);
      run('ip', ['address', 'add', `${NET}.1/24`, 'dev', BRIDGE]);
      run('ip', ['address', 'add', `${NET6}:1/64`, 'dev', BRIDGE, 'nodad']);
      run('ip', ['link', 'set', BRIDGE, 'up']);
      for (const node of nodes) node.connect();
      const started = ControlPlaneProcess.start([
        ...['--bind-address', '0.0.0.0', '--advertise-address', `${NET}.1`],
        ...(settings.isDualStack ? DUAL_RANGES : RANGES),
        ...planeFlags,
      ]);
      [plane] = await Promise.all([started, ...nodes.map((node) => node.startRuntime())]);
      return new NodesOfOneHost(plane, nodes, directory);
    } catch (error) {
      await removeAll(plane, nodes, directory);
      throw error;
    }
  }

  remove(): Promise<void> {
    return removeAll(this.plane, this.nodes, this.#directory);
  }
}

async function removeAll(
  plane: ControlPlaneProcess | undefined,
  nodes: readonly NamespacedNode[],
  directory: string,
): Promise<void> {
  await Promise.all(nodes.map((node) => node.remove()));
  await plane?.remove();
  spawnSync('ip', ['link', 'delete', BRIDGE]);
  spawnSync('ip', ['netns', 'delete', SWITCH]);
  unmountBelow(directory);
  rmSync(directory, { recursive: true, force: true });
}
