import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type {
  Container,
  ContainerStatusJson,
  Pod,
  PodCondition,
  PodStatus,
} from '../../../../../agent/base/model/pod.ts';
import type { ProbeResult, ProbeResults } from '../../../../../agent/runtime/kuberuntime/probe-results.ts';
import { podConditions } from '../../../../../agent/runtime/kuberuntime/api-conditions.ts';
import { withProbeResults, withReadyConditions } from '../../../../../agent/runtime/kuberuntime/readiness.ts';
import { assembleRuntimeStatus } from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';

const podOf = (spec: Partial<Pod['spec']>, conditions?: PodCondition[]): Pod => ({
  metadata: { name: 'p', namespace: 'ns', uid: 'u' },
  spec: { containers: [{ name: 'main' }], ...spec },
  ...(conditions === undefined ? {} : { status: { conditions } }),
});

const condition = (type: string, status: string): PodCondition => ({
  type,
  status,
  lastTransitionTime: '2026-01-01T00:00:00Z',
});

const containerStatus = (more: Partial<ContainerStatusJson> = {}): ContainerStatusJson => ({
  ...{ name: 'main', containerID: 'x://1', image: '', imageID: '', restartCount: 0, ready: false, started: false },
  state: { running: {} },
  ...more,
});

const results = (startup: ProbeResult | undefined, readiness: ProbeResult | undefined): ProbeResults => ({
  result: (kind) => (kind === 'startup' ? startup : kind === 'readiness' ? readiness : undefined),
});

describe('a container with a startup and a readiness probe', () => {
  const main: Container = { name: 'main', startupProbe: {}, readinessProbe: {} };
  const rows: readonly {
    readonly title: string;
    readonly startup?: ProbeResult;
    readonly readiness?: ProbeResult;
    readonly status?: Partial<ContainerStatusJson>;
    readonly before?: Partial<ContainerStatusJson>;
    readonly expected: readonly [started: boolean, ready: boolean];
  }[] = [
    { title: 'is not started without a result', expected: [false, false] },
    { title: 'is not ready before it has started', readiness: 'success', expected: [false, false] },
    { title: 'is not started if startup fails', startup: 'failure', readiness: 'success', expected: [false, false] },
    { title: 'is not ready without a readiness result', startup: 'success', expected: [true, false] },
    { title: 'is ready if both succeed', startup: 'success', readiness: 'success', expected: [true, true] },
    { title: 'is not ready if readiness fails', startup: 'success', readiness: 'failure', expected: [true, false] },
    { title: 'stays as it was without results', before: { started: true, ready: true }, expected: [true, true] },
    {
      title: 'is neither started nor ready when it has terminated',
      ...{ startup: 'success', readiness: 'success', before: { started: true, ready: true } },
      status: { state: { terminated: { exitCode: 0 } } },
      expected: [false, false],
    },
    {
      title: 'does not inherit from the container that it replaces',
      before: { started: true, ready: true, containerID: 'x://0' },
      expected: [false, false],
    },
  ];
  for (const { title, startup, readiness, status, before, expected } of rows) {
    it(title, () => {
      const previous = before === undefined ? undefined : { containerStatuses: [containerStatus(before)] };
      const input: PodStatus = { containerStatuses: [containerStatus(status)] };
      const snapshot = structuredClone(input);
      const next = withProbeResults(podOf({ containers: [main] }), input, {
        probes: results(startup, readiness),
        previous,
      });
      const [found] = next.containerStatuses ?? [];
      assert.deepEqual([found?.started, found?.ready], expected);
      assert.deepEqual(input, snapshot, 'the given status is not changed');
    });
  }
});

it('an init container is ready once it has succeeded, and a sidecar once its probes have', () => {
  const initContainers: Container[] = [
    { name: 'init' },
    { name: 'sidecar', restartPolicy: 'Always', readinessProbe: {} },
  ];
  const status: PodStatus = {
    initContainerStatuses: [
      containerStatus({ name: 'init', state: { terminated: { exitCode: 0 } } }),
      containerStatus({ name: 'sidecar' }),
    ],
  };
  const next = withProbeResults(podOf({ initContainers }), status, {
    probes: results(undefined, 'success'),
    previous: undefined,
  });
  assert.deepEqual(
    next.initContainerStatuses?.map(({ ready, started }) => [ready, started]),
    [
      [true, false],
      [true, true],
    ],
  );
});

describe('readiness gates', () => {
  const gates = { readinessGates: [{ conditionType: 'a' }, { conditionType: 'b' }] };
  const status: PodStatus = {
    conditions: [condition('Ready', 'False'), condition('ContainersReady', 'False'), condition('a', 'False')],
    containerStatuses: [containerStatus({ ready: true })],
  };
  const readyOf = (conditions: PodCondition[]): PodCondition | undefined =>
    withReadyConditions(podOf(gates, conditions), status).conditions?.find(({ type }) => type === 'Ready');

  it('keep a pod unready, with the message of the kubelet', () => {
    const ready = readyOf([condition('a', 'False')]);
    assert.deepEqual([ready?.status, ready?.reason], ['False', 'ReadinessGatesNotReady']);
    assert.equal(
      ready?.message,
      'the status of pod readiness gate "a" is not "True", but False, corresponding condition of pod readiness gate "b" does not exist.',
    );
  });

  it('make it ready when all are true at the API server', () => {
    assert.equal(readyOf([condition('a', 'True'), condition('b', 'True')])?.status, 'True');
  });

  it('name the critical pod for which a pod has to leave', () => {
    const pod = podOf({});
    const conditions = podConditions(
      {
        ...{ pod, nowMs: 0, terminal: false, resize: {}, previous: undefined },
        runtime: assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'ns' }, [], []),
        ended: {
          reason: 'Preempting',
          message: 'Preempted in order to admit critical pod',
          disruption: 'Pod was preempted by Kubelet to accommodate a critical pod.',
        },
      },
      { containerStatuses: [] },
    );
    const { status, reason, message } = conditions.find(({ type }) => type === 'DisruptionTarget') ?? {};
    assert.deepEqual(
      [status, reason, message],
      ['True', 'TerminationByKubelet', 'Pod was preempted by Kubelet to accommodate a critical pod.'],
    );
  });

  it('call only a termination because of the node a disruption', () => {
    const conditions = podConditions(
      {
        ...{ pod: podOf({}), nowMs: 0, terminal: false, resize: {}, previous: undefined },
        runtime: assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'ns' }, [], []),
        ended: { reason: 'Evicted', message: 'Usage of EmptyDir volume "v" exceeds the limit "4Mi". ' },
      },
      { containerStatuses: [] },
    );
    assert.equal(
      conditions.find(({ type }) => type === 'DisruptionTarget'),
      undefined,
    );
  });

  it('are taken from the API server, not from the last status of the agent', () => {
    const pod = podOf(gates, [condition('a', 'True'), condition('b', 'True')]);
    const conditions = podConditions(
      {
        ...{ pod, nowMs: 0, terminal: false, resize: {} },
        runtime: assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'ns' }, [], []),
        previous: { conditions: [condition('a', 'False'), condition('DisruptionTarget', 'True')] },
      },
      { containerStatuses: [containerStatus({ ready: true })] },
    );
    const found = Object.fromEntries(conditions.map(({ type, status: is }) => [type, is]));
    assert.deepEqual(
      [found['Ready'], found['a'], found['b'], found['DisruptionTarget']],
      ['True', 'True', 'True', 'True'],
    );
  });
});
