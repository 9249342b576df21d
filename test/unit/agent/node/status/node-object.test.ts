/** Compares the status of a node with one that the kubelet wrote. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import { DEFAULT_HARD, parseThresholds } from '../../../../../agent/resources/eviction/thresholds.ts';
import {
  type NodeFacts,
  statusChanges,
  statusPatch,
  withStatus,
  semanticVersion,
} from '../../../../../agent/node/status/node-object.ts';
import { withEviction } from '../../../../../agent/node/status/reserved.ts';

const KIB = 1024;
const NOW = '2026-11-21T10:21:39Z';
const BLANK = { metadata: { name: 'node1' } } as NodeObject;

const thresholds = parseThresholds({
  hard: DEFAULT_HARD,
  soft: {},
  softGracePeriod: {},
  minimumReclaim: {},
  enforcePods: true,
});
const host = { cpus: 2, memoryBytes: 24_684_084 * KIB, storageBytes: 264_212_084 * KIB, pids: 32_768 };

const facts: NodeFacts = {
  name: 'node1',
  hostname: 'node1',
  addresses: ['172.17.0.1'],
  system: {
    machineID: 'm',
    systemUUID: 's',
    bootID: 'b',
    kernelVersion: '6.18.44',
    osImage: 'Debian GNU/Linux 12 (bookworm)',
    operatingSystem: 'linux',
    architecture: 'amd64',
  },
  capacity: {
    cpus: host.cpus,
    memoryBytes: host.memoryBytes,
    swapBytes: 0,
    hugePages: new Map([
      ['1Gi', 0],
      ['2Mi', 0],
    ]),
  },
  rootSpace: { capacityBytes: host.storageBytes, availableBytes: 1, inodes: 1, inodesFree: 1 },
  runtime: { name: 'containerd', version: '1.6.20', apiVersion: 'v1' },
  features: { handlers: [], supplementalGroupsPolicy: false },
  images: [
    {
      id: 'p',
      repoTags: ['registry.k8s.io/pause:3.10', 'registry.k8s.io/pause:3.6'],
      repoDigests: [],
      sizeBytes: 687_402,
      user: '',
      pinned: true,
    },
    {
      id: 'b',
      repoTags: ['docker.io/library/busybox:1.35'],
      repoDigests: [],
      sizeBytes: 2_131_257,
      user: '',
      pinned: false,
    },
  ],
  maxImages: 50,
  version: 'v1.36.2',
  maxPods: 110,
  podsPerCore: 0,
  reserved: withEviction({}, thresholds, host),
  serverPort: 20250,
  servingKeys: [],
  listeningPorts: [],
  runtimeErrors: [],
  networkErrors: [],
  pressure: () => false,
  deviceCapacity: { capacity: {}, allocatable: {} },
  volumesInUse: [],
  declaredFeatures: ['ExtendWebSocketsToKubelet'],
  now: NOW,
};

const status = (changes: Partial<NodeFacts> = {}, before = BLANK) =>
  withStatus(before, { ...facts, ...changes }).status;

test('a field that the status has no more is removed by the patch', () => {
  const before = status();
  const next = withStatus({ ...BLANK, status: before ?? {} }, { ...facts, declaredFeatures: [] }).status;
  assert.deepEqual(statusChanges(before, next), { declaredFeatures: null });
  assert.deepEqual(statusPatch(before, next), { declaredFeatures: null });
});

test('a host whose swap is turned off has none in the node info after the patch', () => {
  const before = status({ capacity: { ...facts.capacity, swapBytes: 1024 } });
  const next = withStatus({ ...BLANK, status: before ?? {} }, facts).status;
  assert.deepEqual(before?.nodeInfo?.swap, { capacity: 1024 });
  assert.deepEqual(statusPatch(before, next), { nodeInfo: { ...next?.nodeInfo, swap: null } });
});

test('it equals the report of the kubelet about the same host to the byte', () => {
  const condition = (type: string, is: string, reason: string, message: string) => ({
    type,
    status: is,
    reason,
    message,
    lastHeartbeatTime: NOW,
    lastTransitionTime: NOW,
  });
  assert.deepEqual(status(), {
    addresses: [
      { type: 'InternalIP', address: '172.17.0.1' },
      { type: 'Hostname', address: 'node1' },
    ],
    allocatable: {
      cpu: '2',
      'ephemeral-storage': '243497856212',
      'hugepages-1Gi': '0',
      'hugepages-2Mi': '0',
      memory: '24581684Ki',
      pods: '110',
    },
    capacity: {
      cpu: '2',
      'ephemeral-storage': '264212084Ki',
      'hugepages-1Gi': '0',
      'hugepages-2Mi': '0',
      memory: '24684084Ki',
      pods: '110',
    },
    conditions: [
      condition('MemoryPressure', 'False', 'KubeletHasSufficientMemory', 'kubelet has sufficient memory available'),
      condition('DiskPressure', 'False', 'KubeletHasNoDiskPressure', 'kubelet has no disk pressure'),
      condition('PIDPressure', 'False', 'KubeletHasSufficientPID', 'kubelet has sufficient PID available'),
      condition('Ready', 'True', 'KubeletReady', 'kubelet is posting ready status'),
    ],
    daemonEndpoints: { kubeletEndpoint: { Port: 20250 } },
    declaredFeatures: ['ExtendWebSocketsToKubelet'],
    images: [
      { names: ['docker.io/library/busybox:1.35'], sizeBytes: 2_131_257 },
      { names: ['registry.k8s.io/pause:3.10', 'registry.k8s.io/pause:3.6'], sizeBytes: 687_402 },
    ],
    nodeInfo: {
      ...facts.system,
      containerRuntimeVersion: 'containerd://1.6.20',
      kubeletVersion: 'v1.36.2',
      kubeProxyVersion: '',
    },
  });
});

test('reservations are subtracted from the allocatable amounts of every resource, which are never negative', () => {
  const hugePages = new Map([['2Mi', 512 * 2 * KIB * KIB]]);
  const reported = status({
    capacity: { ...facts.capacity, memoryBytes: 8 * 2 ** 30, hugePages },
    reserved: { cpu: 0.1 + 0.2, memory: 2 ** 30, 'hugepages-2Mi': 64 * 2 ** 20, 'ephemeral-storage': 2 ** 50 },
  });
  assert.deepEqual(reported?.capacity?.['hugepages-2Mi'], '1Gi');
  assert.deepEqual(reported?.allocatable, {
    cpu: '1700m',
    memory: '6Gi',
    pods: '110',
    'hugepages-2Mi': '960Mi',
    'ephemeral-storage': '0',
  });
});

test('the number of pods is limited by CPUs if this is configured', () => {
  assert.equal(status({ podsPerCore: 10 })?.capacity?.['pods'], '20');
  assert.equal(status({ podsPerCore: 100 })?.capacity?.['pods'], '110');
});

test('images are capped, the largest first; names are at most five', () => {
  const images = Array.from({ length: 60 }, (_, index) => ({
    id: `i${index}`,
    repoTags: Array.from({ length: 6 }, (_unused, tag) => `img${index}:${tag}`),
    repoDigests: [`img${index}@sha256:${index}`],
    sizeBytes: index,
    user: '',
    pinned: false,
  }));
  const reported = status({ images })?.images ?? [];
  assert.deepEqual(
    [reported.length, reported[0]?.sizeBytes, reported.at(-1)?.sizeBytes, reported[0]?.names?.length],
    [50, 59, 10, 5],
  );
  assert.equal(reported[0]?.names?.[0], 'img59@sha256:59');
  assert.equal(status({ images, maxImages: -1 })?.images?.length, 60);
});

test('devices are reported as their plugins report them; extended resources of others stay', () => {
  const before = {
    ...BLANK,
    status: { capacity: { 'example.com/dongle': '4' }, allocatable: { 'example.com/lost': '4' } },
  } as NodeObject;
  const reported = status(
    { deviceCapacity: { capacity: { 'example.com/gpu': '2' }, allocatable: { 'example.com/gpu': '1' } } },
    before,
  );
  // A client that advertises a resource writes only the capacity.
  assert.deepEqual(
    [reported?.capacity?.['example.com/dongle'], reported?.allocatable?.['example.com/dongle']],
    ['4', '4'],
  );
  assert.equal(reported?.allocatable?.['example.com/lost'], undefined);
  assert.deepEqual([reported?.capacity?.['example.com/gpu'], reported?.allocatable?.['example.com/gpu']], ['2', '1']);
});

test('the handlers and features of the runtime are reported', () => {
  const reported = status({
    features: {
      handlers: [{ name: '', recursiveReadOnlyMounts: true, userNamespaces: false }],
      supplementalGroupsPolicy: true,
    },
  });
  assert.deepEqual(reported?.runtimeHandlers, [
    { name: '', features: { recursiveReadOnlyMounts: true, userNamespaces: false } },
  ]);
  assert.deepEqual(reported?.features, { supplementalGroupsPolicy: true });
});

test('a condition keeps the moment of its change, and heartbeats alone are no change', () => {
  const first = withStatus(BLANK, facts);
  const later = withStatus(first, { ...facts, now: '2026-11-21T10:31:39Z' });
  const ready = later.status?.conditions?.find(({ type }) => type === 'Ready');
  assert.deepEqual([ready?.lastTransitionTime, ready?.lastHeartbeatTime], [NOW, '2026-11-21T10:31:39Z']);
  assert.deepEqual(statusChanges(first.status, later.status), {});
  const broken = withStatus(later, {
    ...facts,
    runtimeErrors: ['container runtime is down'],
    networkErrors: ['no network'],
    now: 'x',
  });
  const state = broken.status?.conditions?.find(({ type }) => type === 'Ready');
  assert.deepEqual(
    [state?.status, state?.reason, state?.message, state?.lastTransitionTime],
    ['False', 'KubeletNotReady', '[container runtime is down, no network]', 'x'],
  );
  assert.deepEqual(Object.keys(statusChanges(later.status, broken.status)), ['conditions']);
});

for (const [text, expected] of [
  ['1.6.20~ds1', '1.6.20'],
  ['v1.7.3', '1.7.3'],
  ['1.6.20', '1.6.20'],
  ['20.10.24+dfsg1', '20.10.24+dfsg1'],
  ['2.0.0-rc.1', '2.0.0-rc.1'],
  ['1.30', '1.30'],
  ['unknown', 'unknown'],
] as const)
  test(`the version ${text} of a runtime is reported as ${expected}`, () =>
    assert.equal(semanticVersion(text), expected));
