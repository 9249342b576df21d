/** Tests the binding of a pod to a node in a whole control plane. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pods, serviceAccounts } from '../../api/client/resources.ts';
import { startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';

test('a pod that is bound is no longer nominated to a node', { timeout: 60_000 }, async () => {
  const plane = await startControlPlane({ memory: true });
  try {
    const { client } = plane;
    const accounts = async (): Promise<boolean> =>
      (await client.list(serviceAccounts, { namespace: 'default' })).items.length > 0;
    await until('the service account', accounts);
    const metadata = { name: 'p' };
    const spec = { schedulerName: 'nobody', containers: [{ name: 'c', image: 'i' }] };
    await client.create(pods, 'default', { apiVersion: 'v1', kind: 'Pod', metadata, spec } as never);
    const nomination = { status: { nominatedNodeName: 'n1' } };
    await client.patch(pods, 'default', 'p', { type: 'merge', body: nomination as never, subresource: 'status' });
    const target = { apiVersion: 'v1', kind: 'Node', name: 'n1' };
    const binding = { apiVersion: 'v1', kind: 'Binding', metadata, target };
    await client.create(pods, 'default', binding as never, { name: 'p', subresource: 'binding' });
    const pod = (await client.get(pods, 'default', 'p')) as unknown as {
      spec: { nodeName?: string };
      status: { nominatedNodeName?: string };
    };
    assert.deepEqual([pod.spec.nodeName, pod.status.nominatedNodeName], ['n1', undefined]);
  } finally {
    await plane.close();
  }
});
