/**
 * Tests which pods preemption selects, compared with kube-scheduler, and that it yields to the event loop in a large cluster.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../api/kinds/kinds.ts';
import { isBetter, type Preemption } from '../../../../controlplane/scheduler/preemption.ts';
import { PodInfo } from '../../../../controlplane/scheduler/pod-info.ts';
import { podOf, SchedulerCluster, type PodWords } from '../../../fakes/scheduler-cluster.ts';

const early = '2026-01-01T00:00:00Z';
const late = '2026-01-02T00:00:00Z';

interface Row {
  readonly requirement: string;
  /** The pods on the nodes `a` and `b`, which have 4 CPUs each. */
  readonly pods: Readonly<Record<string, PodWords & { readonly node: string }>>;
  readonly budgets?: readonly [string, object, number][];
  readonly pod: PodWords;
  readonly expected: readonly [string, ...string[]] | string;
}

const web = { app: 'web' };
const full = { cpu: '4', startTime: early };
const antiAffinity = {
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        { labelSelector: { matchLabels: web }, topologyKey: 'kubernetes.io/hostname' },
      ],
    },
  },
};
const spread = {
  topologySpreadConstraints: [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      labelSelector: { matchLabels: web },
    },
  ],
};

const rows: readonly Row[] = [
  {
    requirement: 'prefers the node with fewer violations of disruption budgets, also at a higher priority',
    pods: {
      a1: { ...full, node: 'a', priority: 1, labels: web },
      b1: { ...full, node: 'b', priority: 5 },
    },
    budgets: [['web', web, 0]],
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1'],
  },
  {
    requirement: 'takes a budget with an empty selector to cover no pod',
    pods: { a1: { ...full, node: 'a', priority: 1, labels: web }, b1: { ...full, node: 'b', priority: 5 } },
    budgets: [['all', {}, 0]],
    pod: { cpu: '4', priority: 10 },
    expected: ['a', 'a1'],
  },
  {
    requirement: 'counts a budget down: of two pods it allows one',
    pods: {
      a1: { cpu: '2', node: 'a', priority: 1, labels: web },
      a2: { cpu: '2', node: 'a', priority: 1, labels: web },
      b1: { cpu: '2', node: 'b', priority: 2 },
      b2: { cpu: '2', node: 'b', priority: 2 },
    },
    budgets: [['web', web, 1]],
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1', 'b2'],
  },
  {
    requirement: 'prefers the lowest priority among the highest victims',
    pods: {
      a1: { cpu: '2', node: 'a', priority: 7 },
      a2: { cpu: '2', node: 'a', priority: 1 },
      b1: { cpu: '2', node: 'b', priority: 6 },
      b2: { cpu: '2', node: 'b', priority: 6 },
    },
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1', 'b2'],
  },
  {
    requirement: 'prefers the lower sum of priorities',
    pods: {
      a1: { cpu: '2', node: 'a', priority: 6 },
      a2: { cpu: '2', node: 'a', priority: 5 },
      b1: { cpu: '2', node: 'b', priority: 6 },
      b2: { cpu: '2', node: 'b', priority: 4 },
    },
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1', 'b2'],
  },
  {
    requirement: 'prefers fewer victims, also when their priorities are negative',
    pods: {
      a1: { cpu: '2', node: 'a', priority: -10 },
      a2: { cpu: '2', node: 'a', priority: -10 },
      b1: { cpu: '4', node: 'b', priority: -10 },
    },
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1'],
  },
  {
    requirement: 'prefers victims that started later',
    pods: {
      a1: { cpu: '4', node: 'a', priority: 1, startTime: early },
      b1: { cpu: '4', node: 'b', priority: 1, startTime: late },
    },
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1'],
  },
  {
    requirement: 'counts a victim that has not started as the latest',
    pods: {
      a1: { cpu: '4', node: 'a', priority: 1, startTime: late },
      b1: { cpu: '4', node: 'b', priority: 1, metadata: { creationTimestamp: early } },
    },
    pod: { cpu: '4', priority: 10 },
    expected: ['b', 'b1'],
  },
  {
    requirement: 'spares the pods that the incoming pod has room beside, the most important ones first',
    pods: {
      a1: { cpu: '1', node: 'a', priority: 3 },
      a2: { cpu: '1', node: 'a', priority: 2 },
      a3: { cpu: '2', node: 'a', priority: 1 },
      b1: { ...full, node: 'b', priority: 20 },
    },
    pod: { cpu: '2', priority: 10 },
    expected: ['a', 'a3'],
  },
  {
    requirement: 'evicts the pod that anti-affinity of the incoming pod excludes',
    pods: {
      a1: { node: 'a', priority: 1, labels: web },
      a2: { node: 'a', priority: 1 },
      b1: { node: 'b', priority: 20, labels: web },
    },
    pod: { priority: 10, spec: antiAffinity },
    expected: ['a', 'a1'],
  },
  {
    requirement: 'evicts the pod whose own anti-affinity excludes the incoming pod',
    pods: {
      a1: { node: 'a', priority: 1, spec: antiAffinity },
      b1: { node: 'b', priority: 20, spec: antiAffinity },
    },
    pod: { priority: 10, labels: web },
    expected: ['a', 'a1'],
  },
  {
    requirement: 'evicts as many pods as a spread constraint requires',
    pods: {
      a1: { node: 'a', priority: 3, labels: web },
      a2: { node: 'a', priority: 2, labels: web },
      a3: { node: 'a', priority: 1, labels: web },
      b1: { ...full, node: 'b', priority: 20, labels: web },
    },
    pod: { cpu: '1', priority: 10, labels: web, spec: spread },
    expected: ['a', 'a2', 'a3'],
  },
  {
    requirement: 'reports the reasons that remain without the pods of lower priority',
    pods: {
      a1: { cpu: '3', node: 'a', priority: 20 },
      a2: { cpu: '1', node: 'a' },
      b1: { ...full, node: 'b', priority: 20 },
    },
    pod: { cpu: '2', priority: 10 },
    expected: '0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod.',
  },
  {
    requirement: 'waits while a victim of its preemption terminates on the nominated node',
    pods: {
      a1: {
        ...full,
        node: 'a',
        metadata: { deletionTimestamp: late },
        status: { conditions: [{ type: 'DisruptionTarget', status: 'True', reason: 'PreemptionByScheduler' }] },
      },
      b1: { ...full, node: 'b' },
    },
    pod: { cpu: '4', priority: 10, status: { nominatedNodeName: 'a' } },
    expected: 'not eligible due to a terminating pod on the nominated node.',
  },
  {
    requirement: 'does not wait for a pod of the nominated node that terminates for another reason',
    pods: {
      a1: { ...full, node: 'a', priority: 20 },
      a2: { node: 'a', metadata: { deletionTimestamp: late } },
      b1: { ...full, node: 'b' },
    },
    pod: { cpu: '4', priority: 10, status: { nominatedNodeName: 'a' } },
    expected: ['b', 'b1'],
  },
];

describe('preemption', () => {
  for (const { requirement, pods, budgets = [], pod, expected } of rows) {
    it(requirement, async () => {
      const cluster = new SchedulerCluster().node('a').node('b');
      for (const [name, { node, ...words }] of Object.entries(pods)) cluster.pod(name, node, words);
      for (const [name, labels, allowed] of budgets) cluster.budget(name, labels, allowed);
      const result = await cluster.preempt(podOf('p', pod));
      const found =
        typeof result === 'string' ? result : [result.node.name, ...result.victims.map(({ uid }) => uid).sort()];
      assert.deepEqual(found, expected);
    });
  }

  it('counts a violation for a pod that is named as a property of all objects', async () => {
    const cluster = new SchedulerCluster().node('a').budget('web', web, 0);
    cluster.pod('constructor', 'a', { ...full, priority: 1, labels: web });
    for (const { status } of cluster.budgets) if (status !== undefined) status.disruptedPods = {};
    const result = await cluster.preempt(podOf('p', { cpu: '4', priority: 10 }));
    assert.equal((result as Preemption).violations, 1);
  });

  it('leaves the room of a nominated pod of its own priority to it', async () => {
    const cluster = new SchedulerCluster().node('a').node('b', { cpu: '2' });
    cluster.pod('a1', 'a', { cpu: '4', priority: 1 }).pod('b1', 'b', { cpu: '2', priority: 1 });
    const nominated = new PodInfo(podOf('first', { cpu: '3', priority: 10 }));
    const result = await cluster.preempt(podOf('p', { cpu: '2', priority: 10 }), (node) =>
      node.name === 'a' ? [nominated] : [],
    );
    assert.equal((result as Preemption).node.name, 'b');
  });

  it('orders candidates in one direction only', () => {
    const candidate = (name: string, priority: number, startTime: string): Preemption => ({
      node: new SchedulerCluster().node(name).state.nodes[0] as Preemption['node'],
      victims: [new PodInfo(podOf(name, { priority, startTime }))],
      violations: 0,
    });
    const [low, high] = [candidate('low', 1, early), candidate('high', 2, late)];
    assert.deepEqual([isBetter(low, high), isBetter(high, low), isBetter(low, low)], [true, false, false]);
  });
});

function fullCluster(nodes: number, podsOfNode: number, clock?: { monotonic(): number }): SchedulerCluster {
  const cluster = new SchedulerCluster(clock);
  for (let at = 0; at < nodes; at += 1) {
    cluster.node(`n${at}`, { cpu: String(podsOfNode), labels: { zone: `z${at % 3}` } });
    for (let pod = 0; pod < podsOfNode; pod += 1) {
      const priority = pod % 5;
      cluster.pod(`n${at}-${pod}`, `n${at}`, { cpu: '1', priority, labels: { app: `app-${pod % 10}` } });
    }
  }
  return cluster;
}

const incoming = (): Pod => podOf('p', { cpu: '2', priority: 10, labels: web, spec: { ...antiAffinity, ...spread } });

describe('preemption on a full cluster', () => {
  it('stops at a hundred candidates', async () => {
    let examined = 0;
    const cluster = fullCluster(150, 2);
    for (const node of cluster.state.nodes) {
      const clone = node.clone.bind(node);
      node.clone = () => ((examined += 1), clone());
    }
    assert.notEqual(typeof (await cluster.preempt(incoming())), 'string');
    assert.equal(examined, 100);
  });

  it('gives the event loop back whenever its slice of time is spent', async () => {
    let [readings, turns, counting] = [0, 0, true];
    // Each read of the clock takes a millisecond: 150 nodes and 100 candidates are 25 slices of ten.
    const cluster = fullCluster(150, 2, { monotonic: () => (readings += 1) });
    const count = (): void => {
      turns += 1;
      if (counting) setImmediate(count);
    };
    setImmediate(count);
    await cluster.preempt(incoming());
    counting = false;
    assert.ok(turns >= 20, `${turns} turns of the event loop`);
  });

  it('reads the pods of each node a number of times that does not grow with the number of nodes', async () => {
    const readsOfNode = async (nodes: number): Promise<number> => {
      let reads = 0;
      const cluster = fullCluster(nodes, 10);
      for (const node of cluster.state.nodes) {
        for (const field of ['pods', 'antiAffine', 'attracting'] as const) {
          const value = node[field];
          Object.defineProperty(node, field, { get: () => ((reads += 1), value) });
        }
      }
      assert.equal(((await cluster.preempt(incoming())) as Preemption).victims.length, 2);
      return reads / nodes;
    };
    const [few, many] = [await readsOfNode(20), await readsOfNode(80)];
    assert.ok(few > 0 && many <= few, `${few} reads of each of 20 nodes, ${many} of each of 80 nodes`);
  });
});
