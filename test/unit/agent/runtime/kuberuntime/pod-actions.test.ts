import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import type { ProbeKind, ProbeResult } from '../../../../../agent/runtime/kuberuntime/probe-results.ts';
import { computePodActions } from '../../../../../agent/runtime/kuberuntime/pod-actions.ts';
import {
  assembleRuntimeStatus,
  type RuntimePodStatus,
} from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';
import type { ContainerStatus, SandboxStatus } from '../../../../../agent/runtime/runtime.ts';

const identity = { uid: 'u', name: 'p', namespace: 'ns' };

function pod(spec: object = {}, metadata: object = {}): Pod {
  return {
    metadata: { ...identity, ...metadata },
    spec: {
      containers: [
        { name: 'a', image: 'i' },
        { name: 'b', image: 'i' },
      ],
      restartPolicy: 'Always',
      ...spec,
    },
  } as unknown as Pod;
}

function sandbox(changes: object = {}): SandboxStatus {
  return {
    id: 's0',
    pod: { ...identity, attempt: 0 },
    state: 'ready',
    createdAtMs: 1,
    ips: ['10.0.0.2'],
    labels: {},
    annotations: {},
    networkMode: 'pod',
    runtimeHandler: '',
    ...changes,
  } as unknown as SandboxStatus;
}

function container(name: string, state: ContainerStatus['state'], changes: object = {}): ContainerStatus {
  return {
    id: `${name}-id`,
    sandboxId: 's0',
    name,
    attempt: 0,
    state,
    createdAtMs: 1,
    startedAtMs: 2,
    finishedAtMs: 3,
    exitCode: 0,
    reason: '',
    message: '',
    image: 'i',
    imageRef: '',
    imageId: '',
    labels: {},
    annotations: {},
    logPath: '',
    mounts: [],
    ...changes,
  } as unknown as ContainerStatus;
}

function status(
  containers: readonly ContainerStatus[],
  sandboxes: readonly SandboxStatus[] = [sandbox()],
): RuntimePodStatus {
  return assembleRuntimeStatus(identity, sandboxes, containers);
}

function act(of: Pod, is: RuntimePodStatus, probes: Record<string, ProbeResult> = {}): object {
  const actions = computePodActions(of, is, (kind: ProbeKind, id) => probes[`${kind}/${id}`]);
  return {
    kill: actions.killPod,
    sandbox: actions.createSandbox,
    attempt: actions.attempt,
    init: actions.initToStart.map((entry) => entry.name),
    start: actions.containersToStart.map((entry) => entry.name),
    stop: actions.containersToKill.map((entry) => `${entry.id}: ${entry.message}`),
    ephemeral: actions.ephemeralToStart.map((entry) => entry.name),
  };
}

const still = { kill: false, sandbox: false, attempt: 0, init: [], start: [], stop: [], ephemeral: [] };
const fresh = { ...still, kill: true, sandbox: true };
const running = [container('a', 'running'), container('b', 'running')];
const side = { name: 'side', image: 'i', restartPolicy: 'Always' };
const inits = {
  initContainers: [
    { name: 'one', image: 'i' },
    { name: 'two', image: 'i' },
  ],
};

describe('the actions of a pod', () => {
  const table: readonly (readonly [string, Pod, RuntimePodStatus, object, Record<string, ProbeResult>?])[] = [
    ['a new pod gets a sandbox and all its containers', pod(), status([], []), { ...fresh, start: ['a', 'b'] }],
    [
      'a new pod with init containers starts the first of them only',
      pod(inits),
      status([], []),
      { ...fresh, init: ['one'] },
    ],
    ['a pod that runs is left alone', pod(), status(running), still],
    [
      'an ended container is started again',
      pod(),
      status([container('a', 'exited', { exitCode: 1 }), container('b', 'running')]),
      { ...still, start: ['a'] },
    ],
    [
      'a container that ended well is not started again under OnFailure',
      pod({ restartPolicy: 'OnFailure' }),
      status([container('a', 'exited'), container('b', 'running')]),
      still,
    ],
    [
      'a container that failed is started again under OnFailure',
      pod({ restartPolicy: 'OnFailure' }),
      status([container('a', 'exited', { exitCode: 2 }), container('b', 'running')]),
      { ...still, start: ['a'] },
    ],
    [
      'nothing is started again under Never',
      pod({ restartPolicy: 'Never' }),
      status([container('a', 'exited', { exitCode: 2 }), container('b', 'running')]),
      still,
    ],
    [
      'a pod whose containers have all ended for good is killed',
      pod({ restartPolicy: 'Never' }),
      status([container('a', 'exited'), container('b', 'exited')]),
      { ...still, kill: true },
    ],
    [
      'a sandbox that went down is replaced, with everything in it',
      pod(),
      status(running, [sandbox({ state: 'not-ready' })]),
      { ...fresh, attempt: 1, start: ['a', 'b'] },
    ],
    [
      'a sandbox is not replaced under Never once containers were there',
      pod({ restartPolicy: 'Never' }),
      status(running, [sandbox({ state: 'not-ready' })]),
      { ...still, kill: true, attempt: 1 },
    ],
    [
      'a sandbox without an address is replaced',
      pod(),
      status([], [sandbox({ ips: [] })]),
      { ...fresh, attempt: 1, start: ['a', 'b'] },
    ],
    [
      'a pod that is on the node network needs no address',
      pod({ hostNetwork: true }),
      status(running, [sandbox({ ips: [], networkMode: 'node' })]),
      still,
    ],
    [
      'the second init container follows the first',
      pod(inits),
      status([container('one', 'exited')]),
      { ...still, init: ['two'] },
    ],
    ['nothing is done while an init container runs', pod(inits), status([container('one', 'running')]), still],
    [
      'the containers follow the last init container',
      pod(inits),
      status([container('two', 'exited'), container('one', 'exited')]),
      { ...still, start: ['a', 'b'] },
    ],
    [
      'a failed init container is started again',
      pod(inits),
      status([container('one', 'exited', { exitCode: 1 })]),
      { ...still, init: ['one'] },
    ],
    [
      'a failed init container ends the pod under Never',
      pod({ ...inits, restartPolicy: 'Never' }),
      status([container('one', 'exited', { exitCode: 1 })]),
      { ...still, kill: true },
    ],
    [
      'init containers of an earlier sandbox do not count',
      pod(inits),
      status([container('two', 'exited', { sandboxId: 'old' }), container('one', 'exited', { sandboxId: 'old' })]),
      { ...still, init: ['one'] },
    ],
    ['init containers do not run again once the pod is initialized', pod(inits), status(running), still],
    [
      'a sidecar that has started lets the next one begin',
      pod({ initContainers: [side, { name: 'two', image: 'i' }] }),
      status([container('side', 'running')]),
      { ...still, init: ['two'] },
    ],
    [
      'a sidecar is waited for until its startup probe succeeds',
      pod({ initContainers: [{ ...side, startupProbe: {} }] }),
      status([container('side', 'running')]),
      still,
    ],
    [
      'the containers follow a sidecar whose startup probe succeeded',
      pod({ initContainers: [{ ...side, startupProbe: {} }] }),
      status([container('side', 'running')]),
      { ...still, start: ['a', 'b'] },
      { 'startup/side-id': 'success' },
    ],
    [
      'a sidecar that ended is started again while the containers run',
      pod({ initContainers: [side] }),
      status([container('side', 'exited'), ...running]),
      { ...still, init: ['side'] },
    ],
    [
      'a sidecar does not keep a pod alive',
      pod({ initContainers: [side], restartPolicy: 'Never' }),
      status([container('side', 'running'), container('a', 'exited'), container('b', 'exited')]),
      { ...still, kill: true },
    ],
    [
      'a container that fails its liveness probe is killed and started',
      pod(),
      status(running),
      { ...still, start: ['a'], stop: ['a-id: Container a failed liveness probe, will be restarted'] },
      { 'liveness/a-id': 'failure' },
    ],
    [
      'a container that fails its startup probe is killed only, under Never',
      pod({ restartPolicy: 'Never' }),
      status(running),
      { ...still, stop: ['a-id: Container a failed startup probe'] },
      { 'startup/a-id': 'failure' },
    ],
    [
      'a container of another image is replaced',
      pod(),
      status([
        container('a', 'running', { annotations: { 'io.kubernetes.container.hash': 'other' } }),
        container('b', 'running'),
      ]),
      { ...still, start: ['a'], stop: ['a-id: Container a definition changed, will be restarted'] },
    ],
    [
      'an ephemeral container is started once',
      pod({ ephemeralContainers: [{ name: 'debug', image: 'i' }] }),
      status(running),
      { ...still, ephemeral: ['debug'] },
    ],
    [
      'an ephemeral container is not started again',
      pod({ ephemeralContainers: [{ name: 'debug', image: 'i' }] }),
      status([...running, container('debug', 'exited')]),
      still,
    ],
    [
      'a pod that is being deleted starts nothing',
      pod({}, { deletionTimestamp: 'now' }),
      status([container('a', 'running'), container('b', 'exited')]),
      still,
    ],
    [
      'a rule about the exit code starts a container again in spite of Never',
      pod({
        restartPolicy: 'Never',
        containers: [
          {
            name: 'a',
            image: 'i',
            restartPolicy: 'Never',
            restartPolicyRules: [{ action: 'Restart', exitCodes: { operator: 'In', values: [42] } }],
          },
        ],
      }),
      status([container('a', 'exited', { exitCode: 42 })]),
      { ...still, start: ['a'] },
    ],
  ];
  for (const [name, of, is, expected, probes] of table) it(name, () => assert.deepEqual(act(of, is, probes), expected));

  it('takes the sandbox of the latest attempt for the newest, though the clock was set back in between', () => {
    const old = sandbox({ state: 'not-ready', createdAtMs: 1_000_000 });
    const next = sandbox({ id: 's1', pod: { ...identity, attempt: 1 }, createdAtMs: 5 });
    const actions = computePodActions(
      pod(),
      status(
        running.map((entry) => ({ ...entry, sandboxId: next.id })),
        [old, next],
      ),
      () => undefined,
    );
    assert.deepEqual([actions.killPod, actions.createSandbox, actions.sandboxId], [false, false, 's1']);
  });

  describe('with a rule that restarts all containers', () => {
    const rule = { action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [42] } };
    const ruled = pod({
      restartPolicy: 'Never',
      containers: [
        { name: 'a', image: 'i', restartPolicy: 'Never', restartPolicyRules: [rule] },
        { name: 'b', image: 'i' },
      ],
    });
    const trigger = (a: ContainerStatus): string | undefined =>
      computePodActions(ruled, status([a, container('b', 'running')]), () => undefined).restartAllFor?.name;
    const ended = (exitCode: number, changes: object = {}): ContainerStatus =>
      container('a', 'exited', { exitCode, ...changes });

    it('restarts all containers in the sandbox when the exit code matches', () =>
      assert.equal(trigger(ended(42)), 'a'));
    it('does nothing of the kind for other codes', () => assert.equal(trigger(ended(1)), undefined));
    it('does nothing for an end in an older sandbox', () =>
      assert.equal(trigger(ended(42, { sandboxId: 'older' })), undefined));
  });

  it('restarts a container whose policy requires it for a resize, and leaves others running', () => {
    const decide = (resize: 'in-place' | 'restart'): object => {
      const actions = computePodActions(
        pod({ initContainers: [side] }),
        status([container('side', 'running'), ...running]),
        () => undefined,
        (of) => (of.name === 'b' ? 'none' : resize),
      );
      return {
        stop: actions.containersToKill.map((entry) => entry.message),
        start: [...actions.initToStart, ...actions.containersToStart].map((entry) => entry.name),
      };
    };
    assert.deepEqual(decide('in-place'), { stop: [], start: [] });
    assert.deepEqual(decide('restart'), {
      stop: ['Init container side resize requires restart', 'Container a resize requires restart'],
      start: ['side', 'a'],
    });
  });
});
