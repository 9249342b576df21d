/** Tests which nodes pass the filters, compared with kube-scheduler: one row for each rule. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nodesToFind } from '../../../../controlplane/scheduler/fit.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { podOf, SchedulerCluster, type PodWords } from '../../../fakes/scheduler-cluster.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const ZONE = 'zone';
const required = (kind: 'podAffinity' | 'podAntiAffinity', term: object): object => ({
  affinity: {
    [kind]: { requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey: ZONE, ...term }] },
  },
});
const web = { labelSelector: { matchLabels: { app: 'web' } } };
const spread = (constraint: object): object => ({
  topologySpreadConstraints: [
    { maxSkew: 1, topologyKey: ZONE, whenUnsatisfiable: 'DoNotSchedule', ...web, ...constraint },
  ],
});
const labels = { app: 'web' };
const hostPort = (port: object): object => ({ containers: [{ name: 'c', ports: [{ containerPort: 80, ...port }] }] });

interface Row {
  readonly requirement: string;
  /** The pods on the nodes `a` (zone 1), `b` (zone 2) and `c` (zone 2, tainted, label disk=ssd). */
  readonly pods?: Readonly<Record<string, PodWords & { readonly node: string }>>;
  readonly pod: PodWords;
  readonly fits: readonly string[];
}

const tolerant = { tolerations: [{ operator: 'Exists' }] };

const rows: readonly Row[] = [
  {
    requirement: 'affinity looks only into the namespace of the pod',
    pods: { w: { node: 'a', labels, namespace: 'other' } },
    pod: { spec: required('podAffinity', web) },
    fits: [],
  },
  {
    requirement: 'affinity looks into named namespaces instead',
    pods: { w: { node: 'a', labels, namespace: 'other' } },
    pod: { spec: required('podAffinity', { ...web, namespaces: ['other'] }) },
    fits: ['a'],
  },
  {
    requirement: 'affinity looks into namespaces by their labels',
    pods: { w: { node: 'a', labels, namespace: 'other' }, x: { node: 'b', labels } },
    pod: { spec: required('podAffinity', { ...web, namespaceSelector: { matchLabels: { team: 't' } } }) },
    fits: ['a'],
  },
  {
    requirement: 'an empty namespace selector means all namespaces',
    pods: { w: { node: 'a', labels, namespace: 'other' } },
    pod: { spec: required('podAffinity', { ...web, namespaceSelector: {} }) },
    fits: ['a'],
  },
  {
    requirement: 'the first of a group of pods that want to be together may go anywhere',
    pod: { labels, spec: required('podAffinity', web) },
    fits: ['a', 'b'],
  },
  {
    requirement: 'a term without a selector selects no pod',
    pods: { w: { node: 'a', labels } },
    pod: { spec: required('podAntiAffinity', {}) },
    fits: ['a', 'b'],
  },
  {
    requirement: 'anti-affinity holds for the topology of the node, not for the node alone',
    pods: { w: { node: 'c', labels } },
    pod: { spec: required('podAntiAffinity', web) },
    fits: ['a'],
  },
  {
    requirement: 'anti-affinity of running pods keeps others away',
    pods: { w: { node: 'b', spec: required('podAntiAffinity', web) } },
    pod: { labels },
    fits: ['a'],
  },
  {
    requirement: 'matchLabelKeys limits affinity to pods of the same value',
    pods: {
      old: { node: 'a', labels: { ...labels, hash: '1' } },
      now: { node: 'b', labels: { ...labels, hash: '2' } },
    },
    pod: { labels: { ...labels, hash: '2' }, spec: required('podAffinity', { ...web, matchLabelKeys: ['hash'] }) },
    fits: ['b'],
  },
  {
    requirement: 'mismatchLabelKeys limits anti-affinity to pods of other values',
    pods: {
      theirs: { node: 'a', labels: { ...labels, tenant: '1' } },
      ours: { node: 'b', labels: { ...labels, tenant: '2' } },
    },
    pod: {
      labels: { ...labels, tenant: '2' },
      spec: required('podAntiAffinity', { ...web, mismatchLabelKeys: ['tenant'] }),
    },
    fits: ['b'],
  },
  {
    requirement: 'spreading goes to the topology with the fewest pods',
    pods: { w: { node: 'a', labels } },
    pod: { labels, spec: spread({}) },
    fits: ['b'],
  },
  {
    requirement: 'spreading does not count pods that terminate',
    pods: { w: { node: 'a', labels, metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } } },
    pod: { labels, spec: spread({}) },
    fits: ['a', 'b'],
  },
  {
    requirement: 'minDomains takes missing topologies for empty ones',
    pods: { w: { node: 'a', labels }, x: { node: 'b', labels } },
    pod: { labels, spec: spread({ minDomains: 3 }) },
    fits: [],
  },
  {
    requirement: 'spreading with matchLabelKeys counts pods of the same value',
    pods: { old: { node: 'a', labels: { ...labels, hash: '1' } } },
    pod: { labels: { ...labels, hash: '2' }, spec: spread({ matchLabelKeys: ['hash'] }) },
    fits: ['a', 'b'],
  },
  {
    requirement: 'spreading honours node affinity: topologies that the pod cannot reach do not count',
    pods: { w: { node: 'a', labels } },
    pod: { labels, spec: { ...spread({}), nodeSelector: { 'kubernetes.io/hostname': 'a' } } },
    fits: ['a'],
  },
  {
    requirement: 'nodeAffinityPolicy Ignore counts them',
    pods: { w: { node: 'a', labels } },
    pod: {
      labels,
      spec: { ...spread({ nodeAffinityPolicy: 'Ignore' }), nodeSelector: { 'kubernetes.io/hostname': 'a' } },
    },
    fits: [],
  },
  {
    requirement: 'nodeTaintsPolicy Honor leaves out nodes whose taints the pod does not tolerate',
    pods: { w: { node: 'a', labels } },
    pod: { labels, spec: spread({ topologyKey: 'kubernetes.io/hostname', nodeTaintsPolicy: 'Honor' }) },
    fits: ['b'],
  },
  {
    requirement: 'a host port is free for another protocol and another address',
    pods: {
      udp: { node: 'a', spec: hostPort({ hostPort: 80, protocol: 'UDP' }) },
      other: { node: 'b', spec: hostPort({ hostPort: 80, hostIP: '10.0.0.1' }) },
    },
    pod: { spec: hostPort({ hostPort: 80, hostIP: '10.0.0.2' }) },
    fits: ['a', 'b'],
  },
  {
    requirement: 'a host port on all addresses collides with one on a single address',
    pods: { other: { node: 'b', spec: hostPort({ hostPort: 80, hostIP: '10.0.0.1' }) } },
    pod: { spec: hostPort({ hostPort: 80 }) },
    fits: ['a'],
  },
  { requirement: 'a toleration without key tolerates every taint', pod: { spec: tolerant }, fits: ['a', 'b', 'c'] },
  {
    requirement: 'several node selector terms are alternatives, and a term without expressions selects nothing',
    pod: {
      spec: {
        ...tolerant,
        affinity: {
          nodeAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: {
              nodeSelectorTerms: [
                {},
                { matchExpressions: [{ key: 'disk', operator: 'In', values: ['ssd'] }] },
                { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['a'] }] },
              ],
            },
          },
        },
      },
    },
    fits: ['a', 'c'],
  },
];

function cluster(): SchedulerCluster {
  const made = new SchedulerCluster()
    .node('a', { labels: { zone: '1' } })
    .node('b', { labels: { zone: '2' } })
    .node('c', {
      labels: { zone: '2', disk: 'ssd' },
      node: { spec: { taints: [{ key: 'dedicated', value: 'x', effect: 'NoSchedule' }] } },
    });
  made.namespaces.set('other', { team: 't' });
  return made;
}

describe('the filters of the scheduler', () => {
  for (const { requirement, pods = {}, pod, fits } of rows) {
    it(requirement, async () => {
      const made = cluster();
      for (const [name, { node, ...words }] of Object.entries(pods)) made.pod(name, node, words);
      assert.deepEqual(await made.fits(podOf('p', pod)), fits);
    });
  }

  it('keep pods that may restart all their containers to nodes that declare the feature', async () => {
    const restartPolicyRules = [{ action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [1] } }];
    const cluster = new SchedulerCluster().node('old').node('new', {
      node: { status: { allocatable: { pods: '10' }, declaredFeatures: ['RestartAllContainersOnContainerExits'] } },
    });
    const pod = podOf('p', { spec: { containers: [{ name: 'c', image: 'i', restartPolicyRules }] } });
    const { nodes, rejections } = await cluster.fit(pod);
    assert.deepEqual(
      [nodes.map(({ name }) => name), rejections.map(({ reasons }) => reasons)],
      [['new'], [["node(s) didn't match Pod's required features"]]],
    );
    assert.deepEqual(await cluster.fits(podOf('q')), ['new', 'old']);
  });

  it('compare tens of thousands of host ports of two pods in time that grows with their number', async () => {
    const run = async (size: number): Promise<void> => {
      const ports = (from: number): object => ({
        containers: [{ name: 'c', ports: Array.from({ length: size }, (_, at) => ({ hostPort: from + at })) }],
      });
      const crowded = new SchedulerCluster().node('a').pod('other', 'a', { spec: ports(30_000) });
      assert.deepEqual(await crowded.fits(podOf('free', { spec: ports(1) })), ['a']);
      assert.deepEqual(await crowded.fits(podOf('taken', { spec: ports(30_001 - size) })), []);
    };
    await assertLinearTime(run, { minBytes: 1_000, maxBytes: 25_000, noticeableMs: 100 });
  });

  it('reckon with nominated pods, and without them', async () => {
    const nominated = new PodInfo(podOf('n', { cpu: '3', labels, priority: 10 }));
    const on = (name: string) => (node: { readonly name: string }) => (node.name === name ? [nominated] : []);
    assert.deepEqual(await cluster().fits(podOf('p', { cpu: '2' }), on('a')), ['b']);
    const near = podOf('p', { spec: required('podAffinity', web) });
    assert.deepEqual(await cluster().fits(near, on('a')), [], 'a nominated pod is no company until it runs');
  });

  it('stop at the share of nodes that kube-scheduler compares', () => {
    const expected = { 50: 50, 100: 100, 200: 100, 500: 230, 1000: 420, 5000: 500, 10_000: 500 };
    for (const [count, wanted] of Object.entries(expected)) assert.equal(nodesToFind(Number(count)), wanted, count);
  });

  it('give all nodes of a large cluster their turn, zone by zone', async () => {
    const large = new SchedulerCluster();
    for (let at = 0; at < 300; at += 1)
      large.node(`n${at}`, { labels: { 'topology.kubernetes.io/zone': `z${Math.floor(at / 100)}` } });
    const zones = (await large.fit(podOf('p'))).nodes.map((node) => node.labels['topology.kubernetes.io/zone']);
    assert.equal(zones.length, nodesToFind(300));
    const inFirst = zones.filter((zone) => zone === 'z0').length;
    assert.ok(Math.abs(inFirst - zones.length / 3) <= 1, `${inFirst} of ${zones.length}`);
  });
});
