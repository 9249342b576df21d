/** Tests measurements of pods that take long, or do not end. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import type { GrowingUsage } from '../../../../../agent/resources/statistics/disk-usage.ts';
import { PodWalks } from '../../../../../agent/resources/statistics/pod-walks.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const podOf = (uid: string): Pod => ({ metadata: { name: uid, namespace: 'ns', uid }, spec: {} }) as unknown as Pod;

/** Pods whose name begins with `slow` are measured until the test ends it. */
function setUp() {
  const clock = new FakeClock();
  const ends = new Map<string, () => void>();
  const started: string[] = [];
  const failures: unknown[] = [];
  const walks = new PodWalks<number>({
    clock,
    measure: async ({ metadata: { uid } }: Pod, soFar: GrowingUsage) => {
      started.push(uid);
      if (uid === 'broken') throw new Error('no directory');
      if (!uid.startsWith('slow')) return 1;
      soFar.usedBytes = 5;
      await new Promise<void>((resolve) => ends.set(uid, resolve));
      return 7;
    },
    onError: (_pod, error) => void failures.push(error),
  });
  /** Measures pods and lets the time pass that this waits for. */
  const measured = async (uids: readonly string[], maxAgeMs = 10_000) => {
    let found: Awaited<ReturnType<typeof walks.measured>> | undefined;
    const done = walks.measured(uids.map(podOf), maxAgeMs).then((map) => (found = map));
    await clock.settle();
    for (let step = 0; step < 100 && found === undefined; step += 1) await clock.advance(1000);
    return await done;
  };
  return { clock, ends, started, failures, measured };
}

it('a pod whose files take long to measure holds up no other one, and is not measured twice at a time', async () => {
  const { clock, ends, started, measured } = setUp();
  const first = await measured(['slow', 'a', 'b']);
  assert.deepEqual(first.get('slow'), { whole: undefined, soFar: { usedBytes: 5, inodesUsed: 0 } });
  assert.deepEqual([first.get('a')?.whole, first.get('b')?.whole], [1, 1]);
  for (let round = 0; round < 3; round += 1) {
    await clock.advance(60_000);
    const before = clock.monotonic();
    await measured(['slow', 'a', 'b']);
    assert.equal(clock.monotonic(), before, 'nobody waits for it again');
  }
  assert.equal(started.filter((uid) => uid === 'slow').length, 1);
  assert.equal(started.filter((uid) => uid === 'a').length, 4);
  ends.get('slow')?.();
  await clock.settle();
  assert.deepEqual((await measured(['slow'])).get('slow'), { whole: 7, soFar: undefined });
});

it('many such pods are not waited for one after the other without end', async () => {
  const { clock, started, measured } = setUp();
  const slow = Array.from({ length: 50 }, (_, at) => `slow${at}`);
  const before = clock.monotonic();
  await measured([...slow, 'a']);
  assert.ok(clock.monotonic() - before <= 30_000);
  for (let round = 0; round < 20 && !started.includes('a'); round += 1) await measured([...slow, 'a']);
  assert.ok(started.includes('a'));
});

it('a measurement rests three times as long as it took', async () => {
  const { clock, ends, started, measured } = setUp();
  await measured(['slow']);
  await clock.advance(60_000);
  ends.get('slow')?.();
  await clock.settle();
  await clock.advance(60_000);
  await measured(['slow']);
  assert.equal(started.length, 1);
  await clock.advance(100_000);
  await measured(['slow']);
  assert.equal(started.length, 2);
});

it('a young measurement is one of a minute where it takes long', async () => {
  const { clock, ends, started, measured } = setUp();
  const slow = measured(['slow']);
  await clock.advance(1_000);
  ends.get('slow')?.();
  await slow;
  await clock.advance(20_000);
  await measured(['slow', 'fast']);
  assert.deepEqual(started, ['slow', 'fast']);
  await clock.advance(10_000);
  await measured(['slow', 'fast']);
  assert.deepEqual(started, ['slow', 'fast', 'slow', 'fast']);
});

it('a measurement that fails is reported, and tried again', async () => {
  const { clock, failures, started, measured } = setUp();
  assert.deepEqual((await measured(['broken'])).get('broken'), { whole: undefined, soFar: undefined });
  await clock.advance(60_000);
  await measured(['broken']);
  assert.deepEqual([failures.length, started.length], [2, 2]);
});
