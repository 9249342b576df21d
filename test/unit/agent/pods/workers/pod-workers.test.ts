import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import {
  type Ending,
  type PodSyncer,
  PodWorkers,
  type SyncOutcome,
} from '../../../../../agent/pods/workers/pod-workers.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { untilAborted } from '../../../../../api/machinery/clock.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function pod(uid: string, metadata: object = {}): Pod {
  return { metadata: { name: 'p', namespace: 'ns', uid, ...metadata }, spec: { containers: [] } } as unknown as Pod;
}
const fileSource = { annotations: { 'kubernetes.io/config.source': 'file' } };

class Syncer implements PodSyncer {
  readonly calls: string[] = [];
  outcome: SyncOutcome = { ended: false, errors: [], retryAtMs: undefined };
  hold: Promise<void> | undefined;
  running = 0;
  most = 0;

  async sync(of: Pod, signal: AbortSignal): Promise<SyncOutcome> {
    this.calls.push(`sync ${of.metadata.uid} ${of.metadata.resourceVersion ?? ''}`.trim());
    this.running++;
    this.most = Math.max(this.most, this.running);
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    if (this.hold !== undefined) await Promise.race([this.hold, aborted]);
    this.running--;
    return this.outcome;
  }
  async terminate(of: Pod, _ending: Ending, signal: AbortSignal): Promise<void> {
    const grace = of.metadata.deletionGracePeriodSeconds;
    this.calls.push(`terminate ${of.metadata.uid} ${grace ?? ''}`.trim());
    this.running++;
    this.most = Math.max(this.most, this.running);
    try {
      if (grace === 30) await untilAborted(new Promise<never>(() => undefined), signal);
    } finally {
      this.running--;
    }
  }
  cleanUp(of: Pod): Promise<void> {
    this.calls.push(`clean ${of.metadata.uid}`);
    return Promise.resolve();
  }
}

function setUp(random = 0): { clock: FakeClock; syncer: Syncer; workers: PodWorkers; stop: () => Promise<void> } {
  const clock = new FakeClock();
  const syncer = new Syncer();
  const workers = new PodWorkers({ clock, logger: silentLogger, resyncMs: 60_000, random: () => random });
  const abort = new AbortController();
  const running = workers.run(syncer, abort.signal);
  return {
    clock,
    syncer,
    workers,
    stop: () => {
      abort.abort();
      return running;
    },
  };
}

describe('pod workers', () => {
  it('start a pod that is back once its termination is complete, and no other desired pod', async () => {
    const { clock, syncer, workers } = setUp();
    assert.equal(workers.restartWhenFinished('a'), false);
    workers.update(pod('a', fileSource));
    workers.update(pod('b', fileSource));
    await clock.advance(1);
    assert.equal(workers.restartWhenFinished('a'), false, 'it has not left');
    for (const uid of ['a', 'b'])
      await workers.kill(pod(uid, fileSource), { gracePeriodSeconds: 0, status: undefined });
    await clock.advance(1);
    assert.equal(workers.restartWhenFinished('a'), true);
    assert.deepEqual(workers.forget(new Set(['a', 'b'])), ['a']);
    syncer.calls.length = 0;
    workers.update(pod('a', fileSource));
    workers.update(pod('b', fileSource));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync a']);
  });

  it('report a pod as terminated when its containers are gone, and its removal when its volumes are', async () => {
    const { clock, syncer, workers } = setUp();
    workers.update(pod('a'));
    await clock.advance(1);
    const cleaned = Promise.withResolvers<void>();
    syncer.cleanUp = () => cleaned.promise;
    let finished = false;
    await workers.kill(pod('a'), { gracePeriodSeconds: 1, status: undefined });
    const waiting = workers.finished('a').then(() => (finished = true));
    await clock.advance(1);
    assert.equal(finished, false);
    cleaned.resolve();
    await waiting;
    await workers.finished('a');
    await workers.finished('nobody');
  });

  it('run one sync of a pod at a time and skip what was overtaken', async () => {
    const { clock, syncer, workers } = setUp();
    const { promise, resolve } = Promise.withResolvers<void>();
    syncer.hold = promise;
    workers.update(pod('a', { resourceVersion: '1' }));
    await clock.advance(1);
    workers.update(pod('a', { resourceVersion: '2' }));
    workers.update(pod('a', { resourceVersion: '3' }));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync a 1']);
    resolve();
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync a 1', 'sync a 3']);
    assert.equal(syncer.most, 1);
  });
  it('wait with the next sync until what the last one did has settled, but not with a termination', async () => {
    const { clock, syncer, workers } = setUp();
    const settling = { ended: false, errors: [new Error('a hook failed')], retryAtMs: undefined };
    for (const uid of ['a', 'b']) {
      syncer.outcome = { ...settling, settlesAtMs: clock.now() + 1_000 };
      const { promise, resolve } = Promise.withResolvers<void>();
      syncer.hold = promise;
      workers.update(pod(uid));
      await clock.advance(1);
      workers.wake(uid);
      resolve();
      await clock.advance(1);
      workers.wake(uid);
      await clock.advance(900);
      assert.deepEqual(syncer.calls, [`sync ${uid}`], 'events during the sync and after it lead to no other one');
      syncer.outcome = settling;
      if (uid === 'b') break;
      await clock.advance(200);
      assert.deepEqual(syncer.calls.splice(0), ['sync a', 'sync a']);
    }
    workers.update(pod('b', { deletionTimestamp: 't' }));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync b', 'terminate b', 'clean b']);
  });
  it('wait no longer if the wall clock is set back meanwhile', async () => {
    const { clock, syncer, workers } = setUp();
    syncer.outcome = { ended: false, errors: [], retryAtMs: undefined, settlesAtMs: clock.now() + 1_000 };
    workers.update(pod('a'));
    await clock.advance(1);
    clock.set(-3_600_000);
    workers.wake('a');
    await clock.advance(1_000);
    assert.deepEqual(syncer.calls, ['sync a', 'sync a']);
  });
  it('end a pod whose containers have ended', async () => {
    const { clock, syncer, workers } = setUp();
    syncer.outcome = { ended: true, errors: [], retryAtMs: undefined };
    workers.update(pod('a'));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync a', 'terminate a', 'clean a']);
    assert.equal(workers.isFinished('a'), true);
    workers.update(pod('a'));
    await clock.advance(1);
    assert.equal(syncer.calls.length, 3);
  });
  it('cut a sync short when the pod is to end', async () => {
    const { clock, syncer, workers } = setUp();
    syncer.hold = new Promise(() => undefined);
    workers.update(pod('a'));
    await clock.advance(1);
    const killed = workers.kill(pod('a'), { gracePeriodSeconds: 0, status: undefined });
    await clock.advance(1);
    await killed;
    assert.deepEqual(syncer.calls, ['sync a', 'terminate a', 'clean a']);
  });
  it('terminate again with a shorter grace period, and close while containers still stop', async () => {
    const { clock, syncer, workers, stop } = setUp();
    const deletionTimestamp = '2030-01-01T00:00:00Z';
    for (const uid of ['a', 'b']) workers.update(pod(uid, { deletionTimestamp, deletionGracePeriodSeconds: 30 }));
    await clock.advance(1);
    workers.update(pod('a', { deletionTimestamp, deletionGracePeriodSeconds: 3 }));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['terminate a 30', 'terminate b 30', 'terminate a 3', 'clean a']);
    await stop();
  });
  it('never terminate a pod twice at once: the step with the longer grace has ended before the other begins', async () => {
    const { clock, syncer, workers } = setUp();
    const deletionTimestamp = '2030-01-01T00:00:00Z';
    workers.update(pod('a', { deletionTimestamp, deletionGracePeriodSeconds: 30 }));
    await clock.advance(1);
    workers.update(pod('a', { deletionTimestamp, deletionGracePeriodSeconds: 3 }));
    await clock.advance(1);
    assert.deepEqual([syncer.most, syncer.running, workers.isFinished('a')], [1, 0, true]);
  });
  it('terminate at once after a sync that an abort made fail', async () => {
    const { clock, syncer, workers } = setUp();
    syncer.sync = async (_of, signal) => {
      await untilAborted(new Promise<never>(() => undefined), signal);
      return syncer.outcome;
    };
    workers.update(pod('a'));
    await clock.advance(1);
    await workers.kill(pod('a'), { gracePeriodSeconds: 0, status: undefined });
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['terminate a', 'clean a']);
  });
  it('sync a pod regularly while one of its containers waits for its back-off', async () => {
    const { clock, syncer, workers } = setUp();
    const backOffUntilMs = clock.now() + 300_000;
    syncer.outcome = { ended: false, errors: [new Error('no')], retryAtMs: undefined, backOffUntilMs };
    workers.update(pod('a'));
    await clock.advance(59_999);
    assert.equal(syncer.calls.length, 1);
    await clock.advance(2);
    assert.equal(syncer.calls.length, 2);
  });
  it('terminate a deleted pod that they never saw before, without starting it', async () => {
    const { clock, syncer, workers } = setUp();
    workers.update(pod('a', { deletionTimestamp: '2026-01-02T03:04:05Z' }));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['terminate a', 'clean a']);
  });
  it('start a static pod only when the older one of its name has finished', async () => {
    const { clock, syncer, workers } = setUp();
    workers.update(pod('old', fileSource));
    await clock.advance(1);
    workers.update(pod('new', fileSource));
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync old']);
    void workers.kill(pod('old', fileSource), { gracePeriodSeconds: undefined, status: undefined });
    await clock.advance(1);
    assert.deepEqual(syncer.calls, ['sync old', 'terminate old', 'clean old', 'sync new']);
  });

  it('sync again after 10 s when something failed, and at the end of the back-off when something waits', async () => {
    const { clock, syncer, workers } = setUp();
    syncer.outcome = { ended: false, errors: [new Error('no')], retryAtMs: undefined };
    workers.update(pod('a'));
    await clock.advance(9_000);
    assert.equal(syncer.calls.length, 1);
    const backOffUntilMs = clock.now() + 5_000;
    syncer.outcome = { ended: false, errors: [new Error('no')], retryAtMs: undefined, backOffUntilMs };
    await clock.advance(1_001);
    assert.equal(syncer.calls.length, 2);
    syncer.outcome = { ended: false, errors: [], retryAtMs: undefined };
    await clock.advance(3_000);
    assert.equal(syncer.calls.length, 2);
    await clock.advance(1_000);
    assert.equal(syncer.calls.length, 3);
  });

  it('delay the sync after a back-off by up to half of it, like every other sync, but not one that is due at a time', async () => {
    const { clock, syncer, workers } = setUp(1);
    const from = clock.now();
    syncer.outcome = { ended: false, errors: [new Error('no')], retryAtMs: undefined, backOffUntilMs: from + 40_000 };
    workers.update(pod('a'));
    await clock.advance(59_999);
    assert.equal(syncer.calls.length, 1);
    syncer.outcome = {
      ended: false,
      errors: [new Error('no')],
      retryAtMs: from + 62_000,
      backOffUntilMs: from + 90_000,
    };
    await clock.advance(1);
    assert.equal(syncer.calls.length, 2);
    await clock.advance(2_000);
    assert.equal(syncer.calls.length, 3);
  });
});
