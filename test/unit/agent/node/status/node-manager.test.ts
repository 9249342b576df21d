/** Tests the node manager with an API in memory and virtual time: registration, status updates, and the lease. */
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { leases, nodes } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import {
  NodeManager,
  type NodeManagerOptions,
  type NodeStatusSource,
} from '../../../../../agent/node/status/node-manager.ts';
import type { NodeIdentity } from '../../../../../agent/node/status/node-registration.ts';
import { CheckpointStore } from '../../../../../agent/pods/checkpoints/checkpoint-store.ts';
import { PodCheckpoints } from '../../../../../agent/pods/checkpoints/pod-checkpoints.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { FakeRuntime } from '../../../../fakes/fake-runtime.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

type Options = Partial<Omit<NodeManagerOptions, 'identity'> & NodeIdentity>;

interface Rig {
  readonly client: FakeClient;
  readonly clock: FakeClock;
  readonly manager: NodeManager;
  readonly steps: string[];
  /** The resources of the device plugins. */
  readonly devices: Record<string, string>;
  /** The keys of the serving certificate. */
  readonly keys: string[];
  node(): NodeObject | undefined;
  /** The number of status patches so far. */
  sent(): number;
  stop(): Promise<void>;
}

function setUp(options: Options = {}, existing?: object, more: Partial<NodeStatusSource> = {}): Rig {
  const { labels, taints, providerId, registerSchedulable, annotations, ...others } = options;
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  if (existing !== undefined) client.seed(nodes, existing as KubeObject);
  const steps: string[] = [];
  const devices: Record<string, string> = {};
  const manager = new NodeManager({
    client,
    clock,
    logger: silentLogger,
    runtime: new FakeRuntime(clock),
    identity: {
      nodeName: 'n1',
      registerSchedulable: registerSchedulable ?? true,
      labels: labels ?? {},
      taints: taints ?? [],
      providerId: providerId ?? '',
      annotations: annotations ?? { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' },
    },
    rootDirectory: tmpdir(),
    version: 'v1.36.2',
    nodeIps: ['192.0.2.7'],
    registerNode: true,
    maxPods: 110,
    podsPerCore: 0,
    maxImages: 50,
    reserved: () => ({}),
    reportStorage: false,
    declaredFeatures: [],
    statusIntervalMs: 10_000,
    reportIntervalMs: 300_000,
    leaseDurationSeconds: 40,
    podCidr: '10.1.0.0/24',
    random: () => 0.5,
    onStep: (step) => steps.push(step),
    ...others,
  });
  const keys = ['sha256:aa'];
  const source: NodeStatusSource = {
    runtimeErrors: () => [],
    networkErrors: () => [],
    pressure: () => false,
    deviceCapacity: () => ({ capacity: { ...devices }, allocatable: { ...devices } }),
    volumesInUse: () => [],
    serverPort: () => 10250,
    servingKeys: () => keys,
    listeningPorts: () => Promise.resolve([]),
    runtimeRead: () => Promise.resolve(),
    ...more,
  };
  const abort = new AbortController();
  const running = manager.run(source, abort.signal);
  return {
    client,
    clock,
    manager,
    steps,
    devices,
    keys,
    node: () => client.peek(nodes, '', 'n1') as unknown as NodeObject | undefined,
    sent: () => client.calls.filter(({ verb, subresource }) => verb === 'patch' && subresource === 'status').length,
    async stop() {
      abort.abort();
      await clock.advance(60_000);
      await running;
    },
  };
}

/** Waits for reads of the host's files and for the work that depends on them. */
async function settled(rig: Rig, condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries++) {
    assert.ok(tries < 2_000, `did not come: ${condition}`);
    await rig.clock.advance(10);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test('a new node is created with its labels, taints, provider id and annotations, and unschedulable if configured', async () => {
  const rig = setUp({
    labels: { 'node.kubernetes.io/pool': 'a' },
    taints: [{ key: 'k', value: 'v', effect: 'NoSchedule' }],
    providerId: 'metal://7',
    registerSchedulable: false,
  });
  await settled(rig, () => rig.node() !== undefined);
  const node = rig.node();
  assert.equal(node?.metadata.labels?.['node.kubernetes.io/pool'], 'a');
  assert.equal(node?.metadata.labels?.['kubernetes.io/hostname'], 'n1');
  assert.equal(node?.metadata.annotations?.['volumes.kubernetes.io/controller-managed-attach-detach'], 'true');
  assert.deepEqual(node?.spec, {
    providerID: 'metal://7',
    taints: [{ key: 'k', value: 'v', effect: 'NoSchedule' }],
    unschedulable: true,
  });
  assert.deepEqual(node?.status?.addresses, [
    { type: 'InternalIP', address: '192.0.2.7' },
    { type: 'Hostname', address: 'n1' },
  ]);
  await settled(rig, () => rig.manager.registered);
  assert.deepEqual([...new Set(rig.steps)].toSorted(), ['ready', 'registered', 'registering']);
  await rig.stop();
});

test("an existing node is adopted: the agent's fields are set, those of others stay", async () => {
  const rig = setUp(
    { annotations: {}, taints: [{ key: 'k', effect: 'NoSchedule' }] },
    {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: {
        name: 'n1',
        labels: { 'example.com/mine': 'x', 'kubernetes.io/os': 'wrong' },
        annotations: { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true', 'example.com/note': 'y' },
      },
      spec: { taints: [{ key: 'other', effect: 'NoExecute' }] },
    },
  );
  await settled(rig, () => rig.manager.registered);
  const node = rig.node();
  assert.equal(node?.metadata.labels?.['example.com/mine'], 'x');
  assert.equal(node?.metadata.labels?.['kubernetes.io/os'], 'linux');
  assert.deepEqual(node?.metadata.annotations, {
    'example.com/note': 'y',
    'orchlet.local/serving-keys': 'sha256:aa',
  });
  assert.deepEqual(node?.spec?.taints, [{ key: 'other', effect: 'NoExecute' }], 'taints are of a new node only');
  await rig.stop();
});

test('a restarted agent leaves its node ready until it has read the runtime, for ten seconds at most', async () => {
  const conditions = [{ type: 'Ready', status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z' }];
  const existing = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' }, status: { conditions } };
  const isReady = (rig: Rig): boolean =>
    rig.node()?.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
  const read = Promise.withResolvers<void>();
  let errors: readonly string[] = ['PLEG is not healthy: pleg has yet to be successful'];
  const source = { runtimeErrors: () => errors, runtimeRead: () => read.promise };
  const rig = setUp({}, existing, source);
  await settled(rig, () => rig.manager.registered);
  await rig.clock.advance(5_000);
  assert.deepEqual([isReady(rig), rig.sent()], [true, 0]);
  errors = [];
  read.resolve();
  await settled(rig, () => rig.sent() > 0);
  assert.equal(isReady(rig), true);
  await rig.stop();
  const never = Promise.withResolvers<void>();
  const broken = setUp({}, existing, { runtimeErrors: () => ['down'], runtimeRead: () => never.promise });
  await settled(broken, () => broken.sent() > 0);
  assert.equal(isReady(broken), false);
  await broken.stop();
});

test('a node that must not register itself waits until it is created', async () => {
  const rig = setUp({ registerNode: false });
  await rig.clock.advance(30_000);
  assert.equal(rig.node(), undefined);
  rig.client.seed(nodes, { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } } as KubeObject);
  await settled(rig, () => rig.node()?.status?.conditions !== undefined);
  await rig.stop();
});

test('the status is sent when it has changed, and every five minutes though nothing has', async () => {
  const rig = setUp();
  await settled(rig, () => rig.manager.registered);
  await settled(rig, () => rig.sent() === 1);
  await rig.clock.advance(120_000);
  assert.equal(rig.sent(), 1, 'nothing changed');
  rig.devices['example.com/gpu'] = '2';
  rig.manager.changed();
  await settled(rig, () => rig.sent() === 2);
  assert.equal(rig.node()?.status?.capacity?.['example.com/gpu'], '2');
  const heartbeat = rig.node()?.status?.conditions?.[0]?.lastHeartbeatTime;
  await rig.clock.advance(280_000);
  assert.equal(rig.sent(), 2);
  await settled(rig, () => rig.sent() === 3);
  assert.notEqual(rig.node()?.status?.conditions?.[0]?.lastHeartbeatTime, heartbeat);
  await rig.stop();
});

test('fields that an older API server drops are not sent repeatedly', async () => {
  const rig = setUp({ declaredFeatures: ['GuaranteedQoSPodCPUResize'] });
  rig.client.intercept(({ verb, subresource, patch }) => {
    if (verb === 'patch' && subresource === 'status')
      delete (patch as { status: Record<string, unknown> }).status['declaredFeatures'];
    return undefined;
  });
  rig.client.intercept(({ verb, object }) => {
    if (verb === 'create') delete (object as NodeObject).status?.declaredFeatures;
    return undefined;
  });
  await settled(rig, () => rig.manager.registered && rig.sent() >= 1);
  await rig.clock.advance(120_000);
  const sent = rig.sent();
  assert.ok(sent <= 2, `sent ${sent} times`);
  assert.equal(rig.node()?.status?.declaredFeatures, undefined);
  rig.devices['example.com/gpu'] = '2';
  rig.manager.changed();
  await settled(rig, () => rig.node()?.status?.capacity?.['example.com/gpu'] === '2');
  await rig.clock.advance(120_000);
  assert.equal(rig.sent(), sent + 1);
  await rig.stop();
});

test('the events of a node report the start of the agent, a host with cgroup v1, and each cordon of the node', async () => {
  const events: string[] = [];
  const rig = setUp({
    onTransition: ({ type, message }) => events.push(`${type} ${message}`),
    hasCgroupV1: true,
  });
  await settled(rig, () => rig.manager.registered && rig.sent() === 1);
  assert.equal(events[0], 'Normal Starting kubelet.');
  assert.match(events[1] ?? '', /^Warning cgroup v1 detected\. cgroup v1 support is deprecated/);
  for (const unschedulable of [true, false]) {
    events.splice(0);
    await rig.client.patch(nodes, '', 'n1', { type: 'merge', body: { spec: { unschedulable } } });
    await settled(rig, () => events.length > 0);
    await rig.clock.advance(60_000);
    assert.deepEqual(events, [
      `Normal Node n1 status is now: ${unschedulable ? 'NodeNotSchedulable' : 'NodeSchedulable'}`,
    ]);
  }
  await rig.stop();
});

test('a deleted node is registered again', async () => {
  const rig = setUp();
  await settled(rig, () => rig.manager.registered && rig.sent() === 1);
  const { uid } = rig.node()?.metadata ?? {};
  await rig.client.delete(nodes, '', 'n1');
  // The change is detected when the next status is due.
  await rig.clock.advance(300_000);
  await settled(rig, () => rig.node() !== undefined && rig.node()?.metadata.uid !== uid);
  await rig.stop();
});

test('the lease is the node\u2019s, and renewed a good ten seconds apart', async () => {
  const rig = setUp();
  const lease = (): { metadata: KubeObject['metadata']; spec: Record<string, unknown> } | undefined =>
    rig.client.peek(leases, 'kube-node-lease', 'n1') as never;
  await settled(rig, () => lease() !== undefined);
  const first = lease();
  assert.equal(first?.spec['holderIdentity'], 'n1');
  assert.equal(first?.spec['leaseDurationSeconds'], 40);
  assert.deepEqual(first?.metadata.ownerReferences, [
    { apiVersion: 'v1', kind: 'Node', name: 'n1', uid: rig.node()?.metadata.uid },
  ]);
  const writes = (): number =>
    rig.client.calls.filter(({ resource, verb }) => resource === leases && verb === 'update').length;
  const before = writes();
  await rig.clock.advance(102_500);
  assert.ok(writes() - before >= 9 && writes() - before <= 10, `${writes() - before} renewals in 102.5 s`);
  assert.notEqual(lease()?.spec['renewTime'], first?.spec['renewTime']);
  await rig.stop();
});

test('the addresses of the host are read with the status, not for each pod, and new ones are seen within ten seconds', async () => {
  let [address, reads] = ['192.0.2.8', 0];
  const rig = setUp({
    nodeIps: [],
    addresses: () => {
      reads++;
      return [address];
    },
  });
  await settled(rig, () => rig.manager.registered);
  rig.manager.hostIps();
  const before = reads;
  for (let pod = 0; pod < 100; pod++) assert.deepEqual(rig.manager.hostIps(), ['192.0.2.8']);
  assert.equal(reads, before);
  address = '192.0.2.9';
  await rig.clock.advance(10_000);
  assert.deepEqual(rig.manager.hostIps(), ['192.0.2.9']);
  await rig.stop();
});

test('a node publishes the keys of its serving certificate, also those of a new one', async () => {
  const rig = setUp();
  const published = () => rig.node()?.metadata.annotations?.['orchlet.local/serving-keys'];
  await settled(rig, () => published() === 'sha256:aa');
  rig.keys.splice(0, 1, 'sha256:bb');
  rig.manager.changed();
  await settled(rig, () => published() === 'sha256:bb');
  await settled(rig, () => rig.manager.registered);
  rig.keys.splice(0, 1);
  rig.manager.changed();
  await settled(rig, () => published() === undefined);
  await rig.stop();
});

test('takes pod ranges in their canonical form, and no text that would be another packet rule', async () => {
  const podCIDRs = ['010.2.0.9/24', '10.3.0.0/24 return; flush ruleset', 'fd00:0::7/64'];
  const rig = setUp({}, { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' }, spec: { podCIDRs } });
  await settled(rig, () => rig.manager.registered);
  assert.deepEqual(rig.manager.podCidrs(), ['10.2.0.0/24', 'fd00::/64']);
  await rig.stop();
});

test('labels that are set after the pod ranges are stored too, without what each heartbeat changes', async () => {
  const store = new CheckpointStore({ directory: temporaryFolder(), clock: new FakeClock(), logger: silentLogger });
  const checkpoints = new PodCheckpoints({ store, logger: silentLogger });
  const rig = setUp({ onRead: (node) => checkpoints.saveNode(node) });
  await settled(rig, () => rig.manager.registered && rig.sent() === 1);
  await rig.client.patch(nodes, '', 'n1', { type: 'merge', body: { metadata: { labels: { disk: 'ssd' } } } });
  await settled(rig, () => rig.manager.node().metadata.labels?.['disk'] === 'ssd');
  const stored = await checkpoints.node();
  assert.equal(stored?.metadata.labels?.['disk'], 'ssd');
  assert.equal(stored?.metadata.resourceVersion, undefined);
  assert.equal(stored?.status, undefined);
  await store.close();
  await rig.stop();
});
