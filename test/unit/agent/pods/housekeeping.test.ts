import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { Housekeeping } from '../../../../agent/pods/housekeeping.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

it('reports once a minute that dead containers cannot be collected, as the kubelet does', async () => {
  const clock = new FakeClock();
  const events: string[] = [];
  const housekeeping = new Housekeeping({
    clock,
    logger: silentLogger,
    runtime: { listContainers: () => Promise.reject(new Error('the runtime is unreachable')) },
    table: { sourcesReady: () => false },
    deadContainers: {},
    nodeEvent: (reason: string, message: string) => void events.push(`${reason}: ${message}`),
  } as never);
  const stop = new AbortController();
  const running = housekeeping.run(stop.signal);
  await clock.advance(59_000);
  assert.deepEqual(events, ['ContainerGCFailed: the runtime is unreachable']);
  await clock.advance(60_000);
  assert.equal(events.length, 2);
  // A collection under eviction pressure is logged by its caller.
  await assert.rejects(housekeeping.collectContainers({ terminatedPods: true }));
  assert.equal(events.length, 2);
  stop.abort(new Error('done'));
  await clock.advance(60_000);
  await running;
});
