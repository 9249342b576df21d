import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { HorizontalPodAutoscaler, Pod } from '../../../../api/kinds/kinds.ts';
import {
  deployments,
  groupVersion,
  horizontalPodAutoscalers,
  pods as podResource,
} from '../../../../api/client/resources.ts';
import { newStatusError } from '../../../../api/meta/status-error.ts';
import { horizontalAutoscaler } from '../../../../controlplane/controllers/autoscaler/horizontal-autoscaler.ts';
import {
  byAverage,
  byShare,
  byUtilization,
  byValue,
  requestsOf,
  type CalculationOptions,
  type PodMetrics,
} from '../../../../controlplane/controllers/autoscaler/replica-calculator.ts';
import {
  decide,
  decideWithBehavior,
  recordChange,
  type ScalingHistory,
} from '../../../../controlplane/controllers/autoscaler/scaling-rules.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const NOW = Date.UTC(2026, 0, 2, 4);
const options: CalculationOptions = {
  tolerances: { up: 0.1, down: 0.1 },
  nowMs: NOW,
  cpuInitializationMs: 300_000,
  initialReadinessDelayMs: 30_000,
};

interface Shape {
  readonly request?: string;
  readonly ready?: boolean;
  readonly phase?: string;
  readonly startedMs?: number;
  readonly deleted?: boolean;
}

function pod(
  name: string,
  { request = '1', ready = true, phase = 'Running', startedMs = NOW - 3600_000, deleted }: Shape = {},
): Pod {
  return {
    metadata: {
      name,
      namespace: 'n',
      labels: { app: 'a' },
      ...(deleted === true ? { deletionTimestamp: formatTime(NOW) } : {}),
    },
    spec: { containers: [{ name: 'c', resources: { requests: { cpu: request } } }] },
    status: {
      phase,
      startTime: formatTime(startedMs),
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False', lastTransitionTime: formatTime(startedMs) }],
    },
  };
}

const measured = (values: Record<string, number>): PodMetrics =>
  new Map(Object.entries(values).map(([name, milli]) => [name, { milli, timeMs: NOW, windowMs: 60_000 }]));

const use = (pods: Pod[], values: Record<string, number>, targetPercent: number, current = pods.length) =>
  byUtilization({ pods, metrics: measured(values), resource: 'cpu', container: '', targetPercent, current }, options);

describe('replicas from utilization', () => {
  const two = [pod('a'), pod('b')];
  test('a use above the target adds replicas in proportion', () =>
    assert.deepEqual(use(two, { a: 900, b: 900 }, 50), { replicas: 4, utilization: 90, milli: 900 }));
  test('a usage below the target removes replicas', () => assert.equal(use(two, { a: 200, b: 200 }, 50).replicas, 1));
  test('a use near the target changes nothing', () => assert.equal(use(two, { a: 540, b: 540 }, 50).replicas, 2));
  test('a pod that is not measured is taken to use all it requested before replicas go', () =>
    assert.equal(use([...two, pod('c')], { a: 200, b: 200 }, 50).replicas, 3));
  test('a pod without metrics counts with zero usage before replicas are added', () =>
    assert.equal(use([...two, pod('c')], { a: 900, b: 900 }, 50).replicas, 4));
  test('a starting pod counts with zero usage before replicas are added', () => {
    const starting = pod('c', { ready: false, startedMs: NOW - 60_000 });
    assert.equal(use([...two, starting], { a: 900, b: 900, c: 1000 }, 50).replicas, 4);
  });
  test('pods that failed or are being deleted do not count', () => {
    const gone = [pod('c', { phase: 'Failed' }), pod('d', { deleted: true })];
    assert.equal(use([...two, ...gone], { a: 900, b: 900, c: 0, d: 0 }, 50, 2).replicas, 4);
  });
  test('a container without a request is an error', () => {
    const without: Pod = { ...pod('a'), spec: { containers: [{ name: 'c' }] } };
    assert.throws(() => use([without], { a: 1 }, 50), /missing request for cpu in container c of Pod a/);
  });
  test('the requests of a pod count instead of those of its containers, with its overhead', () => {
    const spec = (requests: object, cpu?: string): Pod =>
      ({
        ...pod('a'),
        spec: {
          containers: [{ name: 'c', ...(cpu === undefined ? {} : { resources: { requests: { cpu } } }) }],
          resources: { requests },
          overhead: { cpu: '100m' },
        },
      }) as unknown as Pod;
    assert.equal(requestsOf([spec({ cpu: '900m' })], 'cpu', '').get('a'), 1000);
    assert.equal(requestsOf([spec({ memory: '1Gi' }, '400m')], 'cpu', '').get('a'), 500);
    assert.throws(() => requestsOf([spec({ memory: '1Gi' })], 'constructor', ''), /missing pod-level request/);
    assert.throws(() => requestsOf([spec({ memory: '1Gi' })], 'cpu', ''), /missing pod-level request for cpu in Pod a/);
  });
  test('without any figure there is an error', () => assert.throws(() => use(two, {}, 50), /did not receive metrics/));
});

describe('replicas from amounts', () => {
  const two = [pod('a'), pod('b')];
  test('an average above the target adds replicas', () => {
    const input = { pods: two, metrics: measured({ a: 30, b: 50 }), resource: '', targetMilli: 20, current: 2 };
    assert.deepEqual(byAverage(input, options), { replicas: 4, milli: 40 });
  });
  test('a value is shared by the pods that are ready', () => {
    const pods = [...two, pod('c', { ready: false })];
    assert.equal(byValue({ valueMilli: 3000, targetMilli: 1000, current: 3, pods }, options).replicas, 6);
  });
  test('a value starts the first replicas of a target that has none', () =>
    assert.equal(byValue({ valueMilli: 2500, targetMilli: 1000, current: 0, pods: [] }, options).replicas, 3));
  test('a share per replica decides the count', () =>
    assert.deepEqual(byShare({ valueMilli: 2500, targetMilli: 1000, statusReplicas: 1 }, options), {
      replicas: 3,
      milli: 2500,
    }));
});

describe('steadying', () => {
  const history = (...replicas: number[]): ScalingHistory => ({
    recommendations: replicas.map((count, index) => ({ replicas: count, atMs: NOW - (index + 1) * 60_000 })),
    ups: [],
    downs: [],
  });
  const bounds = { min: 1, max: 20 };
  const input = (current: number, desired: number) => ({ current, desired, bounds, nowMs: NOW });

  test('replicas stay as long as a recent recommendation was higher', () => {
    const decision = decide(input(5, 2), history(5), 300_000);
    assert.equal(decision.replicas, 5);
    assert.equal(decision.able.reason, 'ScaleDownStabilized');
  });
  test('the count doubles at most', () => {
    const decision = decide(input(3, 15), history(), 300_000);
    assert.equal(decision.replicas, 6);
    assert.equal(decision.limited.reason, 'ScaleUpLimit');
  });
  test('the count stays between minimum and maximum', () => {
    assert.equal(decide(input(15, 30), history(), 0).limited.reason, 'TooManyReplicas');
    assert.deepEqual(decide({ ...input(2, 0), bounds: { min: 2, max: 3 } }, history(), 0).replicas, 2);
  });

  const behavior = {
    scaleUp: {
      stabilizationWindowSeconds: 0,
      selectPolicy: 'Max',
      policies: [{ type: 'Pods', value: 4, periodSeconds: 60 }],
    },
    scaleDown: {
      stabilizationWindowSeconds: 0,
      selectPolicy: 'Max',
      policies: [{ type: 'Percent', value: 50, periodSeconds: 60 }],
    },
  };
  test('a policy limits the replicas that are added in its period, including those that were added before', () => {
    const past: ScalingHistory = { ...history(), ups: [{ change: 3, atMs: NOW - 30_000 }] };
    const decision = decideWithBehavior(input(8, 20), behavior, past, 300_000);
    assert.deepEqual([decision.replicas, decision.limited.reason], [9, 'ScaleUpLimit']);
  });
  test('a policy limits the replicas that are removed', () => {
    const decision = decideWithBehavior(input(8, 1), behavior, history(), 300_000);
    assert.deepEqual([decision.replicas, decision.limited.reason], [4, 'ScaleDownLimit']);
  });
  test('a direction may be disabled', () => {
    const disabled = { ...behavior, scaleDown: { ...behavior.scaleDown, selectPolicy: 'Disabled' } };
    assert.equal(decideWithBehavior(input(8, 1), disabled, history(), 300_000).replicas, 8);
  });
  test('a window for growing takes the lowest recent recommendation', () => {
    const slow = { ...behavior, scaleUp: { ...behavior.scaleUp, stabilizationWindowSeconds: 300 } };
    const decision = decideWithBehavior(input(5, 8), slow, history(6), 300_000);
    assert.deepEqual([decision.replicas, decision.able.reason], [6, 'ScaleUpStabilized']);
  });
  test('changes are remembered no longer than a policy asks', () => {
    const past: ScalingHistory = { ...history(), ups: [{ change: 3, atMs: NOW - 61_000 }] };
    recordChange(past, { from: 5, to: 7, nowMs: NOW }, behavior);
    assert.deepEqual(past.ups, [{ change: 2, atMs: NOW }]);
  });
});

const podMetrics = groupVersion('metrics.k8s.io', 'v1beta1').namespaced('pods', 'PodMetrics');

function autoscalerTest(cpu: string | undefined, spec: Partial<NonNullable<HorizontalPodAutoscaler['spec']>> = {}) {
  const autoscaler: HorizontalPodAutoscaler = {
    metadata: { name: 'h', namespace: 'n' },
    spec: {
      minReplicas: 1,
      maxReplicas: 10,
      scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
      metrics: [
        { type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 50 } } },
      ],
      ...spec,
    },
  };
  const objects = [
    [horizontalPodAutoscalers, autoscaler],
    [deployments, { metadata: { name: 'web', namespace: 'n' }, spec: {} }],
    [podResource, pod('a')],
    [podResource, pod('b')],
  ] as const;
  const t = controllerTest({ objects });
  let replicas = 2;
  t.client.intercept((call) => {
    if (call.subresource !== 'scale') return undefined;
    if (call.verb === 'update') replicas = (call.object as unknown as { spec: { replicas: number } }).spec.replicas;
    return {
      metadata: { name: 'web', namespace: 'n' },
      spec: { replicas },
      status: { replicas, selector: 'app=a' },
    };
  });
  if (cpu !== undefined)
    for (const name of ['a', 'b'])
      t.client.seed(podMetrics, {
        metadata: { name, namespace: 'n', labels: { app: 'a' } },
        timestamp: formatTime(t.clock.now()),
        window: '15s',
        containers: [{ name: 'c', usage: { cpu } }],
      } as never);
  const noAdapter = () => Promise.reject(newStatusError(404, 'NotFound', 'no adapter'));
  return {
    t,
    run: () => t.start(horizontalAutoscaler(noAdapter)),
    replicas: () => replicas,
    status: () => t.client.peek(horizontalPodAutoscalers, 'n', 'h')?.status,
  };
}

describe('the autoscaler', () => {
  test('writes the number that the metrics propose to the target, with an event', async () => {
    const a = autoscalerTest('1');
    await a.run();
    await a.t.advance(100);
    assert.equal(a.replicas(), 4);
    assert.equal(a.status()?.desiredReplicas, 4);
    assert.deepEqual(
      a.status()?.conditions?.map(({ type, status, reason }) => `${type}=${status} ${reason}`),
      [
        'AbleToScale=True SucceededRescale',
        'ScalingActive=True ValidMetricFound',
        'ScalingLimited=False DesiredWithinRange',
      ],
    );
    assert.deepEqual(a.status()?.currentMetrics, [
      { type: 'Resource', resource: { name: 'cpu', current: { averageUtilization: 100, averageValue: '1' } } },
    ]);
    assert.deepEqual(a.t.events(), [
      'Normal SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target',
    ]);
    await a.t.stop();
  });

  test('leaves the count when nothing is measured', async () => {
    const a = autoscalerTest(undefined);
    await a.run();
    await a.t.advance(100);
    assert.equal(a.replicas(), 2);
    const active = a.status()?.conditions?.find(({ type }) => type === 'ScalingActive');
    assert.deepEqual([active?.status, active?.reason], ['False', 'FailedGetResourceMetric']);
    assert.deepEqual(a.status()?.currentMetrics, [{ type: '' }], 'a metric without a value has no type either');
    await a.t.stop();
  });

  test('stays within the bounds, whatever the metrics are', async () => {
    const a = autoscalerTest(undefined, { minReplicas: 3 });
    await a.run();
    await a.t.advance(100);
    assert.equal(a.replicas(), 3);
    await a.t.stop();
  });

  test('leaves pods alone that another autoscaler scales as well', async () => {
    const a = autoscalerTest('1');
    const first = a.t.client.peek(horizontalPodAutoscalers, 'n', 'h');
    assert.ok(first !== undefined);
    a.t.client.seed(horizontalPodAutoscalers, { ...first, metadata: { name: 'i', namespace: 'n', uid: 'i' } } as never);
    await a.run();
    await a.t.advance(30_000);
    const message = 'pods by selector app=a are controlled by multiple HPAs: [{n h} {n i}]';
    const active = a.status()?.conditions?.find(({ type }) => type === 'ScalingActive');
    assert.deepEqual([active?.status, active?.reason, active?.message], ['False', 'AmbiguousSelector', message]);
    assert.ok(a.t.events().some((event) => event.startsWith(`Warning AmbiguousSelector ${message}`)));
    await a.t.stop();
  });

  test('removes replicas only when the window has passed', async () => {
    const a = autoscalerTest('100m');
    await a.run();
    await a.t.advance(60_000);
    assert.equal(a.replicas(), 2);
    await a.t.advance(300_000);
    assert.equal(a.replicas(), 1);
    await a.t.stop();
  });
});
