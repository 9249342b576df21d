import assert from 'node:assert/strict';
import { it } from 'node:test';
import { pods as podsResource } from '../../../../api/client/resources.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { createApiSource } from '../../../../agent/sources/api-source.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

it('reports no pods before the node is known, because they are admitted by its labels and taints', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const metadata = { name: 'a', namespace: 'default', uid: 'u' };
  client.seed(podsResource, { metadata, spec: { nodeName: 'n', containers: [] } } as unknown as KubeObject);
  const node = Promise.withResolvers<void>();
  const source = createApiSource({
    ...{ client, clock, nodeName: 'n', logger: silentLogger },
    nodeSynced: () => node.promise,
  });
  const stop = new AbortController();
  const seen: string[][] = [];
  const running = source.run(stop.signal, (pods) => seen.push(pods.map((pod) => pod.metadata.name)));
  await clock.advance(10_000);
  assert.deepEqual(seen, []);
  node.resolve();
  await clock.settle();
  assert.deepEqual(seen, [['a']]);
  stop.abort(new Error('done'));
  await clock.advance(60_000);
  await running;
});
