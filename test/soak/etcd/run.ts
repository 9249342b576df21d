/**
 * Runs a soak test of several control planes on one etcd cluster: clients send each request to any server while servers and
 * members of etcd are killed, paused and cut off, and then everything that they saw is checked over all servers. Nodes run pods
 * meanwhile: none may be started twice, and no address of a service be given twice.
 */
import { spawnSync } from 'node:child_process';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { EtcdProcess } from '../../etcd-process.ts';
import { until } from '../../until.ts';
import { count, list, type Recording, Watcher, type WatchManner, Writer } from '../clients.ts';
import { violations } from '../history.ts';
import { Random } from '../random.ts';
import type { SoakReport } from '../run.ts';
import { CLOCKS_SECONDS, ETCD_FAULTS, type Scene } from './faults.ts';
import { SoakNode } from './nodes.ts';
import { AnyServer, SoakServer } from './servers.ts';
import { Workload } from './workload.ts';

export interface EtcdSoakOptions {
  readonly seconds: number;
  readonly seed: number;
  /** The number of control planes. */
  readonly servers?: number;
  /** The number of members of etcd. */
  readonly members?: number;
  readonly only?: readonly string[];
  /** The program of the last server, which is of another release. */
  readonly other?: string | undefined;
  /** More flags of the control planes. */
  readonly more?: readonly string[];
  readonly onProgress?: (line: string) => void;
}

const WRITERS = 6;
const MANNERS: readonly WatchManner[] = ['steady', 'slow', 'reopening', 'steady'];
const END = 'soak-end';
const NODES = ['node-1', 'node-2', 'node-3'];
/** Leaders change more often than with the default times. */
const ELECTION = [
  '--leader-elect-lease-duration=4s',
  '--leader-elect-renew-deadline=3s',
  '--leader-elect-retry-period=500ms',
];

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

/** The settings in which servers of one cluster may differ, for example during an upgrade. */
const DIFFERENCES: readonly (readonly string[])[] = [
  [],
  ['--storage-media-type=application/json', '--runtime-config=api/beta=false'],
  ['--disable-admission-plugins=LimitRanger,ResourceQuota', '--lease-reuse-duration-seconds=5'],
];

/** Runs the test for the given time, and resolves to what it found. */
export async function soakEtcd(options: EtcdSoakOptions): Promise<SoakReport> {
  const { seconds, seed, servers: serverCount = 3, members: memberCount = 3, onProgress = () => undefined } = options;
  const recording: Recording = { operations: [], segments: [], counts: new Map() };
  const random = new Random(seed);
  const alive = keepAlive();
  const members = await EtcdProcess.cluster(memberCount, [], { hasPeerProxies: true });
  const hasClocks = spawnSync('cc', ['--version']).status === 0;
  const servers: SoakServer[] = [];
  const nodes: SoakNode[] = [];
  let workload: Workload | undefined;
  const problems: string[] = [];
  const writing = new AbortController();
  const watching = new AbortController();
  let running: Promise<unknown> = Promise.resolve();
  try {
    const etcd = members.map(({ url }) => url);
    for (let at = 0; at < serverCount; at += 1) {
      // Each one prefers another member.
      const own = [...etcd.slice(at % memberCount), ...etcd.slice(0, at % memberCount)];
      servers.push(
        await SoakServer.start({
          etcd: own,
          more: [...(DIFFERENCES[at % DIFFERENCES.length] ?? []), ...ELECTION, ...(options.more ?? [])],
          like: servers[0],
          program: at === serverCount - 1 ? options.other : undefined,
          clockAheadSeconds: hasClocks ? CLOCKS_SECONDS * ((at % 3) - 1) : undefined,
        }),
      );
    }
    const api = new AnyServer(servers, new Random(seed + 1));
    const seen = new Map<string, number>();
    const writers = Array.from(
      { length: WRITERS },
      (_, at) => new Writer(`w${at}`, api, new Random(seed + 100 + at), recording, seen),
    );
    const watchers = MANNERS.map(
      (manner, at) => new Watcher(`watch ${at}`, manner, api, new Random(seed + 200 + at), recording),
    );
    for (const name of NODES) nodes.push(await SoakNode.start(name, servers));
    workload = new Workload(api, nodes, new Random(seed + 300), recording);
    await workload.begin();
    await list(api, recording, 0);
    const users = workload.run(writing.signal);
    running = Promise.all([
      users,
      ...writers.map((writer) => writer.run(writing.signal)),
      ...watchers.map((watcher) => watcher.run(watching.signal)),
    ]);
    await disturb({ servers, members, random, recording, problems }, { seconds, only: options.only ?? [], onProgress });
    writing.abort();
    for (const server of servers) await server.ready();
    const last = new Writer('end', api, random, recording, seen);
    await until('the last write', () => last.create(END), 30_000);
    for (const [at, watcher] of watchers.entries())
      await until(`the last write in watch ${at}`, () => watcher.hasSeen(END), 90_000);
    for (const server of servers) await list(server.api, recording, 0);
    await list(api, recording, 5);
    await users;
    await workload.end();
  } catch (error) {
    problems.push(`${String(error)}\n${servers.map(({ log }) => log.slice(-2000)).join('\n')}`);
  } finally {
    writing.abort();
    watching.abort();
    await running;
    for (const node of nodes) await node.close();
    for (const server of servers) await server.remove();
    for (const member of members) await member.remove();
    alive.cancel();
  }
  recording.counts.set(
    'starts of servers',
    servers.reduce((sum, { starts }) => sum + starts, 0),
  );
  const crashes = servers.flatMap((server) => server.crashes);
  return {
    violations: [
      ...crashes,
      ...problems,
      ...(workload?.violations() ?? []),
      ...violations(recording.operations, recording.segments),
    ],
    counts: recording.counts,
    recording,
  };
}

interface Disturbance {
  readonly seconds: number;
  readonly only: readonly string[];
  readonly onProgress: (line: string) => void;
}

/** Causes faults until the time is over. Each happens once before any is repeated, in an order that depends on the seed. */
async function disturb(scene: Scene, { seconds, only, onProgress }: Disturbance): Promise<void> {
  const names = only.length === 0 ? Object.keys(ETCD_FAULTS) : only;
  const endMs = performance.now() + seconds * 1000;
  let left: string[] = [];
  await sleep(1000);
  while (performance.now() < endMs) {
    if (left.length === 0) left = [...names];
    const name = scene.random.pick(left);
    left = left.filter((one) => one !== name);
    const fault = ETCD_FAULTS[name];
    if (fault === undefined) throw new Error(`there is no fault ${name}: ${Object.keys(ETCD_FAULTS).join(', ')}`);
    onProgress(name);
    await fault(scene);
    count(scene.recording, `fault ${name}`);
    for (const server of scene.servers) await server.ready();
    await sleep(scene.random.between(200, 2000));
  }
}
