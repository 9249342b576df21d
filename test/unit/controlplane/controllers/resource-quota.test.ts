import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConfigMap, Pod, ResourceQuota } from '../../../../api/machinery/kinds.ts';
import { configMaps, pods, resourceQuotas } from '../../../../api/machinery/resources.ts';
import { countedBy, runResourceQuota } from '../../../../controlplane/controllers/resource-quota/resource-quota.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const quota = (hard: Record<string, string>, scopes?: string[]): ResourceQuota => ({
  metadata: { name: 'q', namespace: 'n' },
  spec: { hard, ...(scopes === undefined ? {} : { scopes }) },
});
const pod = (name: string, cpu?: string): Pod => ({
  metadata: { name, namespace: 'n' },
  spec: { containers: [{ name: 'c', ...(cpu === undefined ? {} : { resources: { requests: { cpu } } }) }] },
});
const configMap = (name: string): ConfigMap => ({ metadata: { name, namespace: 'n' } });
const used = (t: ControllerTest) => t.client.peek(resourceQuotas, 'n', 'q')?.status?.used;

test('names tell whose objects they count', () => {
  assert.deepEqual(countedBy('count/deployments.apps'), { group: 'apps', resource: 'deployments' });
  assert.deepEqual(countedBy('count/widgets.example.com'), { group: 'example.com', resource: 'widgets' });
  assert.deepEqual(countedBy('gpu.deviceclass.resource.k8s.io/devices'), {
    group: 'resource.k8s.io',
    resource: 'resourceclaims',
  });
  assert.deepEqual(countedBy('requests.storage'), { group: '', resource: 'persistentvolumeclaims' });
  assert.deepEqual(
    countedBy('gold.storageclass.storage.k8s.io/persistentvolumeclaims')?.resource,
    'persistentvolumeclaims',
  );
  assert.deepEqual(countedBy('requests.example.com/gpu')?.resource, 'pods');
  assert.deepEqual(countedBy('services.nodeports')?.resource, 'services');
  assert.equal(countedBy('something'), undefined);
});

test('a new quota shows the usage', async () => {
  const t = controllerTest({
    objects: [
      [resourceQuotas, quota({ pods: '5', 'requests.cpu': '2', configmaps: '3', 'count/widgets.example.com': '1' })],
      [pods, pod('a', '500m')],
      [pods, pod('b', '1')],
      [pods, { ...pod('done', '1'), status: { phase: 'Succeeded' } }],
      [configMaps, configMap('c')],
      [configMaps, { metadata: { name: 'd', namespace: 'elsewhere' } }],
    ],
  });
  await t.start(runResourceQuota);
  await t.advance(100);
  assert.deepEqual(used(t), { pods: '2', 'requests.cpu': '1500m', configmaps: '1' });
  await t.stop();
});

test('only objects in the scope count', async () => {
  const t = controllerTest({
    objects: [
      [resourceQuotas, quota({ pods: '5' }, ['BestEffort'])],
      [pods, pod('a', '1')],
      [pods, pod('b')],
    ],
  });
  await t.start(runResourceQuota);
  await t.advance(100);
  assert.deepEqual(used(t), { pods: '1' });
  await t.stop();
});

test('what is deleted or ends is given back at once', async () => {
  const t = controllerTest({
    objects: [
      [resourceQuotas, quota({ pods: '5', configmaps: '3' })],
      [pods, pod('a')],
      [pods, pod('b')],
      [configMaps, configMap('c')],
    ],
  });
  await t.start(runResourceQuota);
  await t.advance(100);
  await t.client.delete(configMaps, 'n', 'c');
  const a = t.client.peek(pods, 'n', 'a');
  assert.ok(a);
  await t.client.update(pods, { ...a, status: { phase: 'Failed' } }, { subresource: 'status' });
  await t.advance(100);
  assert.deepEqual(used(t), { pods: '1', configmaps: '0' });
  await t.stop();
});

test('a changed limit is reported with the usage', async () => {
  const t = controllerTest({ objects: [[resourceQuotas, quota({ pods: '5' })]] });
  await t.start(runResourceQuota);
  await t.advance(100);
  await t.client.patch(resourceQuotas, 'n', 'q', { type: 'merge', body: { spec: { hard: { pods: '9' } } } });
  await t.advance(100);
  assert.deepEqual(t.client.peek(resourceQuotas, 'n', 'q')?.status, { hard: { pods: '9' }, used: { pods: '0' } });
  await t.stop();
});
