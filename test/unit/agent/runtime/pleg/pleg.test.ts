import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ContainerState, generateEvents, Pleg, type PodEvent } from '../../../../../agent/runtime/pleg/pleg.ts';
import type { RuntimeEvent } from '../../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const types = (
  before: Record<string, ContainerState> | undefined,
  after: Record<string, ContainerState> | undefined,
): string[] =>
  generateEvents('u', before && new Map(Object.entries(before)), after && new Map(Object.entries(after))).map(
    (event) => `${event.id} ${event.type}`,
  );

describe('pod lifecycle events', () => {
  const table: readonly (readonly [string, string[], string[]])[] = [
    ['a container that appears running has started', types(undefined, { a: 'running' }), ['a started']],
    ['a container that was only created is no event', types(undefined, { a: 'created' }), []],
    ['a container that ended has died', types({ a: 'running' }, { a: 'exited' }), ['a died']],
    [
      'a container that ran and is gone has died and was removed',
      types({ a: 'running' }, undefined),
      ['a died', 'a removed'],
    ],
    ['an ended container that is gone was removed', types({ a: 'exited' }, {}), ['a removed']],
    ['what did not change is no event', types({ a: 'running' }, { a: 'running' }), []],
  ];
  for (const [name, got, expected] of table) it(name, () => assert.deepEqual(got, expected));

  it('finds the same difference again after a failed relist', async () => {
    const clock = new FakeClock();
    const seen: PodEvent[] = [];
    let broken = true;
    const runtime = {
      listSandboxes: () => Promise.resolve([]),
      listContainers: () =>
        broken
          ? Promise.reject(new Error('away'))
          : Promise.resolve([{ id: 'c', state: 'running', labels: { 'io.kubernetes.pod.uid': 'u' } }] as never),
      events: (signal: AbortSignal, _onEvent: (event: RuntimeEvent) => void) =>
        new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve())),
    };
    const pleg = new Pleg({ runtime, clock, logger: silentLogger, onEvent: (event) => seen.push(event) });
    const abort = new AbortController();
    const running = pleg.run(abort.signal);
    await clock.advance(100);
    assert.equal(pleg.health(), 'pleg has yet to be successful');
    broken = false;
    await clock.advance(1_000);
    assert.deepEqual(seen, [{ type: 'started', podUid: 'u', id: 'c' }]);
    assert.equal(pleg.health(), '');
    broken = true;
    await clock.advance(300_000);
    assert.match(pleg.health(), /^pleg was last seen active \d+s ago; threshold is 3m0s$/);
    abort.abort();
    await running;
  });
});

/** A runtime with one pod, whose lists answer when the test lets them. */
class OnePod {
  state: ContainerState = 'running';
  isBroken = false;
  /** The number of lists of the pod alone, and of all pods. */
  readonly lists = { pod: 0, all: 0 };
  /** What a list of all pods waits for after it has read. */
  gate: Promise<void> | undefined;
  #onEvent: (event: RuntimeEvent) => void = () => undefined;

  listSandboxes(): Promise<never[]> {
    return Promise.resolve([]);
  }

  async listContainers(filter?: { readonly podUid?: string }): Promise<never> {
    this.lists[filter === undefined ? 'all' : 'pod'] += 1;
    if (this.isBroken) throw new Error('away');
    const read = [{ id: 'c', state: this.state, labels: { 'io.kubernetes.pod.uid': 'u' } }] as never;
    if (filter === undefined) await this.gate;
    return read;
  }

  events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void): Promise<void> {
    this.#onEvent = onEvent;
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
  }

  exit(): void {
    this.state = 'exited';
    this.#onEvent({ type: 'exited', podUid: 'u', containerId: 'c' } as unknown as RuntimeEvent);
  }
}

describe('the reading of a pod after an event', () => {
  const start = async (): Promise<{
    readonly runtime: OnePod;
    readonly clock: FakeClock;
    readonly seen: string[];
    readonly readings: number[];
    stop(): Promise<void>;
  }> => {
    const [runtime, clock, seen, abort] = [new OnePod(), new FakeClock(), [] as string[], new AbortController()];
    const onEvent = ({ type }: PodEvent): void => void seen.push(type);
    const readings: number[] = [];
    const onPodRead = (tookMs: number): void => void readings.push(tookMs);
    const running = new Pleg({ runtime, clock, logger: silentLogger, onEvent, onPodRead }).run(abort.signal);
    await clock.advance(10);
    assert.deepEqual(seen.splice(0), ['started']);
    const stop = (): Promise<void> => {
      abort.abort();
      return running;
    };
    return { runtime, clock, seen, readings, stop };
  };

  it('is repeated soon when it failed, and not first by the relist a minute later', async () => {
    const { runtime, clock, seen, stop } = await start();
    runtime.isBroken = true;
    runtime.exit();
    await clock.advance(300);
    assert.deepEqual(seen, []);
    runtime.isBroken = false;
    await clock.advance(2000);
    assert.deepEqual(seen, ['died']);
    assert.equal(runtime.lists.all, 1);
    await stop();
  });

  it('is not undone by a relist that began before it', async () => {
    const { runtime, clock, seen, stop } = await start();
    const gate = Promise.withResolvers<void>();
    runtime.gate = gate.promise;
    await clock.advance(60_000);
    assert.equal(runtime.lists.all, 2);
    runtime.exit();
    await clock.advance(10);
    gate.resolve();
    await clock.advance(10);
    assert.deepEqual(seen, ['died']);
    await stop();
  });

  it('is one more for many events that arrive during it', async () => {
    const { runtime, clock, readings, stop } = await start();
    for (let at = 0; at < 10; at += 1) runtime.exit();
    await clock.advance(1000);
    assert.equal(runtime.lists.pod, 2);
    assert.deepEqual(readings, [0, 0]);
    await stop();
  });

  it('becomes one of all pods where thousands have events at once', async () => {
    const clock = new FakeClock();
    const seen: string[] = [];
    const uids = Array.from({ length: 5_000 }, (_, at) => `u${at}`);
    const containers = uids.map((uid) => ({ id: uid, state: 'running', labels: { 'io.kubernetes.pod.uid': uid } }));
    let calls = 0;
    let send: (event: RuntimeEvent) => void = () => undefined;
    const runtime = {
      listSandboxes: () => Promise.resolve([]),
      listContainers: ({ podUid }: { podUid?: string } = {}) => {
        calls += 1;
        return Promise.resolve(
          containers.filter(({ id }) => started && (podUid === undefined || id === podUid)) as never,
        );
      },
      events: (signal: AbortSignal, onEvent: (event: RuntimeEvent) => void) => {
        send = onEvent;
        return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      },
    };
    let started = false;
    const pleg = new Pleg({ runtime, clock, logger: silentLogger, onEvent: ({ id }) => seen.push(id) });
    const abort = new AbortController();
    const running = pleg.run(abort.signal);
    await clock.advance(100);
    started = true;
    for (const podUid of uids) send({ type: 'started', podUid, containerId: podUid });
    await clock.advance(100);
    assert.deepEqual(new Set(seen), new Set(uids));
    assert.ok(calls < 600, `${calls} calls`);
    abort.abort();
    await running;
  });
});
