/** Tests the managers together: alignment by policy and scope, rejections, releases, and the pod-resources socket. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { connectGrpc } from '../../../../../api/grpc/grpc-client.ts';
import {
  ALPHA_METHODS,
  POD_RESOURCES_MESSAGES,
  POD_RESOURCES_METHODS,
} from '../../../../../agent/resources/podresources/schema.ts';
import { servePodResources } from '../../../../../agent/resources/podresources/pod-resources-server.ts';
import { CpuManager } from '../../../../../agent/resources/managers/cpumanager/cpu-manager.ts';
import { parseCpuSet } from '../../../../../agent/resources/managers/cpu-set.ts';
import { ClaimManager } from '../../../../../agent/resources/managers/dra/claim-manager.ts';
import { DeviceManager } from '../../../../../agent/resources/managers/devicemanager/device-manager.ts';
import { serveRegistration } from '../../../../../agent/resources/managers/devicemanager/registration-server.ts';
import { registerManagerMetrics } from '../../../../../agent/resources/managers/manager-metrics.ts';
import { MemoryManager } from '../../../../../agent/resources/managers/memorymanager/memory-manager.ts';
import { cpuPolicyOptions, topologyPolicyOptions } from '../../../../../agent/resources/managers/policy-options.ts';
import { ResourceManagers } from '../../../../../agent/resources/managers/resource-managers.ts';
import { CpuTopology } from '../../../../../agent/resources/managers/topology/host-topology.ts';
import type { TopologyPolicy } from '../../../../../agent/resources/managers/topologymanager/hints.ts';
import { TopologyManager } from '../../../../../agent/resources/managers/topologymanager/topology-manager.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeDevicePlugin, healthy } from '../../../../fakes/device-plugin.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { resourcePod } from '../../../../fakes/resource-pod.ts';
import { hostOf } from '../../../../fakes/sysfs-tree.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const GPU = 'example.com/gpu';
const GATES = { alpha: true, beta: true };
const GIB = 2 ** 30;

interface Rig {
  readonly managers: ResourceManagers;
  readonly rootDirectory: string;
  readonly active: Set<string>;
  readonly clock: FakeClock;
  readonly admissions: { refused: boolean }[];
  readonly registry: MetricsRegistry;
  /** Makes the next call of `activePods` throw. */
  readonly failure: { next: boolean };
}

/** Resolves to two sockets with four cores and 8 GiB each; two GPUs on node 1 and one on node 0. */
async function setUp(
  t: TestContext,
  policy: TopologyPolicy,
  scope: 'container' | 'pod' = 'container',
  cpuOptions: Readonly<Record<string, string>> = {},
): Promise<Rig> {
  const rootDirectory = temporaryFolder();
  const directory = join(rootDirectory, 'device-plugins');
  const host = await hostOf({ sockets: 2, coresPerNode: 4, memoryPerNodeBytes: 8 * GIB });
  const clock = new FakeClock();
  const admissions: { refused: boolean }[] = [];
  const active = new Set<string>();
  const failure = { next: false };
  const registry = new MetricsRegistry();
  const metrics = registerManagerMetrics(registry);
  const topology = new TopologyManager({
    policy,
    scope,
    options: topologyPolicyOptions({}, GATES),
    numaNodes: host.numaNodes,
    clock,
    observe: ({ refused }) => admissions.push({ refused }),
    onAligned: (scope_, isAligned) => metrics.aligned(scope_, isAligned),
  });
  const devices = await DeviceManager.start({
    directory,
    clock,
    logger: silentLogger,
    numaNodes: [0, 1],
    affinity: topology,
    onNodeChange: () => undefined,
    onPodsChange: () => undefined,
    observe: () => undefined,
  });
  const cpus = await CpuManager.start({
    policy: 'static',
    rootDirectory,
    clock,
    logger: silentLogger,
    topology: new CpuTopology(host),
    options: cpuPolicyOptions(cpuOptions, GATES),
    affinity: topology,
    reservedCpus: parseCpuSet('0'),
    reservedCount: 1,
    reconcileMs: 10_000,
  });
  const memory = await MemoryManager.start({
    policy: 'Static',
    rootDirectory,
    clock,
    logger: silentLogger,
    numaNodes: host.numaNodes,
    reserved: '0:memory=1Gi',
    nodeReserved: { memory: GIB },
    affinity: topology,
  });
  const claims = await ClaimManager.start({
    ...{ rootDirectory, client: undefined, nodeName: 'n1', clock, logger: silentLogger },
  });
  metrics.follow(cpus, memory, claims);
  const managers = new ResourceManagers({
    topology,
    cpus,
    memory,
    devices,
    claims,
    clock,
    logger: silentLogger,
    activePods: () => {
      if (failure.next) {
        failure.next = false;
        throw new Error('boom');
      }
      return active;
    },
    reportsHealth: true,
  });
  const abort = new AbortController();
  const close = await serveRegistration({ directory, devices, logger: silentLogger, signal: abort.signal });
  const plugin = new FakeDevicePlugin({ directory, devices: healthy({ g0: 0, g1: 1, h1: 1 }) });
  await plugin.serve();
  await plugin.register(GPU);
  await until('the devices', () => managers.capacity().capacity[GPU] === '3');
  t.after(async () => {
    abort.abort();
    await plugin.close();
    await close();
  });
  return { managers, rootDirectory, active, clock, admissions, failure, registry };
}

const pod = (uid: string, cpu: number, memory: string, gpus = 0): Pod =>
  resourcePod(uid, [{ limits: { cpu: String(cpu), memory, ...(gpus === 0 ? {} : { [GPU]: String(gpus) }) } }]);

/** Makes the pod known to the agent. */
function admit(rig: Rig, of: Pod) {
  rig.active.add(of.metadata.uid);
  return rig.managers.admit(of);
}

const placement = ({ managers }: Rig, of: Pod) => {
  const [container] = of.spec.containers;
  assert.ok(container);
  return managers.placement(of, container);
};

test('single-numa-node: CPUs, memory and devices come from one NUMA node, or the pod is rejected', async (t) => {
  const rig = await setUp(t, 'single-numa-node');
  const two = pod('two', 2, '2Gi', 2);
  assert.equal(await admit(rig, two), undefined);
  assert.deepEqual(placement(rig, two), { cpus: '4-5', mems: '1', isExclusive: true });
  // The node with a free GPU has enough CPUs but too little memory.
  assert.deepEqual(await admit(rig, pod('much', 2, '7500Mi', 1)), {
    reason: 'TopologyAffinityError',
    message: 'Resources cannot be allocated with Topology locality',
  });
  assert.deepEqual(rig.admissions, [{ refused: false }, { refused: true }]);
});

test('the metrics show CPUs by NUMA node, and how often resources were aligned as the policies guarantee', async (t) => {
  const rig = await setUp(t, 'single-numa-node', 'container', { 'full-pcpus-only': 'true' });
  const shown = (): string[] =>
    rig.registry
      .text()
      .split('\n')
      .filter((line) => /^kubelet_(container_aligned|cpu_manager_allocation_per_numa)/.test(line))
      .toSorted();
  await admit(rig, pod('two', 2, '2Gi', 2));
  await admit(rig, pod('much', 2, '7500Mi', 1));
  const ofContainers = (kind: string, boundary: string): string =>
    `kubelet_container_aligned_compute_resources_${kind}{boundary="${boundary}",scope="container"}`;
  assert.deepEqual(shown(), [
    `${ofContainers('count', 'numa_node')} 1`,
    `${ofContainers('count', 'physical_cpu')} 1`,
    `${ofContainers('count', 'uncore_cache')} 1`,
    `${ofContainers('failure_count', 'numa_node')} 1`,
    `${ofContainers('failure_count', 'physical_cpu')} 0`,
    'kubelet_cpu_manager_allocation_per_numa{numa_node="0"} 0',
    'kubelet_cpu_manager_allocation_per_numa{numa_node="1"} 2',
  ]);
});

test('best-effort: resources that cannot be aligned are allocated from any node', async (t) => {
  const rig = await setUp(t, 'best-effort');
  const three = pod('three', 2, '1Gi', 3);
  assert.equal(await admit(rig, three), undefined);
  assert.equal(placement(rig, three).isExclusive, true);
});

test('restricted: a pod is rejected if it needs more nodes than on an empty host', async (t) => {
  const rig = await setUp(t, 'restricted');
  assert.equal(await admit(rig, pod('first', 2, '1Gi', 2)), undefined);
  assert.equal((await admit(rig, pod('second', 4, '1Gi', 1)))?.reason, 'TopologyAffinityError');
});

test('scope pod: containers that would fit on two nodes are placed on one', async (t) => {
  const limits = { cpu: '2', memory: '1Gi' };
  const containers = [
    { name: 'a', limits: { ...limits, [GPU]: '1' } },
    { name: 'b', limits },
  ];
  const rig = await setUp(t, 'single-numa-node', 'pod');
  assert.equal(await admit(rig, pod('before', 3, '1Gi')), undefined);
  const both = resourcePod('both', containers);
  assert.equal(await admit(rig, both), undefined);
  const [first, second] = both.spec.containers.map((container) => rig.managers.placement(both, container));
  assert.deepEqual([first?.mems, second?.mems], ['1', '1']);
  assert.deepEqual(parseCpuSet(`${first?.cpus},${second?.cpus}`), parseCpuSet('4-7'));
});

test('an unexpected error is reported as such, and allocated resources are released', async (t) => {
  const rig = await setUp(t, 'none');
  assert.deepEqual(await admit(rig, pod('much', 9, '1Gi', 2)), {
    reason: 'UnexpectedAdmissionError',
    message:
      'Allocate failed due to not enough cpus available to satisfy request: requested=9, available=7, which is unexpected',
  });
  assert.equal(await admit(rig, pod('all', 1, '1Gi', 3)), undefined);
});

test('pods are admitted one after the other, so that no resource is allocated twice', async (t) => {
  const rig = await setUp(t, 'none');
  const answers = await Promise.all(['a', 'b', 'c'].map((uid) => admit(rig, pod(uid, 1, '1Gi', 2))));
  assert.deepEqual(
    answers.map((answer) => answer?.reason),
    [undefined, 'UnexpectedAdmissionError', 'UnexpectedAdmissionError'],
  );
});

test('a failed admission rejects only its own pod', async (t) => {
  const rig = await setUp(t, 'none');
  rig.failure.next = true;
  assert.equal((await admit(rig, pod('unlucky', 1, '1Gi')))?.reason, 'UnexpectedAdmissionError');
  assert.equal(await admit(rig, pod('next', 1, '1Gi')), undefined);
  assert.equal(placement(rig, pod('next', 1, '1Gi')).isExclusive, true);
});

test('a pod without exclusive resources does not wait', async (t) => {
  const rig = await setUp(t, 'restricted');
  assert.equal(admit(rig, resourcePod('plain', [{ limits: { cpu: '100m' } }])), undefined);
});

test('resources of pods that no longer exist are released, those of active pods are kept', async (t) => {
  const rig = await setUp(t, 'none');
  await admit(rig, pod('gone', 2, '1Gi', 1));
  await admit(rig, pod('here', 2, '1Gi', 1));
  rig.active.delete('gone');
  await admit(rig, pod('next', 3, '1Gi', 2));
  assert.equal(placement(rig, pod('gone', 2, '1Gi')).isExclusive, false);
  assert.equal(placement(rig, pod('here', 2, '1Gi')).isExclusive, true);
});

test('the pod-resources socket reports the allocations and the allocatable resources', async (t) => {
  const rig = await setUp(t, 'single-numa-node');
  const mine = pod('mine', 2, '2Gi', 2);
  await admit(rig, mine);
  const observed: string[] = [];
  const registry = new MetricsRegistry();
  const metrics = registerManagerMetrics(registry);
  const close = await servePodResources({
    rootDirectory: rig.rootDirectory,
    clock: rig.clock,
    accounts: rig.managers.accounts(),
    activePods: () => [mine],
    podByName: (_namespace, name) => (name === 'mine' ? mine : undefined),
    observe(endpoint, request) {
      observed.push(`${endpoint} ${request.version} ${request.failed}`);
      metrics.podResources(endpoint, request);
    },
  });
  t.after(close);
  const client = await connectGrpc({
    socket: join(rig.rootDirectory, 'pod-resources', 'kubelet.sock'),
    messages: POD_RESOURCES_MESSAGES,
    methods: POD_RESOURCES_METHODS,
  });
  t.after(() => client.close());
  const options = { timeoutMs: 20_000 };
  const { podResources } = await client.call('list', {}, options);
  const node1 = { nodes: [{ id: 1 }] };
  const device = (id: string) => ({ resourceName: GPU, deviceIds: [id], topology: node1 });
  assert.deepEqual(podResources, [
    {
      name: 'mine',
      namespace: 'default',
      containers: [
        {
          name: 'main',
          devices: [device('g1'), device('h1')],
          cpuIds: [4, 5],
          memory: [{ memoryType: 'memory', size: 2 * GIB, topology: node1 }],
          dynamicResources: [],
        },
      ],
    },
  ]);
  const all = await client.call('getAllocatableResources', {}, options);
  assert.deepEqual(all.cpuIds, [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(all.devices.length, 3);
  assert.deepEqual(
    all.memory.filter(({ memoryType }) => memoryType === 'memory').map(({ size }) => size / GIB),
    [7, 8],
  );
  const one = await client.call('get', { podName: 'mine', podNamespace: 'default' }, options);
  assert.equal(one.podResources?.name, 'mine');
  await assert.rejects(
    client.call('get', { podName: 'other', podNamespace: 'default' }, options),
    /pod other in namespace default not found/,
  );
  // The rate limit has a burst of ten and a hundred requests per second.
  const answers = await Promise.allSettled(Array.from({ length: 10 }, () => client.call('list', {}, options)));
  const refused = answers.filter((answer) => answer.status === 'rejected');
  assert.equal(refused.length, 4);
  assert.match(String(refused[0]?.reason), /code = ResourceExhausted desc = rejected by rate limit/);
  await rig.clock.advance(1_000);
  await client.call('list', {}, options);
  assert.equal(observed.at(-1), 'list v1 false');
  const older = await connectGrpc({
    socket: join(rig.rootDirectory, 'pod-resources', 'kubelet.sock'),
    messages: POD_RESOURCES_MESSAGES,
    methods: ALPHA_METHODS,
  });
  t.after(() => older.close());
  await older.call('list', {}, options);
  assert.equal(observed.at(-1), 'list v1alpha1 false');
  const text = registry.text();
  assert.match(text, /endpoint_requests_total\{server_api_version="v1alpha1"\} 1\n/);
  assert.doesNotMatch(text, /endpoint_requests_list\{server_api_version="v1alpha1"\}/);
});

test('a host with too many NUMA nodes is rejected', async () => {
  const host = await hostOf({ sockets: 9, coresPerNode: 1 });
  assert.throws(
    () =>
      new TopologyManager({
        policy: 'best-effort',
        scope: 'container',
        options: topologyPolicyOptions({}, GATES),
        numaNodes: host.numaNodes,
        clock: new FakeClock(),
        observe: () => undefined,
      }),
    /unsupported on machines with more than 8 NUMA Nodes/,
  );
});
