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
