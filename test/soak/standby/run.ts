/**
 * Runs a soak test of a first control plane and its standby: clients send each request to either of them while both, their
 * disks and the network between them fail and the standby is promoted, and then everything that the clients saw is checked.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { keepAlive, systemClock } from '../../../api/machinery/clock.ts';
import { until } from '../../until.ts';
import { count, list, type Recording, Watcher, type WatchManner, Writer } from '../clients.ts';
import { Random } from '../random.ts';
import type { SoakReport } from '../run.ts';
import { PAIR_FAULTS, type PairScene } from './faults.ts';
import { PairHost } from './host.ts';
import { lineageReport } from './lineage.ts';
import { PairNetwork } from './network.ts';
import { Pair, PairApi } from './pair.ts';

export interface PairSoakOptions {
  readonly seconds: number;
  readonly seed: number;
  /** The faults to use; all if it is empty. */
  readonly only: readonly string[];
  readonly onProgress?: (line: string) => void;
}

const WRITERS = 6;
const MANNERS: readonly WatchManner[] = ['steady', 'slow', 'reopening', 'steady'];
const END = 'soak-end';

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);

/** Runs the test for the given time, and resolves to what it found. */
export async function soakPair(options: PairSoakOptions): Promise<SoakReport> {
  const { seed } = options;
  const recording: Recording = { operations: [], segments: [], counts: new Map() };
  const problems: string[] = [];
  const alive = keepAlive();
  const scratch = mkdtempSync(join(tmpdir(), 'orchlet-soak-pair-'));
  const network = new PairNetwork();
  const hosts = [new PairHost(0, scratch), new PairHost(1, scratch)] as const;
  const pair = new Pair(hosts, network);
  const stop = { writing: new AbortController(), watching: new AbortController() };
  let running: Promise<unknown> = Promise.resolve();
  try {
    await startPair(pair);
    const api = new PairApi(pair, new Random(seed + 1));
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
      ...writers.map((writer) => writer.run(stop.writing.signal)),
      ...watchers.map((watcher) => watcher.run(stop.watching.signal)),
    ]);
    await disturb({ pair, random: new Random(seed), recording, problems }, options);
    stop.writing.abort();
    const last = new Writer('end', pair.first.api, new Random(seed + 2), recording, seen);
    await until('the last write', () => last.create(END));
    for (const [at, watcher] of watchers.entries())
      await until(`the last write in watch ${at}`, () => watcher.hasSeen(END));
    await list(api, recording, 0);
  } catch (error) {
    problems.push(`${String(error)}\n${hosts.map(({ log }) => log.slice(-2000)).join('\n')}`);
  } finally {
    stop.writing.abort();
    stop.watching.abort();
    await running;
    for (const host of hosts) await host.remove();
    network.remove();
    rmSync(scratch, { recursive: true, force: true });
    alive.cancel();
  }
  const { violations, lost, afterPromotion } = lineageReport(recording.operations, recording.segments, pair.terms);
  const { counts } = recording;
  counts.set('starts', hosts[0].starts + hosts[1].starts);
  counts.set('exits by a failed storage', hosts[0].storageFailures + hosts[1].storageFailures);
  counts.set('acknowledged writes that were lost before a promotion by force', lost);
  counts.set('writes that a former first acknowledged before it was stopped', afterPromotion);
  return { violations: [...hosts.flatMap(({ crashes }) => crashes), ...problems, ...violations], counts, recording };
}

async function startPair(pair: Pair): Promise<void> {
  const { first, second } = pair;
  pair.start(first, false);
  await first.ready();
  second.takeKeysOf(first);
  pair.start(second);
  await second.following();
}

/** Causes faults until the time is over. Each happens once before any is repeated, in an order that depends on the seed. */
async function disturb(
  scene: PairScene,
  { seconds, only, onProgress = () => undefined }: PairSoakOptions,
): Promise<void> {
  const { pair, random, recording } = scene;
  const names = only.length === 0 ? Object.keys(PAIR_FAULTS) : only;
  const endMs = performance.now() + seconds * 1000;
  let left: string[] = [];
  await sleep(1000);
  while (performance.now() < endMs) {
    if (left.length === 0) left = [...names];
    const name = random.pick(left);
    left = left.filter((one) => one !== name);
    const fault = PAIR_FAULTS[name];
    if (fault === undefined) throw new Error(`there is no fault ${name}: ${Object.keys(PAIR_FAULTS).join(', ')}`);
    onProgress(name);
    await fault(scene);
    count(recording, `fault ${name}`);
    await pair.settle();
    await list(pair.first.api, recording, 0);
    await sleep(random.between(200, 2000));
  }
}
