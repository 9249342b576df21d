/** Writes that fail after a quota was charged are refunded, in a running control plane. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ResourceQuota } from '../../api/kinds/kinds.ts';
import { configMaps, namespaces, resourceQuotas } from '../../api/client/resources.ts';
import { isAlreadyExists } from '../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';

const NAMESPACE = 'drift';
const COUNT = 'count/configmaps';
let plane: ControlPlane;

before(async () => {
  plane = await startControlPlane({
    memory: true,
    flags: { controllers: ['resourcequota-controller'], scheduler: false },
  });
  await plane.client.create(namespaces, '', { metadata: { name: NAMESPACE } });
});

after(() => plane.close());

const used = async (): Promise<string | undefined> =>
  ((await plane.client.get(resourceQuotas, NAMESPACE, 'q')) as ResourceQuota).status?.used?.[COUNT];

test('repeated creates of an existing object charge its quota once', async () => {
  await plane.client.create(resourceQuotas, NAMESPACE, { metadata: { name: 'q' }, spec: { hard: { [COUNT]: '5' } } });
  await until('the quota is counted', async () => (await used()) === '0');
  const create = () => plane.client.create(configMaps, NAMESPACE, { metadata: { name: 'a' } });
  await until('the quota is charged', async () => {
    await create().catch((error: unknown) => assert.ok(isAlreadyExists(error)));
    return (await used()) !== '0';
  });
  for (let i = 0; i < 20; i++) await assert.rejects(create, (error: unknown) => isAlreadyExists(error));
  await until('the usage without the failed create', async () => (await used()) === '1');
});
