import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseCidr } from '../../../../api/meta/ip-addresses.ts';
import type { Node, Pod } from '../../../../api/kinds/kinds.ts';
import { events, nodes, pods } from '../../../../api/client/resources.ts';
import { firstFree, runNodeIpam } from '../../../../controlplane/controllers/node/node-ipam.ts';
import { wantedTaints } from '../../../../controlplane/controllers/node/node-health.ts';
import { runNodeLifecycle } from '../../../../controlplane/controllers/node/node-lifecycle.ts';
import { nextStep, runNodeTtl, secondsOf, TTL_ANNOTATION } from '../../../../controlplane/controllers/node/node-ttl.ts';
import { runTaintEviction } from '../../../../controlplane/controllers/node/taint-eviction.ts';
import {
  runPodGarbageCollector,
  surplusFinished,
} from '../../../../controlplane/controllers/pod/pod-garbage-collector.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const node = (name: string, spec: Node['spec'] = {}): Node => ({ metadata: { name }, spec });

describe('ranges of pod addresses', () => {
  test('the first free one is allocated', () => {
    const cluster = parseCidr('10.0.0.0/22');
    assert.ok(cluster);
    assert.equal(firstFree(cluster, 24, new Set(['10.0.0.0/24', '10.0.2.0/24'])), '10.0.1.0/24');
    const all = [0, 1, 2, 3].map((at) => `10.0.${at}.0/24`);
    assert.equal(firstFree(cluster, 24, new Set(all)), undefined);
  });

  test('each node gets its own, one of each family, and keeps what it has', async () => {
    const t = controllerTest({
      objects: [
        [nodes, node('old', { podCIDR: '10.0.0.0/24', podCIDRs: ['10.0.0.0/24'] })],
        [nodes, node('a')],
        [nodes, node('b')],
      ],
      options: { clusterCidrs: ['10.0.0.0/16', 'fd00::/56'], nodeCidrMaskSizeIpv6: 64 },
    });
    await t.start(runNodeIpam);
    await t.advance(1000);
    const ranges = ['old', 'a', 'b'].map((name) => t.client.peek(nodes, '', name)?.spec?.podCIDRs);
    assert.deepEqual(ranges, [['10.0.0.0/24'], ['10.0.1.0/24', 'fd00::/64'], ['10.0.2.0/24', 'fd00:0:0:1::/64']]);
    await t.stop();
  });

  test('the range of a deleted node is allocated again', async () => {
    const t = controllerTest({
      objects: [[nodes, node('a', { podCIDRs: ['10.0.0.0/24'] })]],
      options: { clusterCidrs: ['10.0.0.0/24'] },
    });
    await t.start(runNodeIpam);
    t.client.seed(nodes, node('b'));
    await t.advance(1000);
    assert.equal(t.client.peek(nodes, '', 'b')?.spec?.podCIDRs, undefined);
    await t.client.delete(nodes, '', 'a');
    await t.advance(120_000);
    assert.deepEqual(t.client.peek(nodes, '', 'b')?.spec?.podCIDRs, ['10.0.0.0/24']);
    await t.stop();
  });
});

test('the labels of before Kubernetes 1.14 follow the stable ones', async () => {
  const labels = { 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': 'arm64', 'beta.kubernetes.io/arch': 'amd64' };
  const t = controllerTest({
    objects: [
      [nodes, { metadata: { name: 'a', labels } }],
      [nodes, node('b')],
    ],
  });
  await t.start(runNodeLifecycle);
  await t.advance(1000);
  assert.deepEqual(t.client.peek(nodes, '', 'a')?.metadata.labels, {
    ...labels,
    'beta.kubernetes.io/os': 'linux',
    'beta.kubernetes.io/arch': 'arm64',
  });
  assert.equal(t.client.peek(nodes, '', 'b')?.metadata.labels, undefined);
  await t.stop();
});

describe('how long nodes keep what they read', () => {
  test('grows with their number, and does not swing at a border', () => {
    assert.equal(secondsOf(nextStep(0, 100)), 0);
    assert.equal(secondsOf(nextStep(0, 101)), 15);
    assert.equal(secondsOf(nextStep(1, 95)), 15);
    assert.equal(secondsOf(nextStep(1, 89)), 0);
    assert.equal(secondsOf(nextStep(0, 20_000)), 600);
  });
  test('is an annotation of each node', async () => {
    const t = controllerTest({ objects: [[nodes, node('a')]] });
    await t.start(runNodeTtl);
    await t.advance(100);
    assert.equal(t.client.peek(nodes, '', 'a')?.metadata.annotations?.[TTL_ANNOTATION], '0');
    await t.stop();
  });
});

const pod = (name: string, phase: string, nodeName = '', extra: Partial<Pod['metadata']> = {}): Pod => ({
  metadata: { name, namespace: 'n', creationTimestamp: `2026-01-01T00:00:0${name.length}Z`, ...extra },
  spec: { containers: [], ...(nodeName === '' ? {} : { nodeName }) },
  status: { phase },
});

describe('pods that no other part removes', () => {
  test('of the finished ones the oldest go, evicted ones first', () => {
    const evicted: Pod = { ...pod('evicted', 'Failed'), status: { phase: 'Failed', reason: 'Evicted' } };
    const all = [pod('a', 'Succeeded'), pod('bb', 'Failed'), evicted, pod('run', 'Running')];
    assert.deepEqual(
      surplusFinished(all, 1).map(({ metadata }) => metadata.name),
      ['evicted', 'a'],
    );
    assert.deepEqual(surplusFinished(all, 0), []);
  });

  test('are those of a node that stays unreachable', async () => {
    const t = controllerTest({
      objects: [
        [nodes, node('here')],
        [pods, pod('stays', 'Running', 'here')],
        [pods, pod('goes', 'Running', 'gone')],
      ],
    });
    await t.start(runPodGarbageCollector);
    await t.advance(39_000);
    assert.ok(t.client.peek(pods, 'n', 'goes'), 'the node may come back');
    await t.advance(10_000);
    assert.equal(t.client.peek(pods, 'n', 'goes'), undefined);
    assert.ok(t.client.peek(pods, 'n', 'stays'));
    await t.stop();
  });

  test('are those that terminate on a node that is out of service and does not respond', async () => {
    const leaving = (name: string, nodeName: string): Pod => {
      const made = pod(name, 'Running', nodeName);
      return { ...made, metadata: { ...made.metadata, deletionTimestamp: '2026-01-02T03:04:05Z' } };
    };
    const down = (name: string, ready: string, taints: object[]): Node =>
      ({
        ...node(name),
        spec: { taints },
        status: { conditions: [{ type: 'Ready', status: ready }] },
      }) as unknown as Node;
    const outOfService = { key: 'node.kubernetes.io/out-of-service', value: 'nodeshutdown', effect: 'NoExecute' };
    const t = controllerTest({
      objects: [
        [nodes, down('dead', 'Unknown', [outOfService])],
        [nodes, down('alive', 'True', [outOfService])],
        [nodes, down('slow', 'Unknown', [])],
        ...['dead', 'alive', 'slow'].map((name) => [pods, leaving(`on-${name}`, name)] as const),
        [pods, pod('stays', 'Running', 'dead')],
      ],
    });
    await t.start(runPodGarbageCollector);
    await t.advance(1_000);
    const left = (): string[] =>
      t.client
        .peekAll(pods)
        .map(({ metadata }) => metadata.name ?? '')
        .toSorted();
    assert.deepEqual(left(), ['on-alive', 'on-slow', 'stays']);
    t.client.seed(nodes, down('slow', 'Unknown', [outOfService]));
    await t.advance(1_000);
    assert.deepEqual(left(), ['on-alive', 'stays']);
    await t.stop();
  });

  test('are not those of a node that came back', async () => {
    const t = controllerTest({ objects: [[pods, pod('p', 'Running', 'late')]] });
    await t.start(runPodGarbageCollector);
    t.client.seed(nodes, node('late'));
    await t.advance(60_000);
    assert.ok(t.client.peek(pods, 'n', 'p'));
    await t.stop();
  });
});

test('events report that a node was registered and that it was deleted', async () => {
  const t = controllerTest({ objects: [[nodes, node('a')]] });
  await t.start(runNodeLifecycle);
  await t.client.delete(nodes, '', 'a');
  await t.advance(100);
  assert.deepEqual(t.events(), [
    'Normal RegisteredNode Node a event: Registered Node a in Controller',
    'Normal RemovingNode Node a event: Removing Node a from Controller',
  ]);
  for (const { involvedObject } of t.client.peekAll(events))
    assert.deepEqual(Object.keys(involvedObject ?? {}).toSorted(), ['apiVersion', 'kind', 'name', 'uid']);
  await t.stop();
});

test('every taint of a condition says since when', () => {
  const conditions = [
    { type: 'Ready', status: 'False' },
    { type: 'MemoryPressure', status: 'True' },
  ];
  const unhealthy: Node = { ...node('a', { unschedulable: true }), status: { conditions } };
  const taints = wantedTaints(unhealthy, { mayEvict: true, nowMs: 0 });
  assert.deepEqual(taints.map(({ key, effect }) => `${key.slice('node.kubernetes.io/'.length)} ${effect}`).toSorted(), [
    'memory-pressure NoSchedule',
    'not-ready NoExecute',
    'not-ready NoSchedule',
    'unschedulable NoSchedule',
  ]);
  for (const { timeAdded } of taints) assert.equal(timeAdded, '1970-01-01T00:00:00Z');
});

test('a pod that a taint evicts is marked with its generation, and the event names no version of it', async () => {
  const tainted = node('a', { taints: [{ key: 'k', effect: 'NoExecute' }] });
  const pod = {
    metadata: { name: 'p', namespace: 'n', uid: 'u', generation: 3, finalizers: ['x.y/z'] },
    spec: { nodeName: 'a', containers: [] },
    status: { phase: 'Running' },
  } as unknown as Pod;
  const t = controllerTest({
    objects: [
      [nodes, tainted],
      [pods, pod],
    ],
  });
  await t.start(runTaintEviction);
  await t.advance(1000);
  const condition = t.client.peek(pods, 'n', 'p')?.status?.conditions?.find(({ type }) => type === 'DisruptionTarget');
  assert.equal(condition?.observedGeneration, 3);
  const [event] = t.client.peekAll(events);
  assert.equal(event?.message, 'Marking for deletion Pod n/p');
  assert.deepEqual(event?.involvedObject, { apiVersion: 'v1', kind: 'Pod', namespace: 'n', name: 'p' });
  await t.stop();
});
