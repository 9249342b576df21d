import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../agent/model/pod.ts';
import { isCriticalPod, isStaticPod } from '../../../../agent/model/pod-kinds.ts';
import { createApiSource } from '../../../../agent/sources/api-source.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { pods as podsResource } from '../../../../api/machinery/resources.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

it('pods of the API server are not static, and not critical to the node, whatever their annotations state', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  for (const source of ['file', 'http', 'submitted', ''])
    client.seed(podsResource, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: {
        name: `pod-${source}`,
        namespace: 'shop',
        uid: `uid-${source}`,
        annotations: { 'kubernetes.io/config.source': source },
      },
      spec: { nodeName: 'n', containers: [] },
    } as never);
  const source = createApiSource({ client, nodeName: 'n', clock, logger: silentLogger });
  const stop = new AbortController();
  const seen = Promise.withResolvers<readonly Pod[]>();
  const running = source.run(stop.signal, (pods) => seen.resolve(pods));
  await clock.settle();
  const pods = await seen.promise;
  assert.equal(pods.length, 4);
  assert.deepEqual(
    pods.filter((pod) => isStaticPod(pod) || isCriticalPod(pod)).map(({ metadata }) => metadata.name),
    [],
  );
  stop.abort(new Error('done'));
  await running;
});
