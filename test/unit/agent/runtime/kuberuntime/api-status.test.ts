/** Tests the status of a pod that is computed from its inputs. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod, PodStatus } from '../../../../../agent/base/model/pod.ts';
import type { PodEnd } from '../../../../../agent/runtime/kuberuntime/api-conditions.ts';
import { apiPodStatus } from '../../../../../agent/runtime/kuberuntime/api-status.ts';
import type { ResizeConditions } from '../../../../../agent/runtime/kuberuntime/resize.ts';
import { assembleRuntimeStatus } from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

interface Seen {
  readonly resize?: ResizeConditions;
  readonly previous?: PodStatus;
  readonly recursiveReadOnly: boolean;
  readonly containers?: readonly ContainerStatus[];
  readonly message?: string;
  /** The phase at the API server. */
  readonly phase?: string;
  /** The reason for which every container waits. */
  readonly waiting?: string;
  readonly deleted?: boolean;
  readonly terminal?: boolean;
  readonly ended?: PodEnd;
  readonly overdue?: PodEnd;
}

function statusOf(spec: object, seen: Seen): PodStatus {
  const { recursiveReadOnly, containers = [], message = '', resize = {}, previous, phase, waiting, deleted } = seen;
  const pod = {
    metadata: {
      ...{ name: 'p', namespace: 'd', uid: 'u' },
      ...(deleted === true ? { deletionTimestamp: '2026-01-02T03:04:05Z' } : {}),
    },
    spec: { nodeName: 'n', ...spec },
    ...(phase === undefined ? {} : { status: { phase, conditions: [{ type: 'foreign', status: 'True' }] } }),
  } as unknown as Pod;
  return apiPodStatus({
    pod,
    runtime: assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'd' }, [], containers),
    previous,
    terminal: seen.terminal ?? false,
    ...(seen.ended === undefined ? {} : { ended: seen.ended }),
    ...(seen.overdue === undefined ? {} : { overdue: seen.overdue }),
    resizing: [],
    resize,
    nowMs: 0,
    hostIps: [],
    recursiveReadOnly,
    runtimeName: 'docker',
    waiting: () => (waiting === undefined ? undefined : { reason: waiting, message: '' }),
    probes: { result: () => undefined },
    deviceHealth: () => undefined,
    terminationMessage: () => message,
  });
}

function waitingReasons(spec: object): Record<string, string | undefined> {
  const status = statusOf(spec, { recursiveReadOnly: false });
  const all = [
    ...(status.initContainerStatuses ?? []),
    ...(status.containerStatuses ?? []),
    ...(status.ephemeralContainerStatuses ?? []),
  ];
  return Object.fromEntries(all.map(({ name, state }) => [name, state?.waiting?.reason]));
}

describe('a container that is not created yet waits', () => {
  const container = (name: string): object => ({ name, image: 'i' });
  it('for its creation in a pod without init containers', () =>
    assert.deepEqual(waitingReasons({ containers: [container('a')] }), { a: 'ContainerCreating' }));
  it('for the initialization in a pod with init containers, including the init and ephemeral containers themselves', () =>
    assert.deepEqual(
      waitingReasons({
        initContainers: [container('one'), container('two')],
        containers: [container('a')],
        ephemeralContainers: [container('debug')],
      }),
      { one: 'PodInitializing', two: 'PodInitializing', a: 'PodInitializing', debug: 'PodInitializing' },
    ));
});

it('keeps the last termination of a container that waited for its restart when the runtime removed it', () => {
  const lastState = { terminated: { exitCode: 42, reason: 'Error' } };
  const old = { name: 'a', restartCount: 1, state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState };
  const next = { id: 'c2', name: 'a', state: 'running', attempt: 2, image: 'i', startedAtMs: 1 };
  const status = statusOf(
    { containers: [{ name: 'a', image: 'i' }] },
    {
      recursiveReadOnly: false,
      containers: [next as unknown as ContainerStatus],
      previous: { containerStatuses: [old] } as unknown as PodStatus,
    },
  );
  assert.equal(status.containerStatuses?.[0]?.restartCount, 2);
  assert.deepEqual(status.containerStatuses?.[0]?.lastState, lastState);
});

describe('a pod of restart policy Never whose containers are all restarted', () => {
  const rule = { action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [42] } };
  const spec = {
    restartPolicy: 'Never',
    initContainers: [{ name: 'init', image: 'i' }],
    containers: [
      { name: 'a', image: 'i', restartPolicy: 'Never', restartPolicyRules: [rule] },
      { name: 'b', image: 'i' },
    ],
  };
  const container = (name: string, attempt: number, exitCode?: number): ContainerStatus =>
    ({
      ...{ id: `${name}${attempt}`, name, attempt, image: 'i', startedAtMs: 1, finishedAtMs: 2 },
      ...(exitCode === undefined ? { state: 'running' } : { state: 'exited', exitCode, reason: 'Error' }),
    }) as unknown as ContainerStatus;
  const next = (containers: readonly ContainerStatus[], previous?: PodStatus): PodStatus =>
    statusOf(spec, { recursiveReadOnly: false, containers, ...(previous && { previous }) });
  const killed = next([container('init', 0, 0), container('a', 0, 42), container('b', 0, 137)]);
  const removed = next([], killed);

  it('does not fail when they are killed', () => assert.equal(killed.phase, 'Running'));

  it('reports the removed containers as restarting, with a termination and the next restart count', () => {
    assert.equal(removed.phase, 'Running');
    for (const status of [...(removed.initContainerStatuses ?? []), ...(removed.containerStatuses ?? [])]) {
      assert.equal(status.state?.waiting?.reason, 'RestartingAllContainers', status.name);
      assert.equal(status.lastState?.terminated?.reason, 'RestartingAllContainers', status.name);
      assert.equal(status.restartCount, 1, status.name);
    }
    // The init container has succeeded before, as the condition `Initialized` shows.
    assert.equal(removed.initContainerStatuses?.[0]?.ready, true);
  });

  it('keeps the last termination while they start one after the other', () => {
    const starting = next([container('init', 1, 0), container('a', 1)], removed);
    assert.equal(starting.phase, 'Running');
    for (const status of [...(starting.initContainerStatuses ?? []), ...(starting.containerStatuses ?? [])]) {
      assert.equal(status.lastState?.terminated?.reason, 'RestartingAllContainers', status.name);
      assert.equal(status.restartCount, 1, status.name);
    }
  });
});

it('reports a running container that the runtime has lost as restarted, and fails the pod that may not restart it', () => {
  const old = { name: 'a', restartCount: 1, state: { running: { startedAt: '2026-01-02T03:04:05Z' } } };
  const previous = {
    containerStatuses: [old],
    conditions: [{ type: 'Initialized', status: 'True' }],
  } as unknown as PodStatus;
  const lost = (restartPolicy: string): PodStatus =>
    statusOf(
      { restartPolicy, containers: [{ name: 'a', image: 'i' }], initContainers: [{ name: 'i', image: 'i' }] },
      { recursiveReadOnly: false, previous },
    );
  assert.partialDeepStrictEqual(lost('Always').containerStatuses, [
    {
      restartCount: 2,
      state: { waiting: { reason: 'PodInitializing' } },
      lastState: {
        terminated: {
          exitCode: 137,
          reason: 'ContainerStatusUnknown',
          message: 'The container could not be located when the pod was deleted.  The container used to be Running',
        },
      },
    },
  ]);
  assert.equal(lost('Always').conditions?.find(({ type }) => type === 'Initialized')?.status, 'True');
  const init = { name: 'i', restartCount: 0, state: { terminated: { exitCode: 0 } } };
  const failed = statusOf(
    { restartPolicy: 'Never', containers: [{ name: 'a', image: 'i' }], initContainers: [{ name: 'i', image: 'i' }] },
    { recursiveReadOnly: false, previous: { ...previous, initContainerStatuses: [init] } as unknown as PodStatus },
  );
  assert.equal(failed.phase, 'Failed');
});

it('reports a removed init container as completed once containers that start after it exist', () => {
  const init = { name: 'one', image: 'i' };
  const spec = { initContainers: [init], containers: [{ name: 'a', image: 'i' }] };
  const running = {
    id: 'c1',
    name: 'a',
    state: 'running',
    attempt: 0,
    image: 'i',
    imageRef: '',
    imageId: 'x',
    annotations: {},
    labels: {},
    startedAtMs: 1,
  } as unknown as ContainerStatus;
  const status = statusOf(spec, { recursiveReadOnly: false, containers: [running] });
  assert.partialDeepStrictEqual(status.initContainerStatuses, [
    { name: 'one', ready: true, restartCount: 0, state: { terminated: { exitCode: 0, reason: 'Completed' } } },
  ]);
  const initialized = status.conditions?.find(({ type }) => type === 'Initialized');
  assert.equal(initialized?.status, 'True');
  assert.equal(status.phase, 'Running');
});

it('reports of a read-only mount whether it is recursive, never that this was requested if possible', () => {
  const mount = (name: string, recursiveReadOnly?: string): object => ({
    name,
    mountPath: `/${name}`,
    readOnly: true,
    recursiveReadOnly,
  });
  const spec = {
    containers: [
      {
        name: 'a',
        volumeMounts: [
          mount('possible', 'IfPossible'),
          mount('no', 'Disabled'),
          mount('unset'),
          { name: 'writable', mountPath: '/w' },
        ],
      },
    ],
  };
  const modes = (recursiveReadOnly: boolean): unknown[] =>
    (statusOf(spec, { recursiveReadOnly }).containerStatuses?.[0]?.volumeMounts ?? []).map(
      (shown) => shown.recursiveReadOnly,
    );
  assert.deepEqual(modes(false), ['Disabled', 'Disabled', 'Disabled', undefined]);
  assert.deepEqual(modes(true), ['Enabled', 'Disabled', 'Disabled', undefined]);
});

describe('ephemeral containers', () => {
  const spec = {
    containers: [{ name: 'main', image: 'i' }],
    ephemeralContainers: [
      { name: 'second', image: 'i' },
      { name: 'first', image: 'i' },
    ],
  };
  const ended = {
    ...{ id: '1', name: 'first', attempt: 0, state: 'exited', exitCode: 128, reason: 'StartError', message: '' },
    ...{ createdAtMs: 0, startedAtMs: 1, finishedAtMs: 2, image: 'i', imageId: 'i', imageRef: 'i' },
    ...{ annotations: {}, mounts: [], logPath: '' },
  } as unknown as ContainerStatus;
  it('are in the order of their names, and nothing says whether they have started', () => {
    const { ephemeralContainerStatuses: shown = [] } = statusOf(spec, { recursiveReadOnly: false });
    assert.deepEqual(
      shown.map((status) => [status.name, 'started' in status]),
      [
        ['first', false],
        ['second', false],
      ],
    );
  });
  it('that could not be started wait for the reason, like other containers', () => {
    const waiting = 'RunContainerError';
    const status = statusOf(spec, { recursiveReadOnly: false, containers: [ended], waiting });
    const [first] = status.ephemeralContainerStatuses ?? [];
    assert.deepEqual(first?.state, { waiting: { reason: waiting } });
    assert.equal(first?.lastState?.terminated?.reason, 'StartError');
  });
  it('of a deleted pod have no such reason, because they are not started again', () => {
    const waiting = 'ErrImageNeverPull';
    const status = statusOf(spec, { recursiveReadOnly: false, containers: [ended], waiting, deleted: true });
    const [first, second] = status.ephemeralContainerStatuses ?? [];
    assert.equal(first?.state?.terminated?.exitCode, 128);
    assert.deepEqual(second?.state, { waiting: { reason: 'ContainerCreating' } });
  });
});

describe('a pod that the agent has ended', () => {
  const previous = { phase: 'Failed', reason: 'Evicted', message: 'The node was low on memory.' };
  const of = (exitCode: number, more: Partial<Seen> = {}): readonly (string | undefined)[] => {
    const exited = {
      ...{ id: '1', name: 'main', attempt: 0, state: 'exited', exitCode, reason: 'Completed', message: '' },
      ...{ createdAtMs: 0, startedAtMs: 1, finishedAtMs: 2, image: 'i', imageId: 'i', imageRef: 'i' },
      ...{ annotations: {}, mounts: [], logPath: '' },
    } as unknown as ContainerStatus;
    const seen = { recursiveReadOnly: false, containers: [exited], previous, terminal: true, ...more };
    const { phase, reason, message } = statusOf({ containers: [{ name: 'main', image: 'i' }] }, seen);
    return [phase, reason, message];
  };
  it('has failed for that reason if its containers have', () =>
    assert.deepEqual(of(137), ['Failed', 'Evicted', 'The node was low on memory.']));
  it('has succeeded if its containers have', () => assert.deepEqual(of(0), ['Succeeded', undefined, undefined]));
  it('is ready until its containers are killed, unless it has exceeded its deadline', () => {
    const running = {
      ...{ id: '1', name: 'main', attempt: 0, state: 'running', createdAtMs: 0, startedAtMs: 1 },
      ...{ image: 'i', imageId: 'i', imageRef: 'i', annotations: {}, mounts: [], logPath: '' },
    } as unknown as ContainerStatus;
    const why = { reason: 'Why', message: 'because' };
    const shown = (more: Partial<Seen>): readonly (string | undefined)[] => {
      const seen = { recursiveReadOnly: false, containers: [running], ...more };
      const { phase, reason, conditions } = statusOf({ containers: [{ name: 'main', image: 'i' }] }, seen);
      const ready = conditions?.find(({ type }) => type === 'Ready');
      return [phase, reason, ready?.status, ready?.reason];
    };
    assert.deepEqual(shown({ ended: why }), ['Failed', 'Why', 'True', undefined]);
    assert.deepEqual(shown({ overdue: why }), ['Failed', 'Why', 'False', 'PodFailed']);
  });
  it('has failed once the API server shows so', () =>
    assert.deepEqual(of(0, { phase: 'Failed' }), ['Failed', 'Evicted', 'The node was low on memory.']));
});

describe('the termination messages of a pod', () => {
  const exited = (name: string, attempt: number): ContainerStatus =>
    ({
      ...{ id: `${name}-${attempt}`, name, attempt, state: 'exited', exitCode: 1, reason: 'Error', message: '' },
      ...{ createdAtMs: attempt, startedAtMs: 1, finishedAtMs: 2, image: 'i', imageId: 'i', imageRef: 'i' },
      ...{ annotations: {}, mounts: [], logPath: '' },
    }) as unknown as ContainerStatus;
  const messagesOf = (containers: number, message: string): readonly (string | undefined)[] => {
    const names = Array.from({ length: containers }, (_, index) => `c${index}`);
    const [init = '', debug = '', ...rest] = names;
    const spec = {
      initContainers: [{ name: init, image: 'i' }],
      ephemeralContainers: [{ name: debug, image: 'i' }],
      containers: rest.map((name) => ({ name, image: 'i' })),
      restartPolicy: 'Never',
    };
    const status = statusOf(spec, {
      recursiveReadOnly: false,
      containers: names.flatMap((name) => [exited(name, 0), exited(name, 1)]),
      message,
    });
    return [
      ...(status.initContainerStatuses ?? []),
      ...(status.containerStatuses ?? []),
      ...(status.ephemeralContainerStatuses ?? []),
    ].flatMap(({ state, lastState }) => [state?.terminated?.message, lastState?.terminated?.message]);
  };

  it('stay whole if three containers write as much as each may', () => {
    const message = 'x'.repeat(4096);
    assert.deepEqual(new Set(messagesOf(3, message)), new Set([message]));
  });
  it('have 12 KiB together, in equal shares for containers of every kind, and include those of previous attempts', () => {
    const messages = messagesOf(24, `begin${'x'.repeat(4091)}`);
    assert.equal(messages.length, 48);
    assert.deepEqual(new Set(messages), new Set([`begin${'x'.repeat(507)}`]));
  });
  it('are counted in bytes and cut between characters', () => {
    // 12288 / 5 = 2457 bytes, of which 2456 are 614 whole characters.
    assert.deepEqual(new Set(messagesOf(5, '😀'.repeat(1024))), new Set(['😀'.repeat(614)]));
  });
});

describe('a pod with pod-level resources', () => {
  const whole = (cpu: string): object => ({
    resources: { requests: { cpu }, limits: { cpu } },
    overhead: { cpu: '100m' },
    containers: [
      { name: 'a', resources: { requests: { 'example.com/thing': '1' }, limits: { 'example.com/thing': '1' } } },
    ],
  });
  const resourcesOf = (status: PodStatus): unknown[] => [status.resources, status.allocatedResources];

  it('shows these, and none of its containers', () => {
    const status = statusOf(whole('1'), { recursiveReadOnly: false });
    assert.deepEqual(resourcesOf(status), [{ limits: { cpu: '1' }, requests: { cpu: '1' } }, { cpu: '1' }]);
  });
  it('shows its actual and its allocated resources while a resize is in progress', () => {
    const previous = statusOf(whole('1'), { recursiveReadOnly: false });
    const resize = { inProgress: { generation: 2 } };
    const status = statusOf(whole('2'), { recursiveReadOnly: false, previous, resize });
    assert.deepEqual(resourcesOf(status), [{ limits: { cpu: '1' }, requests: { cpu: '1' } }, { cpu: '2' }]);
    const done = statusOf(whole('2'), { recursiveReadOnly: false, previous: status });
    assert.deepEqual(resourcesOf(done), [{ limits: { cpu: '2' }, requests: { cpu: '2' } }, { cpu: '2' }]);
  });
});

describe('the status of a pod that runs shows the resources of its cgroup', () => {
  const running = (spec: object, containers: readonly ContainerStatus[] = []): PodStatus =>
    statusOf(spec, { recursiveReadOnly: false, previous: { phase: 'Running' } as PodStatus, containers });
  const resources = (requests: object, limits: object, name = 'a'): object => ({
    name,
    resources: { requests, limits },
  });

  it('CPU and whole pages of memory, and no other resources', () => {
    const all = resources(
      { cpu: '37m', memory: '20M', 'ephemeral-storage': '1Mi' },
      { cpu: '133m', memory: '50M', 'ephemeral-storage': '2Mi' },
    );
    const { resources: shown, allocatedResources } = running({ containers: [all] });
    assert.deepEqual(shown, {
      requests: { cpu: '37m', memory: '20M' },
      limits: { cpu: '133m', memory: '48828Ki' },
    });
    assert.deepEqual(allocatedResources, { cpu: '37m', memory: '20M', 'ephemeral-storage': '1Mi' });
  });
  it('the request of memory that it was shown with, also after a resize', () => {
    const before = { phase: 'Running', resources: { requests: { cpu: '37m', memory: '20Mi' } } } as PodStatus;
    const spec = { containers: [resources({ cpu: '50m', memory: '30Mi' }, {})] };
    const { resources: shown, allocatedResources } = statusOf(spec, { recursiveReadOnly: false, previous: before });
    assert.deepEqual(shown, { requests: { cpu: '50m', memory: '20Mi' } });
    assert.deepEqual(allocatedResources, { cpu: '50m', memory: '30Mi' });
  });
  it('also when it has ended', () => {
    const containers = [resources({ cpu: '37m', 'ephemeral-storage': '1Mi' }, {})];
    const previous = { ...running({ containers }), phase: 'Succeeded' };
    const { resources: shown } = statusOf({ containers }, { recursiveReadOnly: false, previous, terminal: true });
    assert.deepEqual(shown, { requests: { cpu: '37m' } });
  });
  it('no limit that one of its containers lacks', () => {
    const one = resources({}, { cpu: '300m', memory: '30Mi' });
    const { resources: shown } = running({ containers: [one, { name: 'b' }] });
    assert.deepEqual(shown, { requests: { cpu: '300m', memory: '30Mi' } });
  });
  it('no CPU below what the kernel distinguishes', () => {
    const tiny = resources({ cpu: '1m', memory: '5Mi' }, { cpu: '3m', memory: '10Mi' });
    assert.deepEqual(running({ containers: [tiny] }).resources, {
      requests: { memory: '5Mi' },
      limits: { memory: '10Mi' },
    });
  });
  it('in a running container with limits also those that it has from its pod', () => {
    const container = { id: 'c', name: 'a', state: 'running', attempt: 0, image: 'i', startedAtMs: 1 };
    const spec = {
      resources: { limits: { cpu: '1', memory: '50Mi' } },
      containers: [resources({}, { memory: '10Mi' })],
    };
    const [status] = running(spec, [container as unknown as ContainerStatus]).containerStatuses ?? [];
    assert.deepEqual(status?.resources, { limits: { memory: '10Mi', cpu: '1' }, requests: { memory: '10Mi' } });
  });
});

it('has the conditions of others first, then those of a resize, with the time of the decision', () => {
  const resize = { pending: { reason: 'Deferred' as const, message: 'm', generation: 2 } };
  const status = statusOf({ containers: [] }, { recursiveReadOnly: false, phase: 'Running', resize });
  assert.deepEqual(status.conditions?.map(({ type }) => type).slice(0, 3), [
    'foreign',
    'PodResizePending',
    'PodReadyToStartContainers',
  ]);
  assert.equal(status.conditions?.[1]?.lastProbeTime, '1970-01-01T00:00:00Z');
});

describe('the status of a pod with thousands of containers', () => {
  it('takes time that grows with their number, also where the previous status has them', async () => {
    const run = (size: number): void => {
      const containers = Array.from({ length: size }, (_, at) => ({ name: `c${at}`, image: 'i' }));
      const first = statusOf({ containers }, { recursiveReadOnly: false });
      const second = statusOf({ containers }, { recursiveReadOnly: false, previous: first });
      assert.equal(second.containerStatuses?.length, size);
    };
    await assertLinearTime(run, { minBytes: 1_000, maxBytes: 12_000 });
  });
});

describe('the status of a sidecar that waits for its restart', () => {
  const spec = {
    initContainers: [{ name: 's', image: 'i', restartPolicy: 'Always' }],
    containers: [{ name: 'main', image: 'i' }],
  };
  const shown = (exitCode: number): unknown => {
    const exited = {
      ...{ id: '1', name: 's', attempt: 0, state: 'exited', exitCode, reason: exitCode === 0 ? 'Completed' : 'Error' },
      ...{ message: '', createdAtMs: 0, startedAtMs: 1, finishedAtMs: 2, image: 'i', imageId: 'i', imageRef: 'i' },
      ...{ annotations: {}, mounts: [], logPath: '' },
    } as unknown as ContainerStatus;
    const seen = { recursiveReadOnly: false, containers: [exited], waiting: 'CrashLoopBackOff' };
    return Object.keys(statusOf(spec, seen).initContainerStatuses?.[0]?.state ?? {});
  };
  it('has the reason after a failure', () => assert.deepEqual(shown(1), ['waiting']));
  it('is terminated after it exited with 0, as with the kubelet', () => assert.deepEqual(shown(0), ['terminated']));
});
