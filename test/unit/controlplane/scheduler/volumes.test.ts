/** Tests how claims of a pod restrict its nodes, compared with kube-scheduler: one row for each reason. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../../../api/kinds/kinds.ts';
import type { Cluster } from '../../../../controlplane/scheduler/cluster-state.ts';
import {
  nodeVolumeLimits,
  volumeBinding,
  volumeRestrictions,
  volumeZone,
} from '../../../../controlplane/scheduler/filters/volume-filters.ts';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import type { FilterPlugin } from '../../../../controlplane/scheduler/plugin.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { claimsOf, decide } from '../../../../controlplane/scheduler/volumes.ts';
import { podOf, SchedulerCluster } from '../../../fakes/scheduler-cluster.ts';

interface ClaimWords {
  readonly class?: string;
  readonly volume?: string;
  readonly bound?: boolean;
  readonly storage?: string;
  readonly selectedNode?: string;
  readonly spec?: object;
  readonly metadata?: object;
  readonly phase?: string;
}

function claim(name: string, words: ClaimWords = {}): PersistentVolumeClaim {
  const { class: storageClassName = 'late', volume, bound = volume !== undefined, storage = '1Gi', phase } = words;
  const annotations = {
    ...(bound ? { 'pv.kubernetes.io/bind-completed': 'yes' } : {}),
    ...(words.selectedNode === undefined ? {} : { 'volume.kubernetes.io/selected-node': words.selectedNode }),
  };
  return {
    metadata: { name, namespace: 'default', uid: `uid-${name}`, annotations, ...words.metadata },
    spec: {
      storageClassName,
      volumeName: volume,
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage } },
      ...words.spec,
    },
    status: { phase },
  } as unknown as PersistentVolumeClaim;
}

function volume(name: string, spec: object = {}, metadata: object = {}, phase = 'Available'): PersistentVolume {
  return {
    metadata: { name, ...metadata },
    spec: { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'], storageClassName: 'late', ...spec },
    status: { phase },
  } as unknown as PersistentVolume;
}

const onNode = (name: string): object => ({
  nodeAffinity: {
    required: {
      nodeSelectorTerms: [{ matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [name] }] }],
    },
  },
});

interface Storage {
  readonly claims?: readonly PersistentVolumeClaim[];
  readonly volumes?: readonly PersistentVolume[];
  readonly classes?: readonly object[];
  readonly csiNodes?: readonly object[];
}

const LATE = { metadata: { name: 'late' }, provisioner: 'example.com/disk', volumeBindingMode: 'WaitForFirstConsumer' };
const MANUAL = { ...LATE, provisioner: 'kubernetes.io/no-provisioner' };

function clusterOf({ claims = [], volumes = [], classes = [MANUAL], csiNodes = [] }: Storage): {
  readonly cluster: Cluster;
  readonly base: SchedulerCluster;
} {
  const base = new SchedulerCluster().node('a', { labels: { 'topology.kubernetes.io/zone': '1' } }).node('b', {
    labels: { 'topology.kubernetes.io/zone': '2' },
  });
  const named = <T extends { metadata: { name?: string } }>(list: readonly object[], name: string): T | undefined =>
    (list as readonly T[]).find(({ metadata }) => metadata.name === name);
  const cluster: Cluster = {
    ...base.cluster,
    nodes: base.cluster.nodes,
    claim: (namespace, name) => (namespace === 'default' ? named(claims, name) : undefined),
    volume: (name) => named(volumes, name),
    volumes: () => volumes,
    storageClass: (name) => named<StorageClass>(classes, name),
    csiNode: (name) => named<CSINode>(csiNodes, name),
  };
  return { cluster, base };
}

const podWith = (...claims: readonly string[]): PodInfo =>
  new PodInfo(
    podOf('p', {
      spec: { volumes: claims.map((name) => ({ name, persistentVolumeClaim: { claimName: name } })) },
    }),
  );

/** Returns `fits` or the reasons for each node, or the reason for all nodes. */
async function outcome(filter: FilterPlugin, pod: PodInfo, cluster: Cluster): Promise<unknown> {
  const prepared = await filter.prepare(pod, cluster, new TimeSlice({ monotonic: () => 0 }));
  if (prepared === undefined) return 'does not concern the pod';
  if (!('check' in prepared)) return prepared.reasons;
  return Object.fromEntries(cluster.nodes.map((node) => [node.name, prepared.check(node)?.reasons ?? 'fits']));
}

test('a pod waits with the reason of the first of its claims that cannot be used', () => {
  const text = (storage: Storage, pod = podWith('c')): unknown => claimsOf(pod, clusterOf(storage).cluster);
  assert.equal(text({}), 'persistentvolumeclaim "c" not found');
  const ephemeral = new PodInfo(podOf('p', { spec: { volumes: [{ name: 'v', ephemeral: {} }] } }));
  assert.equal(
    text({}, ephemeral),
    'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
  );
  const deleted = claim('c', { metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } });
  assert.equal(text({ claims: [deleted] }), 'persistentvolumeclaim "c" is being deleted');
  assert.equal(
    text({ claims: [claim('c', { volume: 'v', phase: 'Lost' })] }),
    'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
  );
  const unbound = 'pod has unbound immediate PersistentVolumeClaims';
  assert.equal(text({ claims: [claim('c', { class: 'fast' })] }), unbound);
  assert.equal(text({ claims: [claim('c', { volume: 'v', bound: false })] }), unbound);
});

test('a waiting claim gets the smallest volume that suits it on the node, and no volume twice', () => {
  const volumes = [
    volume('large', { capacity: { storage: '8Gi' } }),
    volume('elsewhere', onNode('b')),
    volume('small', { capacity: { storage: '512Mi' } }),
    volume('other-class', { storageClassName: 'x' }),
    volume('block', { volumeMode: 'Block' }),
    volume('shared-only', { accessModes: ['ReadOnlyMany'] }),
    volume('released', {}, {}, 'Released'),
    volume('deleted', {}, { deletionTimestamp: '2026-01-01T00:00:00Z' }),
    volume('reserved', { claimRef: { name: 'd', namespace: 'default' } }),
    volume('of-an-older-claim', { claimRef: { name: 'c', namespace: 'default', uid: 'older' } }),
    volume('medium', { capacity: { storage: '2Gi' } }),
  ];
  const { cluster } = clusterOf({ volumes });
  const [node] = cluster.nodes.filter(({ name }) => name === 'a');
  assert.ok(node !== undefined);
  const matched = (...claims: readonly PersistentVolumeClaim[]): unknown =>
    decide(claims, node, cluster)?.matches.map(({ volume: { metadata } }) => metadata.name);
  assert.deepEqual(matched(claim('c')), ['medium']);
  assert.deepEqual(matched(claim('c'), claim('e')), ['medium', 'large']);
  assert.deepEqual(matched(claim('d')), ['reserved']);
  assert.deepEqual(matched(claim('f', { class: 'x', spec: { accessModes: [] } })), ['other-class']);
  assert.equal(matched(claim('c', { storage: '9Gi' })), undefined);
  const labelled = claim('c', { spec: { selector: { matchLabels: { tier: 'gold' } } } });
  assert.equal(matched(labelled), undefined);
});

test('a volume that is reserved for a claim is the only one that it gets, whatever its class is', async () => {
  const claimRef = { name: 'c', namespace: 'default', uid: '' };
  const reserved = { claimRef, storageClassName: 'x', capacity: { storage: '8Gi' }, ...onNode('b') };
  const volumes = [volume('small'), volume('reserved', reserved, {}, 'Pending')];
  const { cluster } = clusterOf({ claims: [claim('c')], volumes });
  const matched = cluster.nodes.map((node) => decide([claim('c')], node, cluster)?.matches[0]?.volume.metadata.name);
  assert.deepEqual(matched, [undefined, 'reserved']);
});

test('a claim without a volume is provisioned where its class allows it, and only on its selected node', async () => {
  const zone2 = { matchLabelExpressions: [{ key: 'topology.kubernetes.io/zone', values: ['2'] }] };
  const none = ["node(s) didn't find available persistent volumes to bind"];
  const fits = (classes: readonly object[], one = claim('c')): Promise<unknown> =>
    outcome(volumeBinding, podWith('c'), clusterOf({ claims: [one], classes }).cluster);
  assert.deepEqual(await fits([LATE]), { a: 'fits', b: 'fits' });
  assert.deepEqual(await fits([{ ...LATE, allowedTopologies: [zone2] }]), { a: none, b: 'fits' });
  assert.deepEqual(await fits([MANUAL]), { a: none, b: none });
  assert.deepEqual(await fits([LATE], claim('c', { selectedNode: 'b' })), { a: none, b: 'fits' });
});

test('a bound volume decides by its node affinity, and a missing volume excludes every node', async () => {
  const fits = (volumes: readonly PersistentVolume[]): Promise<unknown> =>
    outcome(volumeBinding, podWith('c'), clusterOf({ claims: [claim('c', { volume: 'v' })], volumes }).cluster);
  assert.deepEqual(await fits([volume('v', onNode('b'))]), {
    a: ["node(s) didn't match PersistentVolume's node affinity"],
    b: 'fits',
  });
  const missing = ['node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)'];
  assert.deepEqual(await fits([]), { a: missing, b: missing });
});

test('a volume with zone labels fits only nodes of one of its zones', async () => {
  const fits = (labels: object): Promise<unknown> =>
    outcome(
      volumeZone,
      podWith('c'),
      clusterOf({ claims: [claim('c', { volume: 'v' })], volumes: [volume('v', {}, { labels })] }).cluster,
    );
  const wrong = ['node(s) had no available volume zone'];
  assert.deepEqual(await fits({ 'topology.kubernetes.io/zone': '1' }), { a: 'fits', b: wrong });
  assert.deepEqual(await fits({ 'topology.kubernetes.io/zone': '1__2' }), { a: 'fits', b: 'fits' });
  assert.deepEqual(await fits({ 'topology.kubernetes.io/region': 'r' }), { a: wrong, b: wrong });
  assert.deepEqual(await fits({ 'failure-domain.beta.kubernetes.io/zone': '2' }), { a: wrong, b: 'fits' });
  assert.equal(await fits({ 'topology.kubernetes.io/zone': '1__' }), 'does not concern the pod');
  assert.equal(await fits({}), 'does not concern the pod');
});

test('a volume with zone labels fits every node of a cluster whose nodes have none', async () => {
  const zoned = volume('v', {}, { labels: { 'topology.kubernetes.io/zone': '1' } });
  const { cluster, base } = clusterOf({ claims: [claim('c', { volume: 'v' })], volumes: [zoned] });
  base.node('a').node('b');
  const unlabelled: Cluster = { ...cluster, nodes: base.cluster.nodes };
  assert.deepEqual(await outcome(volumeZone, podWith('c'), unlabelled), { a: 'fits', b: 'fits' });
});

test('a node holds no more volumes of a driver than the driver reports, and a shared volume counts once', async () => {
  const csi = (volumeHandle: string): object => ({ csi: { driver: 'd', volumeHandle } });
  const storage: Storage = {
    claims: [claim('x', { volume: 'vx' }), claim('y', { volume: 'vy' })],
    volumes: [volume('vx', csi('1')), volume('vy', csi('2'))],
    csiNodes: ['a', 'b'].map((name) => ({
      metadata: { name },
      spec: { drivers: [{ name: 'd', allocatable: { count: 1 } }] },
    })),
  };
  const { cluster, base } = clusterOf(storage);
  const volumes = [{ name: 'v', persistentVolumeClaim: { claimName: 'x' } }];
  base.pod('old', 'a', { spec: { volumes } });
  const full = ['node(s) exceed max volume count'];
  assert.deepEqual(await outcome(nodeVolumeLimits, podWith('y'), cluster), { a: full, b: 'fits' });
  assert.deepEqual(await outcome(nodeVolumeLimits, podWith('x'), cluster), { a: 'fits', b: 'fits' });
  assert.equal(await outcome(nodeVolumeLimits, podWith(), cluster), 'does not concern the pod');
});

test('a claim for a single pod excludes every node while a pod uses it', async () => {
  const storage = { claims: [claim('c', { volume: 'v', spec: { accessModes: ['ReadWriteOncePod'] } })] };
  const { cluster, base } = clusterOf(storage);
  assert.deepEqual(await outcome(volumeRestrictions, podWith('c'), cluster), { a: 'fits', b: 'fits' });
  base.pod('user', 'a', { spec: { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] } });
  const reason = [
    'node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod',
  ];
  assert.deepEqual(await outcome(volumeRestrictions, podWith('c'), cluster), { a: reason, b: reason });
});
