/** Priority and fairness learns the size of stored objects from the caches of built-in kinds and of custom resources. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { startFlowControl } from '../../../../controlplane/start/flow-control-loop.ts';
import type { PriorityAndFairnessOptions } from '../../../../controlplane/server/filters/priority-and-fairness.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function started(): PriorityAndFairnessOptions | undefined {
  const cacheWith = (found: string, bytes: number) => ({
    get: (namespace: string, name: string) =>
      `${namespace}/${name}` === found ? { bytes: Buffer.alloc(bytes) } : undefined,
  });
  const parts = {
    flags: {
      enablePriorityAndFairness: true,
      maxRequestsInflight: 400,
      maxMutatingRequestsInflight: 200,
      requestTimeout: 60_000,
    },
    clock: new FakeClock(),
    logger: silentLogger,
    listers: { of: () => ({ list: () => [], subscribe: () => undefined }) },
    registry: {
      stores: {
        find: (_group: string, resource: string) =>
          resource === 'configmaps' ? { cache: cacheWith('n/a', 500_000) } : undefined,
      },
    },
    definitions: { cacheOf: (group: string) => (group === 'e.com' ? cacheWith('n/b', 7) : undefined) },
    metrics: new MetricsRegistry(),
    clients: {},
    signal: AbortSignal.abort(),
  };
  return startFlowControl(parts as unknown as Parameters<typeof startFlowControl>[0]);
}

test('the size of an object is known by its resource, namespace and name; that of others is 0', () => {
  const bytesOf = started()?.objectBytes;
  assert.equal(bytesOf?.({ group: '', resource: 'configmaps', namespace: 'n', name: 'a' }), 500_000);
  assert.equal(bytesOf?.({ group: 'e.com', resource: 'things', namespace: 'n', name: 'b' }), 7);
  assert.equal(bytesOf?.({ group: '', resource: 'configmaps', namespace: 'n', name: 'missing' }), 0);
  assert.equal(bytesOf?.({ group: 'metrics.k8s.io', resource: 'pods', namespace: 'n', name: 'a' }), 0);
});
