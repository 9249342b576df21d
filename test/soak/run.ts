/** Runs a soak test: clients work while faults happen one after the other, and then everything that they saw is checked. */
import { keepAlive, systemClock } from '../../api/machinery/clock.ts';
import { until } from '../until.ts';
import { count, list, type Recording, Watcher, type WatchManner, Writer } from './clients.ts';
import { violations } from './history.ts';
import { SoakPlane } from './plane.ts';
import { Random } from './random.ts';

export interface SoakOptions {
  readonly seconds: number;
  readonly seed: number;
  /** The faults to use; all if it is empty. */
  readonly only: readonly string[];
  readonly diskMib?: number | undefined;
  readonly onProgress?: (line: string) => void;
}

export interface SoakReport {
  readonly violations: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
  /** What the clients saw, to be judged again. The soak of the agent has none. */
  readonly recording?: Recording;
}

const WRITERS = 6;
const MANNERS: readonly WatchManner[] = ['steady', 'slow', 'reopening', 'steady'];
const END = 'soak-end';

interface Scene {
  readonly plane: SoakPlane;
  readonly random: Random;
  readonly recording: Recording;
  readonly problems: string[];
}

type Fault = (scene: Scene) => Promise<void>;

const sleep = (ms: number): Promise<void> => systemClock.sleep(ms);
const statusOf = async ({ plane }: Scene, path: string): Promise<number> =>
  (await plane.api.call('GET', path, undefined, 5000)).status;

/** Room for the history of 6 s that the program keeps, for what compaction has not removed yet, and for a write-ahead log. */
const STORAGE_BYTES = 24 * 1024 * 1024;

/** Fills the disk for a while. Reads succeed and `/livez` is ok meanwhile. Afterwards the same process accepts writes again. */
async function withoutRoom(scene: Scene, take: () => void, give: () => void): Promise<void> {
  const { plane, random, recording, problems } = scene;
  const { pid } = plane;
  const refusedBefore = recording.counts.get('writes that found no room') ?? 0;
  take();
  try {
    await sleep(random.between(1500, 6000));
    const refused = (recording.counts.get('writes that found no room') ?? 0) - refusedBefore;
    const [live, ready] = [await statusOf(scene, '/livez'), await statusOf(scene, '/readyz')];
    if (live !== 200) problems.push(`/livez gives ${live} on a full disk`);
    if (refused > 20 && ready !== 500 && !(await isWriting(scene)))
      problems.push(`/readyz gives ${ready} on a full disk, after ${refused} refusals, and nothing is written`);
  } finally {
    give();
  }
  await plane.ready();
  if (plane.pid !== pid) problems.push('the process was restarted by a full disk');
}

/** Whether writes succeed. They also do on a full disk, if compaction made room in the database. */
async function isWriting({ recording }: Scene): Promise<boolean> {
  const before = recording.counts.get('writes done') ?? 0;
  await sleep(2000);
  return (recording.counts.get('writes done') ?? 0) > before;
}

/** The faults by name. Each resolves when it is over. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  /** Kills the control plane, and often again while it starts or recovers. */
  async kill({ plane, random, recording }) {
    do {
      if (plane.kill()) count(recording, 'kills');
      await sleep(random.between(100, 1500));
    } while (random.next() < 0.6);
  },
  async 'disk-full'(scene) {
    const { plane } = scene;
    if (!plane.hasOwnDisk) return;
    await withoutRoom(
      scene,
      () => plane.fillDisk(),
      () => plane.emptyDisk(),
    );
  },
  /** A process starts on a full disk and serves reads. */
  async 'kill-full'({ plane, random, problems }) {
    if (!plane.hasOwnDisk) return;
    plane.fillDisk();
    try {
      await sleep(random.between(0, 3000));
      plane.kill();
      const answers = async (): Promise<boolean> =>
        (await plane.api.call('GET', '/livez', undefined, 5000)).status === 200;
      await sleep(200);
      await until('a live control plane on a full disk', answers);
    } catch (error) {
      problems.push(String(error));
    } finally {
      plane.emptyDisk();
    }
  },
  async terminate(scene) {
    const { plane } = scene;
    const { pid } = plane;
    plane.terminate();
    await until('the exit of the process', () => plane.pid !== pid);
  },
  async 'no-room'(scene) {
    const { plane, random } = scene;
    await withoutRoom(
      scene,
      () => plane.fault(random.pick(['noRoom', 'shortWrite', 'quota'])),
      () => plane.fault('none'),
    );
  },
  async 'fsync-fails'(scene) {
    await restarts(scene, () => scene.plane.fault('fsyncFails'));
  },
  async 'write-fails'(scene) {
    await restarts(scene, () => scene.plane.fault('writeFails'));
  },
  async 'thread-dies'(scene) {
    await restarts(scene, () => scene.plane.killStorageThread());
  },
  async 'fsync-hangs'(scene) {
    scene.plane.fault('fsyncHangs');
    await sleep(4000);
    const live = await statusOf(scene, '/livez');
    if (live !== 500) scene.problems.push(`/livez gives ${live} while fsync hangs`);
    await sleep(7000);
  },
  async 'clock-jumps'({ plane, random }) {
    plane.clockAhead(random.between(-240, 6 * 3600));
    await sleep(random.between(500, 2000));
  },
};

/**
 * Causes a failure of the storage and waits for a restart. The process exits with the code of a failed storage, and is
 * restarted.
 */
async function restarts({ plane, problems }: Scene, fail: () => void): Promise<void> {
  const { pid, storageFailures } = plane;
  fail();
  try {
    await until('the exit of the process', () => plane.pid !== pid);
    if (plane.storageFailures === storageFailures) problems.push('the process exited with another code');
  } catch (error) {
    problems.push(`the process does not exit: ${String(error)}`);
  }
}

/** Runs the test for the given time, and resolves to what it found. `only` names the faults that happen. */
export async function soak({
  seconds,
  seed,
  only,
  diskMib,
  onProgress = () => undefined,
}: SoakOptions): Promise<SoakReport> {
  const recording: Recording = { operations: [], segments: [], counts: new Map() };
  const random = new Random(seed);
  const alive = keepAlive();
  const plane = await SoakPlane.start(diskMib);
  const scene: Scene = { plane, random, recording, problems: [] };
  const writing = new AbortController();
  const watching = new AbortController();
  const seen = new Map<string, number>();
  const writers = Array.from(
    { length: WRITERS },
    (_, at) => new Writer(`w${at}`, plane.api, new Random(seed + 100 + at), recording, seen),
  );
  const watchers = MANNERS.map(
    (manner, at) => new Watcher(`watch ${at}`, manner, plane.api, new Random(seed + 200 + at), recording),
  );
  const writes = Promise.all(writers.map((writer) => writer.run(writing.signal)));
  const watches = Promise.all(watchers.map((watcher) => watcher.run(watching.signal)));
  try {
    await list(plane.api, recording, 0);
    await disturb(scene, seconds, only, onProgress);
    writing.abort();
    await writes;
    await conclude(scene, new Writer('end', plane.api, random, recording, seen), watchers);
  } catch (error) {
    scene.problems.push(`${String(error)}\n${plane.log.slice(-3000)}`);
  } finally {
    writing.abort();
    watching.abort();
    await Promise.all([writes, watches]);
    await plane.remove();
    alive.cancel();
  }
  recording.counts.set('starts', plane.starts);
  recording.counts.set('exits by a failed storage', plane.storageFailures);
  const found = [...plane.crashes, ...scene.problems, ...violations(recording.operations, recording.segments)];
  return { violations: found, counts: recording.counts, recording };
}

async function disturb(
  scene: Scene,
  seconds: number,
  only: readonly string[],
  onProgress: (line: string) => void,
): Promise<void> {
  const names = only.length === 0 ? Object.keys(FAULTS) : only;
  const endMs = performance.now() + seconds * 1000;
  // Each fault happens once before any is repeated, in an order that depends on the seed.
  let left: string[] = [];
  await sleep(1000);
  while (performance.now() < endMs) {
    if (left.length === 0) left = [...names];
    const name = scene.random.pick(left);
    left = left.filter((one) => one !== name);
    const fault = FAULTS[name];
    if (fault === undefined) throw new Error(`there is no fault ${name}: ${Object.keys(FAULTS).join(', ')}`);
    onProgress(name);
    await fault(scene);
    count(scene.recording, `fault ${name}`);
    await scene.plane.ready();
    const { storageBytes } = scene.plane;
    if (storageBytes > STORAGE_BYTES)
      throw new Error(`the storage has ${storageBytes} bytes: its history is not bounded`);
    await sleep(scene.random.between(200, 2500));
  }
}

/** Makes a last write that every watch has to receive. */
async function conclude(scene: Scene, writer: Writer, watchers: readonly Watcher[]): Promise<void> {
  await scene.plane.ready();
  await until('the last write', () => writer.create(END));
  for (const [at, watcher] of watchers.entries()) {
    await until(`the last write in watch ${at}`, () => watcher.hasSeen(END));
  }
  await list(scene.plane.api, scene.recording, 0);
  await list(scene.plane.api, scene.recording, 5);
}
