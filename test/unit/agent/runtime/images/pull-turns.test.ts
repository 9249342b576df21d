import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PullTurns } from '../../../../../agent/runtime/images/pull-turns.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function setUp(mostAtOnce = 1) {
  const clock = new FakeClock();
  const turns = new PullTurns({ mostAtOnce, perSecond: 0, burst: 0 }, clock);
  const running = new Map<string, () => void>();
  const never = new AbortController().signal;
  /** Starts a pull that runs until `running` is asked to end it. */
  const pull = (namespace: string, name: string, signal = never): Promise<void> =>
    turns.run(namespace, signal, () => new Promise<void>((resolve) => running.set(name, resolve)));
  const settle = (): Promise<void> => clock.advance(0);
  return { clock, running, pull, settle, names: () => [...running.keys()] };
}

describe('serial pulls', () => {
  it('continue beside a pull that a registry lets last for ever', async () => {
    const { clock, pull, names, settle } = setUp();
    void pull('hostile', 'endless');
    void pull('team', 'app');
    await settle();
    assert.deepEqual(names(), ['endless']);
    await clock.advance(60_000);
    assert.deepEqual(names(), ['endless', 'app']);
  });

  it('begin one at a time after a late one has ended as well', async () => {
    const { clock, pull, names, settle, running } = setUp();
    const late = pull('a', 'late');
    void pull('b', 'second');
    void pull('c', 'third');
    await clock.advance(60_000);
    running.get('late')?.();
    await late;
    await settle();
    assert.deepEqual(names(), ['late', 'second']);
    running.get('second')?.();
    await settle();
    assert.deepEqual(names(), ['late', 'second', 'third']);
  });

  it('of a namespace with many endless pulls come after those of other namespaces', async () => {
    const { clock, pull, names, settle } = setUp();
    for (const at of [1, 2, 3, 4, 5]) void pull('hostile', `endless ${at}`);
    await settle();
    void pull('team', 'app');
    void pull('other', 'web');
    await clock.advance(60_000);
    assert.deepEqual(names(), ['endless 1', 'app']);
    await clock.advance(60_000);
    assert.deepEqual(names(), ['endless 1', 'app', 'web']);
  });

  it('leave their place when nobody waits for them any more', async () => {
    const { pull, names, settle, running } = setUp();
    void pull('a', 'first');
    const gone = new AbortController();
    const waiting = assert.rejects(pull('b', 'gone', gone.signal), /the pull was cancelled/);
    void pull('c', 'last');
    gone.abort(new Error('deleted'));
    await waiting;
    running.get('first')?.();
    await settle();
    assert.deepEqual(names(), ['first', 'last']);
    await assert.rejects(pull('d', 'late', AbortSignal.abort()), /the pull was cancelled/);
  });
});
