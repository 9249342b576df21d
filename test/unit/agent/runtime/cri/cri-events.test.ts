import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CriClient } from '../../../../../agent/runtime/cri/cri-client.ts';
import { type Started, changes, followCriEvents } from '../../../../../agent/runtime/cri/cri-events.ts';
import { RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const [created, running, exited] = [0, 1, 2];

type Observed = Parameters<typeof changes>[0];
const containers = (states: Readonly<Record<string, number>>): Observed =>
  new Map(Object.entries(states).map(([id, state]) => [id, { podUid: 'pod', state, sandbox: false }]));
const eventsBetween = (before: Observed, after: Observed): readonly string[] =>
  changes(before, after).map(({ type, containerId }) => `${type} ${containerId}`);

describe('events between two lists of a runtime', () => {
  it('reports creation, start and exit', () => {
    assert.deepEqual(eventsBetween(containers({}), containers({ a: created })), ['created a']);
    assert.deepEqual(eventsBetween(containers({ a: created }), containers({ a: running })), ['started a']);
    assert.deepEqual(eventsBetween(containers({ a: running }), containers({ a: exited })), ['stopped a']);
    assert.deepEqual(eventsBetween(containers({ a: exited }), containers({})), ['deleted a']);
  });

  it('reports all steps of a change that was too quick to be observed', () => {
    assert.deepEqual(eventsBetween(containers({}), containers({ a: exited })), ['created a', 'started a', 'stopped a']);
    assert.deepEqual(eventsBetween(containers({ a: created }), containers({ a: exited })), ['started a', 'stopped a']);
  });

  it('reports nothing if nothing changed', () =>
    assert.deepEqual(eventsBetween(containers({ a: running }), containers({ a: running })), []));

  it('reports the change of a sandbox', () => {
    const sandbox = (state: number): Observed => new Map([['s', { podUid: 'pod', state, sandbox: true }]]);
    assert.deepEqual(eventsBetween(sandbox(0), sandbox(1)), ['sandbox-changed s']);
    assert.deepEqual(eventsBetween(sandbox(1), new Map()), ['sandbox-changed s']);
  });
});

describe('events of a runtime without container events', () => {
  /** Follows the events of a runtime with one container. `lists` counts the list requests. */
  async function follow(containerd: boolean) {
    const clock = new FakeClock();
    const abort = new AbortController();
    const reported: string[] = [];
    const state = {
      lists: 0,
      container: running,
      exit: (_id: string): void => undefined,
      endExits: (): void => undefined,
      own: (_begun?: Started): void => undefined,
    };
    const answers: Readonly<Record<string, () => object>> = {
      listPodSandbox: () => ({ items: [] }),
      listContainers: () => {
        state.lists++;
        return { containers: [{ id: 'a', state: state.container, labels: { 'io.kubernetes.pod.uid': 'pod' } }] };
      },
    };
    const unsupported = new RuntimeError('unsupported', 'unknown method');
    const client = {
      call: (method: string) => Promise.resolve(answers[method]?.()),
      containerEvents: () => Promise.reject(unsupported),
      containerdExits(signal: AbortSignal, onExit: (id: string) => void) {
        if (!containerd) return Promise.reject(unsupported);
        state.exit = onExit;
        return new Promise<void>((resolve) => {
          state.endExits = resolve;
          signal.addEventListener('abort', () => resolve(), { once: true });
        });
      },
    } as unknown as CriClient;
    const onOwnChange = (listener: (started?: Started) => void): (() => void) => {
      state.own = listener;
      return () => undefined;
    };
    const following = followCriEvents(
      { client, clock, logger: silentLogger, onOwnChange },
      abort.signal,
      ({ type, containerId }) => reported.push(`${type} ${containerId}`),
      () => undefined,
    );
    await clock.advance(50);
    state.lists = 0;
    const end = async (): Promise<void> => {
      abort.abort();
      await following;
    };
    return { clock, state, reported, end };
  }

  it('lists again until the lists show the exit that containerd reported', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.exit('a');
    await clock.advance(100);
    assert.deepEqual(reported, []);
    assert.equal(state.lists, 3);
    state.container = exited;
    await clock.advance(1_000);
    assert.deepEqual(reported, ['stopped a']);
    assert.equal(state.lists, 4);
    await end();
  });

  it('leaves an exit that the lists do not show to the next periodic poll', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.exit('a');
    await clock.advance(9_000);
    const { lists } = state;
    state.container = exited;
    await clock.advance(11_000);
    assert.deepEqual([reported, state.lists - lists], [['stopped a'], 1]);
    await end();
  });

  it('lists once after a request of its own', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.container = exited;
    state.own();
    state.own();
    await clock.advance(5_000);
    assert.deepEqual([reported, state.lists], [['stopped a'], 1]);
    await end();
  });

  it('reports at once the effect of its own request, without a list', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.own({ id: 's', podUid: 'pod', sandbox: true });
    state.own({ id: 'b', podUid: 'pod', sandbox: false });
    await clock.advance(5_000);
    assert.deepEqual([reported, state.lists], [['sandbox-changed s', 'created b', 'started b'], 0]);
    await end();
  });

  it('lists if a container exited before the response to its start', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.exit('b');
    state.own({ id: 'b', podUid: 'pod', sandbox: false });
    await clock.advance(5);
    assert.deepEqual([reported, state.lists], [[], 1]);
    await end();
  });

  it('lists after a start if no exit events are available', async () => {
    const { clock, state, end } = await follow(false);
    state.own({ id: 'b', podUid: 'pod', sandbox: false });
    await clock.advance(5);
    assert.equal(state.lists, 1);
    await end();
  });

  it('polls every second after containerd has ended the stream of exit events without an error', async () => {
    const { clock, state, reported, end } = await follow(true);
    state.endExits();
    await clock.advance(50);
    state.container = exited;
    await clock.advance(1_500);
    assert.deepEqual(reported, ['stopped a']);
    await end();
  });

  it('polls every second if no exit events are available', async () => {
    const { clock, state, reported, end } = await follow(false);
    state.container = exited;
    await clock.advance(3_500);
    assert.deepEqual([reported, state.lists], [['stopped a'], 3]);
    await end();
  });
});
