/** Tests the scheduling queue in virtual time. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../api/kinds/kinds.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { SchedulingQueue } from '../../../../controlplane/scheduler/scheduling-queue.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const podOf = (uid: string, priority = 0): PodInfo =>
  new PodInfo({ metadata: { uid, name: uid }, spec: { priority, containers: [] } } as unknown as Pod);

function open() {
  const clock = new FakeClock();
  const queue = new SchedulingQueue(clock, () => undefined);
  const popped = (): string[] => {
    const uids: string[] = [];
    for (let pod = queue.pop(); pod !== undefined; pod = queue.pop()) uids.push(pod.uid);
    return uids;
  };
  return { clock, queue, popped };
}

describe('the scheduling queue', () => {
  it('gives pods by priority, then by age', () => {
    const { queue, popped } = open();
    for (const [uid, priority] of [
      ['a', 0],
      ['b', 5],
      ['c', 0],
      ['d', 5],
    ] as const)
      queue.put(podOf(uid, priority), { mayHelp: true });
    assert.deepEqual(popped(), ['b', 'd', 'a', 'c']);
  });

  it('wakes a pod only for a change that may help it', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    queue.pop();
    queue.unschedulable('a', new Set(['NodeResourcesFit']));
    await clock.advance(20_000);
    for (const change of ['node-labels', 'node-taints', 'pod-assigned', 'volume'] as const) queue.changed(change);
    assert.deepEqual(popped(), []);
    queue.changed('pod-gone');
    assert.deepEqual(popped(), ['a']);
  });

  it('backs off twice as long after each failure, up to ten seconds', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    for (const seconds of [1, 2, 4, 8, 10, 10]) {
      assert.deepEqual(popped(), ['a']);
      queue.failed('a');
      await clock.advance(seconds * 1000 - 1);
      assert.deepEqual(popped(), []);
      await clock.advance(1);
    }
  });

  it('tries a pod before its backoff ends if a change may help and no other pod waits, but not many times', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    const tried = (): boolean => {
      queue.changed('volume');
      return queue.pop()?.uid === 'a';
    };
    queue.pop();
    for (const wanted of [true, true, true, false]) {
      queue.unschedulable('a', new Set(['VolumeBinding']));
      queue.put(podOf('other'), { mayHelp: true });
      assert.equal(tried(), false, 'active pods come first');
      queue.remove('other');
      assert.equal(tried(), wanted);
    }
    await clock.advance(8000);
    assert.deepEqual(popped(), ['a']);
  });

  it('does not prolong a backoff when the wall clock is set back', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    assert.deepEqual(popped(), ['a']);
    queue.failed('a');
    clock.set(-3_600_000);
    await clock.advance(2000);
    assert.deepEqual(popped(), ['a']);
  });

  it('tries a gated pod at once after a change for its filter, and counts no attempt', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    for (let i = 0; i < 20; i += 1) {
      assert.deepEqual(popped(), ['a']);
      queue.gated('a', 'DynamicResources');
      queue.changed('volume');
      assert.deepEqual(popped(), []);
      queue.changed('devices');
    }
    assert.deepEqual(popped(), ['a']);
    assert.equal(queue.triesOf('a').attempts, 1);
    queue.failed('a');
    await clock.advance(999);
    assert.deepEqual(popped(), [], 'an error is not tried early');
  });

  it('tries an unschedulable pod again after five minutes, whatever happened', async () => {
    const { clock, queue, popped } = open();
    queue.put(podOf('a'), { mayHelp: true });
    queue.pop();
    queue.unschedulable('a', new Set(['NodeName']));
    await clock.advance(299_000);
    assert.deepEqual(popped(), []);
    await clock.advance(1000);
    assert.deepEqual(popped(), ['a']);
  });

  it('forgets a pod that is removed, wherever it is', async () => {
    const { clock, queue, popped } = open();
    for (const uid of ['active', 'waiting', 'backing-off']) queue.put(podOf(uid), { mayHelp: true });
    for (let i = 0; i < 3; i += 1) queue.pop();
    queue.unschedulable('waiting', new Set(['NodeName']));
    queue.failed('backing-off');
    queue.put(podOf('new'), { mayHelp: true });
    for (const uid of ['active', 'waiting', 'backing-off', 'new']) queue.remove(uid);
    queue.changed('node-added');
    await clock.advance(600_000);
    assert.deepEqual([popped(), queue.size], [[], 0]);
  });
});
