import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConfigMap, Pod, ResourceClaim, ResourceQuota } from '../../../../api/kinds/kinds.ts';
import { configMaps, deviceClasses, pods, resourceClaims, resourceQuotas } from '../../../../api/client/resources.ts';
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

test('the resource whose objects a name counts follows from the name', () => {
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

test('the usage of deleted and terminated objects is given back at once', async () => {
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

test('devices of claims count as the extended resources of their class, beyond what their pod requests', async () => {
  const gpu = 'requests.example.com/gpu';
  const implicit = 'requests.deviceclass.resource.kubernetes.io/gpu';
  const claim = (name: string, count: number, metadata: object = {}): ResourceClaim =>
    ({
      metadata: { name, namespace: 'n', creationTimestamp: '2026-01-01T00:00:00Z', ...metadata },
      spec: {
        devices: {
          requests: [{ name: 'r', exactly: { deviceClassName: 'gpu', allocationMode: 'ExactCount', count } }],
        },
      },
    }) as unknown as ResourceClaim;
  const extended = {
    annotations: { 'resource.kubernetes.io/extended-resource-claim': 'true' },
    ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'a-uid', controller: true }],
  };
  const t = controllerTest({
    served: [pods, deviceClasses, resourceClaims],
    objects: [
      [resourceQuotas, quota({ [gpu]: '10', [implicit]: '10' })],
      [deviceClasses, { metadata: { name: 'gpu' }, spec: { extendedResourceName: 'example.com/gpu' } }],
      [
        pods,
        {
          metadata: { name: 'a', namespace: 'n', uid: 'a-uid' },
          spec: { containers: [{ name: 'c', resources: { requests: { 'example.com/gpu': '2' } } }] },
        } as unknown as Pod,
      ],
      [resourceClaims, claim('of-user', 3)],
      [resourceClaims, claim('of-pod', 2, extended)],
      // This claim names the pod as well, but is not the claim of the scheduler.
      [resourceClaims, claim('of-pod-too', 1, extended)],
    ],
  });
  await t.start(runResourceQuota);
  await t.advance(100);
  assert.deepEqual(used(t), { [gpu]: '6', [implicit]: '6' });
  await t.client.delete(resourceClaims, 'n', 'of-user');
  await t.advance(100);
  assert.deepEqual(used(t), { [gpu]: '3', [implicit]: '3' });
  await t.stop();
});
