/**
 * Runs a soak test of several control planes on one etcd cluster: clients send each request to any server while servers and
 * members of etcd are killed, paused and cut off, and then everything that they saw is checked over all servers.
 */
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { compactThrough } from '../../../controlplane/storage/etcd/etcd-compactor.ts';
import { EtcdProcess } from '../../etcd-process.ts';
import { until } from '../../until.ts';
import { count, list, type Recording, Watcher, type WatchManner, Writer } from '../clients.ts';
import { violations } from '../history.ts';
import { Random } from '../random.ts';
import type { SoakReport } from '../run.ts';
import { AnyServer, SoakServer } from './servers.ts';

export interface EtcdSoakOptions {
  readonly seconds: number;
  readonly seed: number;
  /** The number of control planes. */
  readonly servers?: number;
  /** The number of members of etcd. */
  readonly members?: number;
  readonly only?: readonly string[];
  /** More flags of the control planes. */
  readonly more?: readonly string[];
  readonly onProgress?: (line: string) => void;
}

const WRITERS = 6;
const MANNERS: readonly WatchManner[] = ['steady', 'slow', 'reopening', 'steady'];
const END = 'soak-end';

interface Scene {
  readonly servers: readonly SoakServer[];
  readonly members: readonly EtcdProcess[];
  readonly random: Random;
}

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

export const ETCD_FAULTS: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  async 'server-killed'({ servers, random }) {
    random.pick(servers).kill('SIGKILL');
    await sleep(random.between(0, 2000));
  },
  async 'server-terminated'({ servers, random }) {
    random.pick(servers).kill('SIGTERM');
    await sleep(random.between(0, 2000));
  },
  async 'member-killed'({ members, random }) {
    const member = random.pick(members);
    await member.stop('SIGKILL');
    await sleep(random.between(0, 4000));
    await member.launch();
  },
  async 'member-paused'({ members, random }) {
    const member = random.pick(members);
    await member.pause();
    await sleep(random.between(500, 6000));
    member.resume();
  },
  async 'server-cut-off'({ servers, random }) {
    const { proxies } = random.pick(servers);
    for (const proxy of proxies) proxy.cut();
    await sleep(random.between(200, 5000));
    for (const proxy of proxies) proxy.heal();
  },
  /** A server whose connections stay open, but carry nothing. */
  async 'server-held'({ servers, random }) {
    const { proxies } = random.pick(servers);
    for (const proxy of proxies) proxy.hold();
    await sleep(random.between(500, 8000));
    for (const proxy of proxies) proxy.heal();
  },
  async 'cut-off-and-compacted'({ servers, members, random }) {
    const { proxies } = random.pick(servers);
    for (const proxy of proxies) proxy.cut();
    await sleep(random.between(500, 2000));
    const etcd = await random.pick(members).connect();
    try {
      const { header } = await etcd.run((rpc, options) => rpc.call('range', { key: Buffer.from('x') }, options));
      await compactThrough(etcd, header?.revision ?? 1);
    } finally {
      etcd.close();
      for (const proxy of proxies) proxy.heal();
    }
  },
};

export async function soakEtcd(options: EtcdSoakOptions): Promise<SoakReport> {
  const { seconds, seed, servers: serverCount = 3, members: memberCount = 3, onProgress = () => undefined } = options;
  const recording: Recording = { operations: [], segments: [], counts: new Map() };
  const random = new Random(seed);
  const alive = keepAlive();
  const members = await EtcdProcess.cluster(memberCount);
  const servers: SoakServer[] = [];
  const problems: string[] = [];
  const writing = new AbortController();
  const watching = new AbortController();
  let running: Promise<unknown> = Promise.resolve();
  try {
    const etcd = members.map(({ url }) => url);
    for (let at = 0; at < serverCount; at += 1) {
      // Each one prefers another member.
      const own = [...etcd.slice(at % memberCount), ...etcd.slice(0, at % memberCount)];
      servers.push(await SoakServer.start({ etcd: own, more: options.more ?? [], like: servers[0] }));
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
    await list(api, recording, 0);
    running = Promise.all([
      ...writers.map((writer) => writer.run(writing.signal)),
      ...watchers.map((watcher) => watcher.run(watching.signal)),
    ]);
    await disturb({ servers, members, random }, { recording, seconds, only: options.only ?? [], onProgress });
    writing.abort();
    for (const server of servers) await server.ready();
    const last = new Writer('end', api, random, recording, seen);
    await until('the last write', () => last.create(END), 30_000);
    for (const [at, watcher] of watchers.entries())
      await until(`the last write in watch ${at}`, () => watcher.hasSeen(END), 90_000);
    for (const server of servers) await list(server.api, recording, 0);
    await list(api, recording, 5);
  } catch (error) {
    problems.push(`${String(error)}\n${servers.map(({ log }) => log.slice(-2000)).join('\n')}`);
  } finally {
    writing.abort();
    watching.abort();
    await running;
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
    violations: [...crashes, ...problems, ...violations(recording.operations, recording.segments)],
    counts: recording.counts,
    recording,
  };
}

interface Disturbance {
  readonly recording: Recording;
  readonly seconds: number;
  readonly only: readonly string[];
  readonly onProgress: (line: string) => void;
}

/** Each fault happens once before any is repeated, in an order that depends on the seed. */
async function disturb(scene: Scene, { recording, seconds, only, onProgress }: Disturbance): Promise<void> {
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
    count(recording, `fault ${name}`);
    for (const server of scene.servers) await server.ready();
    await sleep(scene.random.between(200, 2000));
  }
}
