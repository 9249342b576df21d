/** Tests leader election by Leases, in virtual time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { fencedClient } from '../../../../api/client/fenced-client.ts';
import type { Lease } from '../../../../api/kinds/kinds.ts';
import {
  leaderElectionProblem,
  type LeaderElectionOptions,
  runLeaderElection,
  type Term,
} from '../../../../api/client/leader-election.ts';
import { configMaps, leases } from '../../../../api/client/resources.ts';
import { typedClient } from '../../../../api/client/typed-client.ts';
import { isStatusError, newServiceUnavailable } from '../../../../api/meta/status-error.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const TIMES = { leaseDurationMs: 15_000, renewDeadlineMs: 10_000, retryPeriodMs: 2000 };

/** Returns a clock whose wall time is wrong by a constant. */
function skewed(clock: FakeClock, byMs: number): Clock {
  return {
    now: () => clock.now() + byMs,
    monotonic: () => clock.monotonic(),
    after: (ms, callback) => clock.after(ms, callback),
    sleep: (ms, signal) => clock.sleep(ms, signal),
  };
}

interface Candidate {
  readonly identity: string;
  /** `lead`, `end` with the seconds since the start. */
  readonly history: string[];
  readonly events: string[];
  readonly client: FakeClient;
  term: Term | undefined;
  isCut: boolean;
  stop(): Promise<void>;
}

function world(clock: FakeClock) {
  const client = new FakeClient(clock);
  const beganMs = clock.now();
  const at = (): string => `${Math.round((clock.now() - beganMs) / 100) / 10}`;
  const start = (identity: string, changes: Partial<LeaderElectionOptions> = {}): Candidate => {
    const stop = new AbortController();
    const own: Candidate = {
      identity,
      history: [],
      events: [],
      client,
      term: undefined,
      isCut: false,
      async stop() {
        stop.abort(new Error('the test stops it'));
        await running;
      },
    };
    const reach = <T>(call: () => Promise<T>): Promise<T> => (own.isCut ? new Promise<T>(() => undefined) : call());
    const reached = typedClient({
      ...client,
      get: (...args) => reach(() => client.get(...args)),
      create: (...args) => reach(() => client.create(...args)),
      update: (...args) => reach(() => client.update(...args)),
    } as FakeClient);
    const running = runLeaderElection(
      {
        ...TIMES,
        client: reached,
        clock,
        logger: silentLogger,
        random: () => 0,
        recorder: { event: (_object, _type, _reason, message) => void own.events.push(message) },
        namespace: 'kube-system',
        name: 'kube-scheduler',
        identity,
        ...changes,
      },
      async (term) => {
        own.term = term;
        own.history.push(`lead ${at()}`);
        await new Promise<void>((resolve) => term.signal.addEventListener('abort', () => resolve(), { once: true }));
        own.history.push(`end ${at()}`);
      },
      stop.signal,
    );
    return own;
  };
  const lease = (): Lease['spec'] => client.peek(leases, 'kube-system', 'kube-scheduler')?.spec;
  return { client, start, lease };
}

test('the first candidate leads at once, and the record is that of client-go', async () => {
  const clock = new FakeClock();
  const { start, lease } = world(clock);
  const first = start('a');
  await clock.settle();
  assert.deepEqual(first.history, ['lead 0']);
  assert.deepEqual(first.events, ['a became leader']);
  assert.deepEqual(lease(), {
    holderIdentity: 'a',
    leaseDurationSeconds: 15,
    acquireTime: '2026-01-02T03:04:05.000000Z',
    renewTime: '2026-01-02T03:04:05.000000Z',
    leaseTransitions: 0,
  });
  await clock.advance(4000);
  assert.equal(lease()?.renewTime, '2026-01-02T03:04:09.000000Z');
  assert.equal(lease()?.acquireTime, '2026-01-02T03:04:05.000000Z');
  await first.stop();
});

test('a second candidate waits while the lease is renewed, and leads soon after a clean end of the first', async () => {
  const clock = new FakeClock();
  const { start, lease } = world(clock);
  const first = start('a');
  await clock.settle();
  const second = start('b');
  await clock.advance(60_000);
  assert.deepEqual(second.history, []);
  await first.stop();
  assert.equal(lease()?.holderIdentity, '');
  assert.deepEqual(first.events, ['a became leader', 'a stopped leading']);
  await clock.advance(2000);
  assert.equal(second.history.length, 1);
  assert.equal(lease()?.holderIdentity, 'b');
  assert.equal(lease()?.leaseTransitions, 1);
  await second.stop();
  assert.equal(clock.pendingTimers, 0, 'no timer is left');
});

test('a leader that the API server does not answer stops by the deadline, before another can lead', async () => {
  const clock = new FakeClock();
  const { start } = world(clock);
  const first = start('a');
  await clock.settle();
  const second = start('b');
  await clock.advance(20_000);
  first.isCut = true;
  await clock.advance(9900);
  assert.deepEqual(first.history, ['lead 0']);
  await clock.advance(200);
  assert.deepEqual(first.history, ['lead 0', 'end 30']);
  assert.equal(first.term?.lasts(), false);
  await clock.advance(4000);
  assert.deepEqual(second.history, []);
  await clock.advance(3000);
  assert.deepEqual(second.history, ['lead 35'], 'the lease ended 15 s after its last renewal');
  first.isCut = false;
  await clock.advance(20_000);
  assert.equal(first.history.length, 2, 'the first has become a candidate');
  await second.stop();
  await clock.advance(3000);
  assert.equal(first.history.length, 3, 'and leads again');
  await first.stop();
});

test('clocks that are minutes apart neither shorten nor prolong a lease', async () => {
  for (const skewMs of [-600_000, 600_000]) {
    const clock = new FakeClock();
    const { start } = world(clock);
    const first = start('a');
    await clock.settle();
    const second = start('b', { clock: skewed(clock, skewMs) });
    await clock.advance(60_000);
    assert.deepEqual(second.history, [], `skew ${skewMs}`);
    first.isCut = true;
    await clock.advance(20_000);
    assert.deepEqual(second.history, ['lead 75'], `skew ${skewMs}`);
    await Promise.all([first, second].map((one) => one.stop()));
  }
});

test('a leader whose lease another took stops at once', async () => {
  const clock = new FakeClock();
  const { start, client } = world(clock);
  const first = start('a');
  await clock.settle();
  const lease = await client.get(leases, 'kube-system', 'kube-scheduler');
  const spec = { ...(lease['spec'] as object), holderIdentity: 'operator', renewTime: '2026-01-02T03:04:06.000000Z' };
  await client.update(leases, { ...lease, spec });
  await clock.advance(2000);
  assert.deepEqual(first.history, ['lead 0', 'end 2']);
  await first.stop();
  assert.equal(client.peek(leases, 'kube-system', 'kube-scheduler')?.spec?.holderIdentity, 'operator');
});

test('a changed label does not cost the leader its term, and does not prolong a lease that is not renewed', async () => {
  const clock = new FakeClock();
  const { start, client } = world(clock);
  const relabel = (value: string): Promise<unknown> =>
    client.patch(leases, 'kube-system', 'kube-scheduler', { type: 'merge', body: { metadata: { labels: { value } } } });
  const first = start('a');
  await clock.settle();
  await relabel('one');
  await clock.advance(4000);
  assert.deepEqual(first.history, ['lead 0']);
  const second = start('b');
  await clock.settle();
  first.isCut = true;
  await clock.advance(10_000);
  await relabel('two');
  await clock.advance(6000);
  assert.deepEqual(second.history, ['lead 19']);
  await Promise.all([first, second].map((one) => one.stop()));
});

test('a host that slept finds its term over, although monotonic time stood still', async () => {
  const clock = new FakeClock();
  let sleptMs = 0;
  const { start } = world(clock);
  const first = start('a', { clock: { ...skewed(clock, 0), now: () => clock.now() + sleptMs } });
  await clock.settle();
  const term = first.term;
  assert.equal(term?.lasts(), true);
  sleptMs = 60_000;
  assert.equal(term?.lasts(), false);
  await clock.advance(2000);
  assert.equal(first.history[1], 'end 2');
  await first.stop();
});

test('work that fails gives up the lease', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const stop = new AbortController();
  let terms = 0;
  const running = runLeaderElection(
    {
      ...TIMES,
      client: typedClient(client),
      clock,
      logger: silentLogger,
      random: () => 0,
      recorder: { event: () => undefined },
      namespace: 'kube-system',
      name: 'kube-scheduler',
      identity: 'a',
    },
    async () => {
      terms++;
      throw new Error('a bug');
    },
    stop.signal,
  );
  await clock.settle();
  assert.equal(client.peek(leases, 'kube-system', 'kube-scheduler')?.spec?.holderIdentity, '');
  await clock.advance(1900);
  assert.equal(terms, 1);
  await clock.advance(200);
  assert.equal(terms, 2);
  stop.abort(new Error('the test ends'));
  await running;
});

test('a failing API server is tried again until the deadline', async () => {
  const clock = new FakeClock();
  const { start, client } = world(clock);
  let isFailing = false;
  client.intercept((call) => {
    if (isFailing && call.resource === leases) throw newServiceUnavailable('etcd is unreachable');
    return undefined;
  });
  const first = start('a');
  await clock.advance(2500);
  isFailing = true;
  await clock.advance(7000);
  isFailing = false;
  await clock.advance(5000);
  assert.deepEqual(first.history, ['lead 0']);
  await first.stop();
});

test('a fenced client reads but does not write when the term is over', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  let lasts = true;
  const fenced = fencedClient(client, () => lasts);
  const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace: 'default' } };
  await fenced.create(configMaps, 'default', object);
  lasts = false;
  assert.equal((await fenced.get(configMaps, 'default', 'a')).metadata.name, 'a');
  const refused = (error: unknown): boolean => isStatusError(error, 'ServiceUnavailable');
  await assert.rejects(fenced.create(configMaps, 'default', { ...object, metadata: { name: 'b' } }), refused);
  await assert.rejects(fenced.update(configMaps, object), refused);
  await assert.rejects(fenced.patch(configMaps, 'default', 'a', { type: 'merge', body: {} }), refused);
  await assert.rejects(fenced.delete(configMaps, 'default', 'a'), refused);
  await assert.rejects(fenced.deleteCollection(configMaps, {}), refused);
});

test('times that cannot work are refused', () => {
  assert.equal(leaderElectionProblem(TIMES), undefined);
  assert.match(leaderElectionProblem({ ...TIMES, leaseDurationMs: 10_000 }) ?? '', /renew deadline/);
  assert.match(leaderElectionProblem({ ...TIMES, renewDeadlineMs: 2000 }) ?? '', /retry periods/);
  assert.match(leaderElectionProblem({ ...TIMES, retryPeriodMs: 0 }) ?? '', /retry period/);
});
