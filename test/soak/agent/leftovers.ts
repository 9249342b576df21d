/** Finds what remains on a host of deleted pods: sandboxes, containers, directories, mounts, cgroups and network addresses. */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Runtime } from '../../../agent/runtime/runtime.ts';
import type { RuntimeName, SoakNode } from './node.ts';

export interface Expected {
  /** The uids of existing pods. All other pods must have left nothing. */
  readonly exist: ReadonlySet<string>;
  /** The uids of running pods. Each must have one sandbox. */
  readonly run: ReadonlySet<string>;
}

const DEEPEST_CGROUP = 4;

/** Resolves to a sentence for each leftover. */
export async function leftovers(node: SoakNode, runtime: Runtime, expected: Expected): Promise<string[]> {
  const { exist, run } = expected;
  const found: string[] = [];
  const sandboxes = await runtime.listSandboxes();
  for (const { id, pod, state } of sandboxes) {
    if (!exist.has(pod.uid)) found.push(`sandbox ${id} of pod ${pod.name} (${pod.uid}) is left, ${state}`);
    else if (state === 'ready' && !run.has(pod.uid)) found.push(`sandbox ${id} of pod ${pod.name} still runs`);
  }
  for (const uid of run) {
    const ready = sandboxes.filter(({ pod, state }) => pod.uid === uid && state === 'ready');
    if (ready.length !== 1) found.push(`pod ${uid} has ${ready.length} sandboxes that run`);
  }
  const known = new Map(sandboxes.map(({ id, pod }) => [id, pod.uid]));
  for (const { id, name, sandboxId, state } of await runtime.listContainers()) {
    if (!exist.has(known.get(sandboxId) ?? '')) found.push(`container ${id} (${name}) is left, ${state}`);
  }
  for (const entry of entriesOf(join(node.root, 'pods'))) if (!exist.has(entry)) found.push(`pods/${entry} is left`);
  for (const entry of entriesOf(node.logs)) {
    if (entry.includes('_') && !exist.has(entry.split('_')[2] ?? '')) found.push(`the logs ${entry} are left`);
  }
  found.push(...mountsLeft(node, run), ...cgroupsLeft(node, run));
  return found;
}

const entriesOf = (directory: string): string[] => (existsSync(directory) ? readdirSync(directory) : []);

function mountsLeft(node: SoakNode, run: ReadonlySet<string>): string[] {
  const points = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  return points
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path.startsWith(`${node.root}/pods/`))
    .filter((path) => !run.has(path.slice(node.root.length).split('/')[2] ?? ''))
    .map((path) => `${path} is still mounted`);
}

function cgroupsLeft(node: SoakNode, run: ReadonlySet<string>): string[] {
  const found = node
    .cgroupDirectories()
    .flatMap((directory) => globSync(`${'{,*/,*/*/}'.slice(0, 3 * DEEPEST_CGROUP)}*pod*`, { cwd: directory }))
    .filter((path) => /(^|\/|-)pod[0-9a-f]/.test(path))
    .map((path) => (path.split('/').findLast((part) => /(^|-)pod[0-9a-f]/.test(part)) ?? '').replace(/^.*pod/, ''))
    .filter((uid) => !run.has(uid.replace('.slice', '').replaceAll('_', '-')));
  return [...new Set(found)].map((uid) => `the cgroup of pod ${uid} is left`);
}

/** Returns a sentence if the runtime's network has allocated more addresses than there are running pods. */
export function addressesLeft(on: RuntimeName, socket: string, node: SoakNode, running: number): string[] {
  const given = on === 'docker' ? addressesOfDocker(socket, node) : addressesOfCni(dirname(socket));
  return given === undefined || given <= running ? [] : [`${given} addresses are taken by ${running} pods`];
}

/** Returns `undefined` if the runtime was not started by `scripts/containerd-private`. */
function addressesOfCni(directory: string): number | undefined {
  const files = globSync('ipam/*/[0-9]*.[0-9]*.[0-9]*.[0-9]*', { cwd: directory });
  return existsSync(join(directory, 'ipam')) ? files.length : undefined;
}

function addressesOfDocker(socket: string, node: SoakNode): number | undefined {
  const docker = (...args: readonly string[]): string =>
    spawnSync('docker', ['-H', `unix://${socket}`, ...args], { encoding: 'utf8' }).stdout ?? '';
  const networks = docker('network', 'ls', '-q', '--filter', 'driver=bridge').split('\n').filter(Boolean);
  if (networks.length === 0) return undefined;
  const text = docker('network', 'inspect', ...networks, '--format', '{{.Name}} {{len .Containers}}');
  const own = text.split('\n').find((line) => line.includes(node.name));
  return own === undefined ? undefined : Number(own.split(' ')[1]);
}
