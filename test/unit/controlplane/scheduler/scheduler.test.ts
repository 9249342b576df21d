/** Tests the scheduler in virtual time with an API in memory: where it binds pods, and what it reports if they do not fit. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { Informers } from '../../../../api/client/informer.ts';
import type { Node, Pod } from '../../../../api/kinds/kinds.ts';
import * as resources from '../../../../api/client/resources.ts';
import { startScheduler, type Scheduler } from '../../../../controlplane/scheduler/scheduler.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

type PodSpec = Record<string, unknown>;

class TestCluster {
  readonly clock = new FakeClock();
  readonly client = new FakeClient(this.clock);
  readonly events: string[] = [];
  readonly metrics = new MetricsRegistry();
  /** The number of bindings that will fail. */
  failingBindings = 0;
  readonly #informers = new Informers({
    client: this.client,
    clock: this.clock,
    logger: silentLogger,
    watchList: false,
  });
  #scheduler: Scheduler | undefined;

  constructor() {
    // Binds pods like the API server.
    this.client.intercept((call) => {
      if (call.verb !== 'create' || call.subresource !== 'binding') return undefined;
      if (this.failingBindings-- > 0) throw new Error('connection lost');
      const pod = this.pod(call.name);
      const target = (call.object as KubeObject & { target: { name: string } }).target.name;
      return this.client.seed(resources.pods, {
        ...pod,
        spec: { ...pod.spec, containers: pod.spec?.containers ?? [], nodeName: target },
      });
    });
  }

  start(): Promise<void> {
    this.#scheduler = startScheduler({
      client: this.client,
      informers: this.#informers,
      clock: this.clock,
      logger: silentLogger,
      random: () => 0,
      metrics: this.metrics,
      recorder: {
        event: (regarding, _type, reason, message) => void this.events.push(`${regarding.name} ${reason}: ${message}`),
      },
    });
    return this.settle();
  }

  async stop(): Promise<void> {
    await this.#scheduler?.stop();
    await this.#informers.close();
  }

  async settle(): Promise<void> {
    for (let round = 0; round < 10; round += 1) await this.clock.settle();
  }

  addNode(
    name: string,
    options: { labels?: Record<string, string>; spec?: object; cpu?: string; pods?: string } = {},
  ): void {
    const { labels = {}, spec = {}, cpu = '4', pods = '110' } = options;
    const node = {
      metadata: { name, labels: { 'kubernetes.io/hostname': name, ...labels } },
      spec,
      status: { allocatable: { cpu, memory: '8Gi', pods } },
    };
    this.client.seed(resources.nodes, node as unknown as Node);
  }

  addPod(name: string, spec: PodSpec = {}, metadata: object = {}): void {
    const pod = {
      metadata: { name, namespace: 'default', uid: `uid-${name}`, ...metadata },
      spec: { containers: [{ name: 'c', image: 'i', ...(spec['container'] as object | undefined) }], ...spec },
      status: { phase: 'Pending' },
    };
    this.client.seed(resources.pods, pod as unknown as Pod);
  }

  pod(name: string): Pod {
    const pod = this.client.peek(resources.pods, 'default', name);
    assert.ok(pod !== undefined, `${name} is gone`);
    return pod;
  }

  nodeOf(name: string): string | undefined {
    return this.pod(name).spec?.nodeName;
  }

  condition(name: string) {
    return this.pod(name).status?.conditions?.find((one) => one.type === 'PodScheduled');
  }
}

function schedules(requirement: string, test: (cluster: TestCluster) => Promise<void>): void {
  it(requirement, async () => {
    const cluster = new TestCluster();
    try {
      await test(cluster);
    } finally {
      await cluster.stop();
    }
  });
}

const cpu = (amount: string): PodSpec => ({ container: { resources: { requests: { cpu: amount } } } });
const NOT_HELPFUL = (nodes: number): string =>
  `no new claims to deallocate, preemption: 0/${nodes} nodes are available: ${nodes} Preemption is not helpful for scheduling.`;

describe('the scheduler', () => {
  schedules('binds a pod to the node with most room and says so', async (cluster) => {
    cluster.addNode('a');
    cluster.addNode('b');
    cluster.addPod('there', { ...cpu('3'), nodeName: 'a' });
    cluster.addPod('p', cpu('1'));
    await cluster.start();
    assert.equal(cluster.nodeOf('p'), 'b');
    assert.deepEqual(cluster.events, ['p Scheduled: Successfully assigned default/p to b']);
  });

  schedules(
    'says in event and condition why a pod fits nowhere, and tries again when that may have changed',
    async (cluster) => {
      cluster.addNode('small');
      cluster.addNode('tainted', { spec: { taints: [{ key: 'k', value: 'v', effect: 'NoSchedule' }] } });
      cluster.addNode('closed', { spec: { unschedulable: true } });
      cluster.addPod('p', cpu('1000'));
      await cluster.start();
      const message =
        '0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. ' +
        NOT_HELPFUL(3);
      assert.deepEqual(cluster.events, [`p FailedScheduling: ${message}`]);
      const condition = cluster.condition('p');
      assert.deepEqual([condition?.status, condition?.reason, condition?.message], ['False', 'Unschedulable', message]);
      cluster.addNode('large', { cpu: '2000' });
      await cluster.clock.advance(1000);
      await cluster.settle();
      assert.equal(cluster.nodeOf('p'), 'large');
    },
  );

  schedules('counts its attempts, the pods that wait and those that preempt others', async (cluster) => {
    cluster.addNode('a');
    cluster.addPod('there', { ...cpu('3'), nodeName: 'a', priority: 0 });
    cluster.addPod('fits', { ...cpu('1'), priority: 2000 });
    cluster.addPod('large', cpu('1000'));
    cluster.addPod('urgent', { ...cpu('2'), priority: 1000 });
    await cluster.start();
    const lines = cluster.metrics.text().split('\n');
    const has = (line: string): void => assert.ok(lines.includes(line), `${line} in\n${lines.join('\n')}`);
    has('scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1');
    has('scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 2');
    has('scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1');
    has('scheduler_pod_scheduling_attempts_sum 1');
    has('scheduler_pending_pods{queue="unschedulable"} 2');
    has('scheduler_pending_pods{queue="active"} 0');
    has('scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 2');
    has('scheduler_preemption_attempts_total 2');
    has('scheduler_preemption_victims_sum 1');
    has('scheduler_cache_size{type="nodes"} 1');
    has('scheduler_cache_size{type="assumed_pods"} 0');
  });

  schedules('says that there are no nodes', async (cluster) => {
    cluster.addPod('p');
    await cluster.start();
    assert.deepEqual(cluster.events, ['p FailedScheduling: no nodes available to schedule pods']);
    cluster.addNode('a');
    await cluster.clock.advance(1000);
    await cluster.settle();
    assert.equal(cluster.nodeOf('p'), 'a');
  });

  schedules('leaves a gated pod, and pods of other schedulers, alone', async (cluster) => {
    cluster.addNode('a');
    cluster.addPod('gated', { schedulingGates: [{ name: 'g' }] });
    cluster.addPod('other', { schedulerName: 'mine' });
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('gated'), cluster.nodeOf('other'), cluster.events], [undefined, undefined, []]);
    cluster.addPod('gated', { schedulingGates: [] });
    await cluster.settle();
    assert.equal(cluster.nodeOf('gated'), 'a');
  });

  schedules('does not overbook a node with pods whose bindings are under way', async (cluster) => {
    cluster.addNode('a', { cpu: '2' });
    for (let i = 0; i < 5; i += 1) cluster.addPod(`p${i}`, cpu('1'));
    await cluster.start();
    const bound = cluster.client.peekAll(resources.pods).filter((pod) => pod.spec?.nodeName === 'a');
    assert.equal(bound.length, 2);
  });

  schedules('takes pods of higher priority first', async (cluster) => {
    cluster.addNode('a', { pods: '1' });
    cluster.addPod('low', { priority: 1, preemptionPolicy: 'Never' });
    cluster.addPod('high', { priority: 2, preemptionPolicy: 'Never' });
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('high'), cluster.nodeOf('low')], ['a', undefined]);
    assert.match(
      cluster.condition('low')?.message ?? '',
      /1 Too many pods\. .*not eligible due to preemptionPolicy=Never\.$/,
    );
  });

  schedules('preempts the least important pods that make room, and the pod follows', async (cluster) => {
    cluster.addNode('a', { cpu: '2' });
    cluster.addNode('b', { cpu: '2' });
    cluster.addPod('a1', { ...cpu('2'), nodeName: 'a', priority: 5 });
    cluster.addPod('b1', { ...cpu('1'), nodeName: 'b', priority: 3 });
    cluster.addPod('b2', { ...cpu('1'), nodeName: 'b', priority: 4 });
    cluster.addPod('p', { ...cpu('1'), priority: 10 });
    await cluster.start();
    assert.equal(cluster.pod('p').status?.nominatedNodeName, 'b');
    const deleted = cluster.client.writes('delete').map((call) => call.name);
    assert.deepEqual(deleted, ['b1']);
    assert.ok(cluster.events.includes('b1 Preempted: Preempted by pod uid-p on node b'));
    // The victim ends within its grace period.
    await cluster.client.delete(resources.pods, 'default', 'b1', { gracePeriodSeconds: 0 });
    await cluster.clock.advance(1000);
    await cluster.settle();
    assert.equal(cluster.nodeOf('p'), 'b');
  });

  schedules('a pod is not tried again while its victims are being evicted', async (cluster) => {
    cluster.addNode('a', { cpu: '2' });
    for (const name of ['first', 'second']) cluster.addPod(name, { ...cpu('1'), nodeName: 'a', priority: 1 });
    // Victims end at once, but the API is slow to take the second eviction.
    let evicted = 0;
    cluster.client.intercept(async ({ verb, resource, subresource, name, options }) => {
      const isOfVictim = resource.resource === 'pods' && name !== 'p';
      if (isOfVictim && verb === 'patch' && subresource === 'status' && ++evicted === 2)
        await cluster.clock.sleep(5000);
      if (!isOfVictim || verb !== 'delete' || options?.gracePeriodSeconds === 0) return undefined;
      await cluster.client.delete(resources.pods, 'default', name, { gracePeriodSeconds: 0 });
      return { metadata: { name } };
    });
    cluster.addPod('p', { ...cpu('2'), priority: 10 });
    await cluster.start();
    await cluster.clock.advance(3000);
    assert.deepEqual([evicted, cluster.nodeOf('p')], [2, undefined]);
    await cluster.clock.advance(5000);
    await cluster.settle();
    assert.equal(cluster.nodeOf('p'), 'a');
    assert.equal(cluster.events.filter((event) => event.startsWith('p FailedScheduling')).length, 1);
  });

  schedules('a preemption withdraws the nominations of less important pods to the node', async (cluster) => {
    cluster.addNode('a', { cpu: '2' });
    cluster.addPod('victim', { ...cpu('2'), nodeName: 'a', priority: 1 });
    cluster.addPod('middle', { ...cpu('2'), priority: 5 });
    await cluster.start();
    assert.equal(cluster.pod('middle').status?.nominatedNodeName, 'a');
    cluster.addPod('high', { ...cpu('2'), priority: 10 });
    await cluster.settle();
    assert.equal(cluster.pod('high').status?.nominatedNodeName, 'a');
    assert.equal(cluster.pod('middle').status?.nominatedNodeName ?? undefined, undefined);
    await cluster.client.delete(resources.pods, 'default', 'victim', { gracePeriodSeconds: 0 });
    await cluster.clock.advance(10_000);
    await cluster.settle();
    assert.deepEqual([cluster.nodeOf('high'), cluster.nodeOf('middle')], ['a', undefined]);
  });

  schedules('a binding that fails is tried again after a while', async (cluster) => {
    cluster.failingBindings = 1;
    cluster.addNode('a');
    cluster.addPod('p');
    await cluster.start();
    assert.equal(cluster.nodeOf('p'), undefined);
    assert.equal(cluster.condition('p')?.reason, 'SchedulerError');
    await cluster.clock.advance(2000);
    await cluster.settle();
    assert.equal(cluster.nodeOf('p'), 'a');
  });
});

const term = (app: string, topologyKey: string) => ({ labelSelector: { matchLabels: { app } }, topologyKey });

describe('the filters', () => {
  schedules('honour node selector and affinity', async (cluster) => {
    cluster.addNode('a', { labels: { disk: 'ssd', size: '3' } });
    cluster.addNode('b', { labels: { size: '9' } });
    cluster.addPod('selects', { nodeSelector: { disk: 'ssd' } });
    const expressions = [{ key: 'size', operator: 'Gt', values: ['5'] }];
    const required = { nodeSelectorTerms: [{ matchExpressions: expressions }] };
    cluster.addPod('affine', {
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: required } },
    });
    cluster.addPod('none', { nodeSelector: { disk: 'tape' } });
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('selects'), cluster.nodeOf('affine')], ['a', 'b']);
    assert.equal(
      cluster.condition('none')?.message,
      `0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. ${NOT_HELPFUL(2)}`,
    );
  });

  schedules('look at the named nodes alone if the affinity lists names, as that of daemon pods', async (cluster) => {
    for (const name of ['a', 'b', 'c']) cluster.addNode(name);
    cluster.addNode('tainted', { spec: { taints: [{ key: 'k', effect: 'NoSchedule' }] } });
    const named = (...lists: string[][]) => ({
      affinity: {
        nodeAffinity: {
          requiredDuringSchedulingIgnoredDuringExecution: {
            nodeSelectorTerms: [
              { matchFields: lists.map((values) => ({ key: 'metadata.name', operator: 'In', values })) },
            ],
          },
        },
      },
    });
    cluster.addPod('there', named(['b']));
    cluster.addPod('both', named(['a', 'c'], ['c', 'unknown']));
    cluster.addPod('tainted', named(['tainted', 'unknown']));
    cluster.addPod('unknown', named(['unknown']));
    cluster.addPod('conflict', named(['a'], ['b']));
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('there'), cluster.nodeOf('both')], ['b', 'c']);
    const message = (pod: string) => cluster.condition(pod)?.message;
    const others = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
    assert.equal(
      message('tainted'),
      `0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 ${others}. ${NOT_HELPFUL(4)}`,
    );
    assert.equal(message('unknown'), `0/4 nodes are available: 4 ${others}. ${NOT_HELPFUL(4)}`);
    assert.equal(message('conflict'), '0/4 nodes are available: pod affinity terms conflict. not found');
  });

  schedules('keep host ports apart', async (cluster) => {
    cluster.addNode('a');
    const ports = { container: { ports: [{ containerPort: 80, hostPort: 80 }] } };
    cluster.addPod('first', ports);
    await cluster.start();
    cluster.addPod('second', ports);
    await cluster.settle();
    assert.equal(cluster.nodeOf('first'), 'a');
    assert.match(
      cluster.condition('second')?.message ?? '',
      /1 node\(s\) didn't have free ports for the requested pod ports\./,
    );
  });

  schedules('keep pods together and apart', async (cluster) => {
    cluster.addNode('a', { labels: { zone: '1' } });
    cluster.addNode('b', { labels: { zone: '2' } });
    const labels = { labels: { app: 'web' } };
    cluster.addPod('web', { nodeName: 'b' }, labels);
    const required = 'requiredDuringSchedulingIgnoredDuringExecution';
    cluster.addPod('near', { affinity: { podAffinity: { [required]: [term('web', 'zone')] } } });
    cluster.addPod('far', { affinity: { podAntiAffinity: { [required]: [term('web', 'zone')] } } });
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('near'), cluster.nodeOf('far')], ['b', 'a']);
    cluster.addPod('web2', { nodeSelector: { zone: '1' } }, labels);
    await cluster.settle();
    assert.match(
      cluster.condition('web2')?.message ?? '',
      /1 node\(s\) didn't satisfy existing pods anti-affinity rules/,
    );
  });

  schedules('spread pods by topology', async (cluster) => {
    for (const name of ['a', 'b', 'c']) cluster.addNode(name);
    const topologySpreadConstraints = [
      {
        maxSkew: 1,
        topologyKey: 'kubernetes.io/hostname',
        whenUnsatisfiable: 'DoNotSchedule',
        labelSelector: { matchLabels: { app: 'x' } },
      },
    ];
    for (let i = 0; i < 6; i += 1) cluster.addPod(`p${i}`, { topologySpreadConstraints }, { labels: { app: 'x' } });
    await cluster.start();
    const counts = new Map<string, number>();
    for (const pod of cluster.client.peekAll(resources.pods)) {
      counts.set(pod.spec?.nodeName ?? '', (counts.get(pod.spec?.nodeName ?? '') ?? 0) + 1);
    }
    assert.deepEqual([...counts.values()], [2, 2, 2]);
  });

  schedules('wait for claims, and follow bound volumes', async (cluster) => {
    cluster.addNode('a');
    cluster.addNode('b');
    const volumes = [{ name: 'v', persistentVolumeClaim: { claimName: 'data' } }];
    cluster.addPod('p', { volumes });
    await cluster.start();
    assert.equal(
      cluster.condition('p')?.message,
      '0/2 nodes are available: persistentvolumeclaim "data" not found. not found',
    );
    const hosts = [{ key: 'kubernetes.io/hostname', operator: 'In', values: ['b'] }];
    cluster.client.seed(resources.persistentVolumes, {
      metadata: { name: 'pv' },
      spec: { nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: hosts }] } } },
    });
    cluster.client.seed(resources.persistentVolumeClaims, {
      metadata: { name: 'data', namespace: 'default', annotations: { 'pv.kubernetes.io/bind-completed': 'yes' } },
      spec: { volumeName: 'pv' },
    });
    await cluster.clock.advance(1000);
    await cluster.settle();
    assert.equal(cluster.nodeOf('p'), 'b');
  });

  schedules('keep pods apart that write to one disk or need a claim alone', async (cluster) => {
    cluster.addNode('a');
    cluster.addNode('b');
    const disk = (readOnly: boolean) => ({ volumes: [{ name: 'v', iscsi: { iqn: 'iqn.x', readOnly } }] });
    for (const name of ['reader', 'reader-too']) cluster.addPod(name, { ...disk(true), nodeName: 'a' });
    cluster.addPod('third', { ...disk(true), nodeSelector: { 'kubernetes.io/hostname': 'a' } });
    cluster.addPod('writer', { ...disk(false), nodeSelector: { 'kubernetes.io/hostname': 'a' } });
    cluster.client.seed(resources.persistentVolumes, { metadata: { name: 'pv' }, spec: {} });
    cluster.client.seed(resources.persistentVolumeClaims, {
      metadata: { name: 'alone', namespace: 'default', annotations: { 'pv.kubernetes.io/bind-completed': 'yes' } },
      spec: { volumeName: 'pv', accessModes: ['ReadWriteOncePod'] },
    });
    const volumes = [{ name: 'v', persistentVolumeClaim: { claimName: 'alone' } }];
    cluster.addPod('owner', { volumes, nodeName: 'b' });
    cluster.addPod('other', { volumes });
    await cluster.start();
    assert.equal(cluster.nodeOf('third'), 'a');
    assert.match(cluster.condition('writer')?.message ?? '', / 1 node\(s\) had no available disk\. /);
    assert.match(
      cluster.condition('other')?.message ?? '',
      / 2 node\(s\) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod\. /,
    );
  });

  schedules('nominate the node of a pod before its volumes are provisioned there', async (cluster) => {
    cluster.addNode('a');
    cluster.client.seed(resources.storageClasses, {
      metadata: { name: 'late' },
      provisioner: 'example.com/p',
      volumeBindingMode: 'WaitForFirstConsumer',
    });
    cluster.client.seed(resources.persistentVolumeClaims, {
      metadata: { name: 'data', namespace: 'default' },
      spec: { storageClassName: 'late' },
    });
    cluster.addPod('p', { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'data' } }] });
    await cluster.start();
    assert.deepEqual([cluster.nodeOf('p'), cluster.pod('p').status?.nominatedNodeName], [undefined, 'a']);
  });
});
