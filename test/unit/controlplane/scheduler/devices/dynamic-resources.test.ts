/** Tests the scheduler and the controller of resource claims in virtual time with an API in memory. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { Informers } from '../../../../../api/client/informer.ts';
import type { Node, Pod, ResourceClaim } from '../../../../../api/kinds/kinds.ts';
import * as resources from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { runResourceClaims } from '../../../../../controlplane/controllers/resource-claim/resource-claim.ts';
import { startScheduler } from '../../../../../controlplane/scheduler/scheduler.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const FINALIZER = 'resource.kubernetes.io/delete-protection';

interface Rig extends ControllerTest {
  pod(name: string): Pod | undefined;
  claim(name: string): ResourceClaim | undefined;
  addPod(name: string, resourceClaims: readonly object[], spec?: object): void;
  setPhase(name: string, phase: string): Promise<void>;
  readonly failing: { bindings: number };
  end(): Promise<void>;
}

async function setUp(nodes: readonly string[], devicesPerNode = 1): Promise<Rig> {
  const t = controllerTest();
  const failing = { bindings: 0 };
  const pod = (name: string): Pod | undefined => t.client.peek(resources.pods, 'default', name);
  t.client.intercept((call) => {
    if (call.verb !== 'create' || call.subresource !== 'binding') return undefined;
    if (failing.bindings-- > 0) throw new Error('connection lost');
    const target = (call.object as KubeObject & { target: { name: string } }).target.name;
    const known = pod(call.name);
    return t.client.seed(resources.pods, { ...known, spec: { ...known?.spec, nodeName: target } } as unknown as Pod);
  });
  t.client.seed(resources.deviceClasses, { metadata: { name: 'gpu' }, spec: {} });
  for (const name of nodes) {
    const node = { metadata: { name }, spec: {}, status: { allocatable: { cpu: '4', memory: '8Gi', pods: '10' } } };
    t.client.seed(resources.nodes, node as unknown as Node);
    const devices = Array.from({ length: devicesPerNode }, (_, index) => ({ name: `gpu-${index}` }));
    const pool = { name, generation: 1, resourceSliceCount: 1 };
    t.client.seed(resources.resourceSlices, {
      metadata: { name },
      spec: { driver: 'gpu.example.com', nodeName: name, pool, devices },
    });
  }
  const informers = new Informers({ client: t.client, clock: t.clock, logger: silentLogger, watchList: false });
  const scheduler = startScheduler({
    client: t.client,
    informers,
    clock: t.clock,
    logger: silentLogger,
    random: () => 0,
    recorder: { event: () => undefined },
  });
  await t.start(runResourceClaims);
  return {
    ...t,
    failing,
    pod,
    claim: (name) => t.client.peek(resources.resourceClaims, 'default', name),
    addPod(name, resourceClaims, spec = {}) {
      const object = {
        metadata: { name, namespace: 'default', uid: `${name}-uid` },
        spec: { schedulerName: 'default-scheduler', containers: [{ name: 'c', image: 'i' }], resourceClaims, ...spec },
        status: {},
      };
      t.client.seed(resources.pods, object as unknown as Pod);
    },
    async setPhase(name, phase) {
      const found = pod(name);
      assert.ok(found !== undefined);
      await t.client.update(
        resources.pods,
        { ...found, status: { ...found.status, phase } },
        { subresource: 'status' },
      );
      await t.advance(1_000);
    },
    async end() {
      await scheduler.stop();
      await informers.close();
      await t.stop();
    },
  };
}

const request = (more: object = {}): object => ({
  devices: {
    requests: [{ name: 'r', exactly: { deviceClassName: 'gpu', allocationMode: 'ExactCount', count: 1, ...more } }],
  },
});

function addClaim(t: Rig, name: string): void {
  t.client.seed(resources.resourceClaims, {
    metadata: { name, namespace: 'default', uid: `${name}-uid` },
    spec: request(),
  } as never);
}

const unschedulable = (pod: Pod | undefined): string | undefined =>
  pod?.status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')?.message;

it('a pod with a template of a claim gets a claim, its device and a node, and gives all back when it is done', async () => {
  const t = await setUp(['n1']);
  t.client.seed(resources.resourceClaimTemplates, {
    metadata: { name: 'one-gpu', namespace: 'default' },
    spec: { metadata: { labels: { from: 'template' } }, spec: request() },
  } as never);
  t.addPod('a', [{ name: 'gpu', resourceClaimTemplateName: 'one-gpu' }]);
  await t.advance(5_000);
  const [status] = t.pod('a')?.status?.resourceClaimStatuses ?? [];
  const claim = t.claim(status?.resourceClaimName ?? '');
  assert.deepEqual([t.pod('a')?.spec?.nodeName, claim?.metadata.labels], ['n1', { from: 'template' }]);
  assert.match(claim?.metadata.name ?? '', /^a-gpu-/);
  assert.deepEqual(claim?.metadata.annotations, { 'resource.kubernetes.io/pod-claim-name': 'gpu' });
  assert.deepEqual(claim?.metadata.finalizers, [FINALIZER]);
  assert.equal(claim?.status?.allocation?.devices?.results?.[0]?.device, 'gpu-0');
  assert.deepEqual(claim?.status?.reservedFor, [{ resource: 'pods', name: 'a', uid: 'a-uid' }]);
  // A second pod waits for the device.
  t.addPod('b', [{ name: 'gpu', resourceClaimTemplateName: 'one-gpu' }]);
  await t.advance(5_000);
  assert.equal(
    unschedulable(t.pod('b')),
    '0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.',
  );
  await t.setPhase('a', 'Succeeded');
  assert.equal(t.claim(claim?.metadata.name ?? ''), undefined, 'the claim of the finished pod is deleted');
  await t.advance(15_000);
  assert.equal(t.pod('b')?.spec?.nodeName, 'n1');
  await t.end();
});

it('pods that share a claim go where its device is, and no two claims get one device', async () => {
  const t = await setUp(['n1', 'n2']);
  for (const name of ['shared', 'own']) addClaim(t, name);
  t.addPod('a', [{ name: 'gpu', resourceClaimName: 'shared' }]);
  t.addPod('b', [{ name: 'gpu', resourceClaimName: 'own' }]);
  t.addPod('c', [{ name: 'gpu', resourceClaimName: 'shared' }]);
  await t.advance(15_000);
  const nodeOf = (name: string): string | undefined => t.pod(name)?.spec?.nodeName;
  assert.equal(nodeOf('c'), nodeOf('a'));
  assert.deepEqual([nodeOf('a'), nodeOf('b')].toSorted(), ['n1', 'n2']);
  assert.deepEqual(
    t.claim('shared')?.status?.reservedFor?.map(({ name }) => name),
    ['a', 'c'],
  );
  // A claim that a user created stays without its device when its last pod is done.
  await t.setPhase('b', 'Succeeded');
  assert.deepEqual([t.claim('own')?.status?.allocation, t.claim('own')?.metadata.finalizers ?? []], [undefined, []]);
  await t.end();
});

it('a claim keeps its device over a binding that fails, and loses it if the pod fits elsewhere only', async () => {
  const t = await setUp(['n1', 'n2']);
  addClaim(t, 'claim');
  t.failing.bindings = 1;
  t.addPod('a', [{ name: 'gpu', resourceClaimName: 'claim' }]);
  await t.advance(500);
  const before = t.claim('claim')?.status;
  assert.deepEqual([before?.reservedFor, before?.allocation?.devices?.results?.length], [undefined, 1]);
  const taken = before?.allocation?.nodeSelector?.nodeSelectorTerms[0]?.matchFields?.[0]?.values?.[0] ?? '';
  // The node with the device is cordoned before the pod is tried again.
  const node = t.client.peek(resources.nodes, '', taken);
  t.client.seed(resources.nodes, { ...node, spec: { unschedulable: true } } as unknown as Node);
  await t.advance(60_000);
  assert.notEqual(t.pod('a')?.spec?.nodeName ?? taken, taken);
  await t.end();
});

it('a pod waits for the claim, the class and the template that it names', async () => {
  const t = await setUp(['n1']);
  t.addPod('a', [{ name: 'gpu', resourceClaimName: 'later' }]);
  t.addPod('b', [{ name: 'gpu', resourceClaimTemplateName: 'none' }]);
  await t.advance(1_000);
  // As in kube-scheduler, such a pod is not tried, and gets no condition.
  assert.deepEqual([unschedulable(t.pod('a')), unschedulable(t.pod('b'))], [undefined, undefined]);
  assert.ok(
    t.events().some((event) => event.startsWith('Warning FailedResourceClaimCreation PodResourceClaim gpu: ')),
    t.events().join('\n'),
  );
  t.client.seed(resources.resourceClaims, {
    metadata: { name: 'later', namespace: 'default', uid: 'later-uid' },
    spec: request({ deviceClassName: 'npu' }),
  } as never);
  await t.advance(10_000);
  assert.match(unschedulable(t.pod('a')) ?? '', /request r: device class npu does not exist/);
  t.client.seed(resources.deviceClasses, { metadata: { name: 'npu' }, spec: {} });
  await t.advance(15_000);
  assert.equal(t.pod('a')?.spec?.nodeName, 'n1');
  await t.end();
});

it('a pod does not get a claim that was made for another pod by the name of its template', async () => {
  const t = await setUp(['n1']);
  addClaim(t, 'of-another');
  t.addPod('a', [{ name: 'gpu', resourceClaimTemplateName: 'none' }]);
  const status = { resourceClaimStatuses: [{ name: 'gpu', resourceClaimName: 'of-another' }] };
  t.client.seed(resources.pods, { ...t.pod('a'), status } as never);
  await t.advance(20_000);
  assert.equal(t.pod('a')?.spec?.nodeName, undefined);
  const claim = t.claim('of-another');
  const ownerReferences = [{ apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'a-uid', controller: true }];
  t.client.seed(resources.resourceClaims, { ...claim, metadata: { ...claim?.metadata, ownerReferences } } as never);
  await t.advance(1_000);
  assert.equal(t.pod('a')?.spec?.nodeName, 'n1');
  await t.end();
});

it('an allocated claim is reserved for a pod that was bound without the scheduler, and freed when it is deleted', async () => {
  const t = await setUp(['n1']);
  addClaim(t, 'claim');
  t.addPod('a', [{ name: 'gpu', resourceClaimName: 'claim' }]);
  await t.advance(5_000);
  t.addPod('direct', [{ name: 'gpu', resourceClaimName: 'claim' }], { nodeName: 'n1' });
  await t.advance(1_000);
  assert.deepEqual(
    t.claim('claim')?.status?.reservedFor?.map(({ name }) => name),
    ['a', 'direct'],
  );
  for (const name of ['a', 'direct']) await t.client.delete(resources.pods, 'default', name, { gracePeriodSeconds: 0 });
  await t.client.delete(resources.resourceClaims, 'default', 'claim');
  await t.advance(5_000);
  assert.equal(t.claim('claim'), undefined, 'its finalizer is gone');
  await t.end();
});

it('a pod that requests an extended resource of a class gets a claim for it, which goes when the pod is done', async () => {
  const t = await setUp(['n1']);
  t.client.seed(resources.deviceClasses, {
    metadata: { name: 'gpu' },
    spec: { extendedResourceName: 'example.com/gpu' },
  });
  const requests = { 'deviceclass.resource.kubernetes.io/gpu': '1', cpu: '1' };
  const explicit = { containers: [{ name: 'c', image: 'i', resources: { requests: { 'example.com/gpu': '1' } } }] };
  t.addPod('a', [], explicit);
  await t.advance(5_000);
  const { resourceClaimName = '', requestMappings } = t.pod('a')?.status?.extendedResourceClaimStatus ?? {};
  assert.deepEqual(requestMappings, [
    { containerName: 'c', resourceName: 'example.com/gpu', requestName: 'container-0-request-0' },
  ]);
  const claim = t.claim(resourceClaimName);
  assert.match(resourceClaimName, /^a-extended-resources-/);
  assert.deepEqual(claim?.metadata.annotations, { 'resource.kubernetes.io/extended-resource-claim': 'true' });
  assert.deepEqual(claim?.metadata.ownerReferences, [
    { apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'a-uid', controller: true },
  ]);
  assert.deepEqual(claim?.spec?.devices?.requests, [
    {
      name: 'container-0-request-0',
      exactly: { deviceClassName: 'gpu', allocationMode: 'ExactCount', count: 1 },
    },
  ]);
  assert.equal(claim?.status?.allocation?.devices?.results?.[0]?.device, 'gpu-0');
  assert.deepEqual(claim?.status?.reservedFor, [{ resource: 'pods', name: 'a', uid: 'a-uid' }]);
  t.addPod('b', [], { containers: [{ name: 'c', image: 'i', resources: { requests } }] });
  await t.advance(5_000);
  assert.match(unschedulable(t.pod('b')) ?? '', /cannot allocate all claims/);
  await t.setPhase('a', 'Succeeded');
  assert.equal(t.claim(resourceClaimName), undefined);
  await t.advance(15_000);
  assert.equal(t.pod('b')?.spec?.nodeName, 'n1');
  assert.equal(
    t.pod('b')?.status?.extendedResourceClaimStatus?.requestMappings[0]?.requestName,
    'container-0-request-1',
    'the second of the sorted resources of the container',
  );
  await t.end();
});

it('an extended resource is for a device plugin where one offers it, and for a class that comes later', async () => {
  const t = await setUp(['n1', 'n2']);
  const requests = { 'example.com/gpu': '1' };
  const spec = { containers: [{ name: 'c', image: 'i', resources: { requests } }] };
  t.addPod('a', [], spec);
  await t.advance(5_000);
  assert.match(unschedulable(t.pod('a')) ?? '', /2 Insufficient example.com\/gpu/);
  t.client.seed(resources.deviceClasses, {
    metadata: { name: 'gpu' },
    spec: { extendedResourceName: 'example.com/gpu' },
  });
  await t.advance(15_000);
  assert.ok(t.pod('a')?.status?.extendedResourceClaimStatus !== undefined);
  const taken = t.pod('a')?.spec?.nodeName;
  const status = { allocatable: { cpu: '4', memory: '8Gi', pods: '10', 'example.com/gpu': '1' } };
  t.client.seed(resources.nodes, { metadata: { name: 'n3' }, spec: {}, status } as unknown as Node);
  t.client.seed(resources.nodes, {
    ...t.client.peek(resources.nodes, '', taken === 'n1' ? 'n2' : 'n1'),
    spec: { unschedulable: true },
  } as unknown as Node);
  t.addPod('b', [], spec);
  await t.advance(15_000);
  assert.equal(t.pod('b')?.spec?.nodeName, 'n3');
  assert.equal(t.pod('b')?.status?.extendedResourceClaimStatus, undefined);
  await t.end();
});

it('the claim for extended resources is deleted if the binding fails, and the next attempt creates another one', async () => {
  const t = await setUp(['n1']);
  const requests = { 'deviceclass.resource.kubernetes.io/gpu': '1' };
  t.failing.bindings = 1;
  t.addPod('a', [], { containers: [{ name: 'c', image: 'i', resources: { requests } }] });
  await t.advance(500);
  const claims = () => t.client.peekAll(resources.resourceClaims).map(({ metadata }) => metadata.name);
  assert.deepEqual(claims(), []);
  await t.advance(30_000);
  assert.equal(t.pod('a')?.spec?.nodeName, 'n1');
  assert.deepEqual(claims(), [t.pod('a')?.status?.extendedResourceClaimStatus?.resourceClaimName]);
  await t.end();
});

it('a pod does not run anywhere while a selector of its claim fails on one node', async () => {
  const t = await setUp(['n1', 'n2']);
  const slice = t.client.peek(resources.resourceSlices, '', 'n1');
  const devices = [{ name: 'gpu-0', attributes: { 'gpu.example.com/exists': { bool: true } } }];
  t.client.seed(resources.resourceSlices, { ...slice, spec: { ...slice?.spec, devices } } as never);
  const selectors = [{ cel: { expression: 'device.attributes["gpu.example.com"].exists' } }];
  t.client.seed(resources.resourceClaims, {
    metadata: { name: 'claim', namespace: 'default', uid: 'claim-uid' },
    spec: request({ selectors }),
  } as never);
  t.addPod('a', [{ name: 'gpu', resourceClaimName: 'claim' }]);
  await t.advance(5_000);
  const [condition] = t.pod('a')?.status?.conditions ?? [];
  assert.equal(t.pod('a')?.spec?.nodeName, undefined);
  assert.equal(condition?.reason, 'SchedulerError');
  assert.match(
    condition?.message ?? '',
    /^running "DynamicResources" filter plugin: claim default\/claim: selector #0: CEL runtime error/,
  );
  await t.end();
});
