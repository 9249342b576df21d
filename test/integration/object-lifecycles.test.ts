/** Tests object lifecycles that involve several components: quota and its admission, owners and their dependents. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { configMaps, namespaces, resourceQuotas } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, isStatusError } from '../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';

const NAMESPACE = 'lives';
let plane: ControlPlane;

before(async () => {
  plane = await startControlPlane({ memory: true });
  await plane.client.create(namespaces, '', { metadata: { name: NAMESPACE } });
});
after(() => plane.close());

const isGone = async (name: string): Promise<boolean> => {
  try {
    await plane.client.get(configMaps, NAMESPACE, name);
    return false;
  } catch (error) {
    return isNotFound(error);
  }
};

test('a cycle of owners does not prevent garbage collection', async () => {
  const names = ['a', 'b', 'c'];
  const made: KubeObject[] = [];
  for (const name of names) made.push(await plane.client.create(configMaps, NAMESPACE, { metadata: { name } }));
  for (const [at, name] of names.entries()) {
    const { name: ownerName, uid } = made[(at + 2) % 3]?.metadata ?? {};
    const owner = { apiVersion: 'v1', kind: 'ConfigMap', name: ownerName, uid, blockOwnerDeletion: true };
    await plane.client.patch(configMaps, NAMESPACE, name, {
      type: 'merge',
      body: { metadata: { ownerReferences: [owner] } },
    });
  }
  await plane.client.delete(configMaps, NAMESPACE, 'a', { propagationPolicy: 'Foreground' });
  for (const name of names) await until(`the end of ${name}`, () => isGone(name));
});

test('a quota counts created objects, refuses objects above its limit, and is refunded for deleted ones', async () => {
  const count = 'count/configmaps';
  await until('the root certificate', async () => !(await isGone('kube-root-ca.crt')));
  await plane.client.create(resourceQuotas, NAMESPACE, {
    metadata: { name: 'few' },
    spec: { hard: { [count]: '2' } },
  } as unknown as KubeObject);
  const used = (want: string) =>
    until(`${want} used`, async () => {
      const { status } = (await plane.client.get(resourceQuotas, NAMESPACE, 'few')) as {
        status?: { used?: Record<string, string> };
      };
      return status?.used?.[count] === want;
    });
  await used('1');
  await plane.client.create(configMaps, NAMESPACE, { metadata: { name: 'one' } });
  await used('2');
  await assert.rejects(plane.client.create(configMaps, NAMESPACE, { metadata: { name: 'two' } }), (error) =>
    isStatusError(error, 'Forbidden'),
  );
  await plane.client.delete(configMaps, NAMESPACE, 'one');
  await used('1');
  await plane.client.create(configMaps, NAMESPACE, { metadata: { name: 'two' } });
});
