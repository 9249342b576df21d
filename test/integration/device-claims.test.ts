/**
 * Tests devices in a whole control plane: claims from templates, their allocation by the scheduler, their release when the pod
 * finishes, and the eviction from a device that gets a taint.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import * as resources from '../../api/client/resources.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane({ memory: true });
});
after(() => plane.close());

type Json = Record<string, unknown>;

async function create(resource: Parameters<typeof plane.client.create>[0], object: Json): Promise<Json> {
  const namespace = resource.namespaced ? 'default' : '';
  const { group, version, kind } = resource;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  return (await plane.client.create(resource, namespace, { apiVersion, kind, ...object } as never)) as unknown as Json;
}

const get = async (resource: Parameters<typeof plane.client.get>[0], name: string) =>
  (await plane.client.get(resource, 'default', name)) as unknown as {
    metadata: { name: string; finalizers?: string[] };
    spec: Json;
    status?: Json & {
      resourceClaimStatuses?: { resourceClaimName: string }[];
      allocation?: { devices: { results: { device: string }[] } };
      reservedFor?: { name: string }[];
    };
  };

test(
  'a pod gets the device that its template selects, and gives it back when it is done',
  { timeout: 60_000 },
  async () => {
    await create(resources.nodes, { metadata: { name: 'n1' } });
    const status = {
      allocatable: { cpu: '4', memory: '8Gi', pods: '10' },
      capacity: { cpu: '4', memory: '8Gi', pods: '10' },
      conditions: [
        {
          type: 'Ready',
          status: 'True',
          lastHeartbeatTime: new Date().toISOString(),
          lastTransitionTime: new Date().toISOString(),
        },
      ],
    };
    // Controllers change a new node as well.
    await plane.client.patch(resources.nodes, '', 'n1', { type: 'merge', body: { status }, subresource: 'status' });
    await create(resources.deviceClasses, {
      metadata: { name: 'gpu' },
      spec: { selectors: [{ cel: { expression: 'device.driver == "gpu.example.com"' } }] },
    });
    await create(resources.resourceSlices, {
      metadata: { name: 'n1-gpus' },
      spec: {
        driver: 'gpu.example.com',
        nodeName: 'n1',
        pool: { name: 'n1', generation: 1, resourceSliceCount: 1 },
        devices: ['a', 'b'].map((name) => ({ name, attributes: { model: { string: name } } })),
      },
    });
    const expression = 'device.attributes["gpu.example.com"].model == "b"';
    await create(resources.resourceClaimTemplates, {
      metadata: { name: 'one' },
      spec: {
        spec: {
          devices: {
            requests: [{ name: 'r', exactly: { deviceClassName: 'gpu', selectors: [{ cel: { expression } }] } }],
          },
        },
      },
    });
    await until(
      'the service account',
      async () => (await plane.client.list(resources.serviceAccounts, { namespace: 'default' })).items.length > 0,
    );
    const pod = (name: string): Json => ({
      metadata: { name },
      spec: {
        containers: [{ name: 'c', image: 'i', resources: { claims: [{ name: 'gpu' }] } }],
        resourceClaims: [{ name: 'gpu', resourceClaimTemplateName: 'one' }],
        tolerations: [{ operator: 'Exists' }],
      },
    });
    await create(resources.pods, pod('first'));
    await until('the binding', async () => (await get(resources.pods, 'first')).spec['nodeName'] === 'n1');
    const name = (await get(resources.pods, 'first')).status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
    const claim = await get(resources.resourceClaims, name);
    assert.deepEqual(
      [
        claim.status?.allocation?.devices.results.map(({ device }) => device),
        claim.status?.reservedFor?.map((pod) => pod.name),
      ],
      [['b'], ['first']],
    );
    assert.deepEqual(claim.metadata.finalizers, ['resource.kubernetes.io/delete-protection']);
    await create(resources.pods, pod('second'));
    await until('the second pod waits', async () => {
      const { status } = await get(resources.pods, 'second');
      return JSON.stringify(status?.['conditions'] ?? []).includes('cannot allocate all claims');
    });
    await plane.client.patch(resources.pods, 'default', 'first', {
      type: 'merge',
      body: { status: { phase: 'Succeeded' } } as never,
      subresource: 'status',
    });
    await until('the second pod runs', async () => (await get(resources.pods, 'second')).spec['nodeName'] === 'n1');
  },
);

test('the pod is evicted when its device gets a taint', { timeout: 60_000 }, async () => {
  const tainted = { name: 'b', taints: [{ key: 'broken', effect: 'NoExecute' }] };
  await plane.client.patch(resources.resourceSlices, '', 'n1-gpus', {
    type: 'merge',
    body: { spec: { devices: [{ name: 'a' }, tainted] } } as never,
  });
  await until('the deletion', async () => {
    const { metadata } = await plane.client.get(resources.pods, 'default', 'second');
    return metadata.deletionTimestamp !== undefined;
  });
  const conditions = (await get(resources.pods, 'second')).status?.['conditions'] as Json[];
  const condition = conditions.find(({ type }) => type === 'DisruptionTarget');
  assert.deepEqual([condition?.['status'], condition?.['reason']], ['True', 'DeletionByDeviceTaintManager']);
  await until('the event', async () => {
    const { items } = await plane.client.list(resources.events, { namespace: 'default' });
    return (items as unknown as Json[]).some(
      ({ reason, message, source }) =>
        reason === 'DeviceTaintManagerEviction' &&
        message === 'Marking for deletion' &&
        (source as Json)['component'] === 'device-taint-eviction-controller',
    );
  });
});
