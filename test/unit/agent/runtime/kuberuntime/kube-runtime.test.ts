/** Tests what a sync reports of the starts of pods and containers. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { KubeRuntime } from '../../../../../agent/runtime/kuberuntime/kube-runtime.ts';
import type { RuntimePodStatus } from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const pod = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u' },
  spec: { containers: [{ name: 'c', image: 'i' }], dnsPolicy: 'None', dnsConfig: { nameservers: ['10.0.0.10'] } },
} as unknown as Pod;
const nothing = { sandboxes: [], containers: [], ips: [] } as unknown as RuntimePodStatus;

/** Syncs a new pod whose image is missing. Resolves to what the observer received. */
async function observed(
  runSandbox: () => Promise<string>,
  {
    signal = new AbortController().signal,
    sandboxStatus = (): Promise<object> => Promise.resolve({ ips: ['10.1.0.2'] }),
  } = {},
): Promise<string[]> {
  const calls: string[] = [];
  const directory = temporaryFolder();
  const events: string[] = [];
  const options = {
    runtime: { runSandbox, sandboxStatus },
    clock: new FakeClock(),
    logger: silentLogger,
    events: { event: (_pod: Pod, _type: string, reason: string) => void events.push(reason) },
    images: { ensure: () => Promise.reject(new Error('no such image')) },
    network: { admit: () => Promise.resolve(), forget: () => undefined },
    probes: () => undefined,
    containerLogsDirectory: undefined,
    starts: {
      pod: ({ metadata }: Pod) => calls.push(`pod ${metadata.name}`),
      sandboxFailed: () => calls.push('sandbox failed'),
      podFailed: ({ metadata }: Pod) => calls.push(`pod ${metadata.name} failed`),
      container: (kind: string) => calls.push(kind),
      containerFailed: (kind: string, reason: string) => calls.push(`${kind} failed: ${reason}`),
    },
    config: {
      settings: {
        podLogsDirectory: directory,
        dns: { clusterDns: [], clusterDomain: '', resolvConf: '' },
        security: { seccompDirectory: directory, seccompDefault: false },
        resources: () => ({}),
        cgroupParent: () => '',
        runtimeHandler: () => Promise.resolve(''),
      },
      userNamespaces: { mapping: () => Promise.resolve(undefined) },
      hostIps: () => [],
    },
  };
  const runtime = new KubeRuntime(options as unknown as ConstructorParameters<typeof KubeRuntime>[0]);
  await runtime.syncPod(pod, nothing, signal).catch((error: unknown) => calls.push((error as Error).message));
  return [...calls, ...events];
}

it('counts the start of a pod whose sandbox cannot be created, and its failure', async () =>
  assert.deepEqual(await observed(() => Promise.reject(new Error('no network'))), [
    'pod p',
    'sandbox failed',
    'pod p failed',
    'FailedCreatePodSandBox',
  ]));

it('counts the start of a container that fails before the runtime creates it, and the failure of its pod', async () =>
  assert.deepEqual(await observed(() => Promise.resolve('s1')), [
    'pod p',
    'regular',
    'regular failed: RunContainerError',
    'pod p failed',
  ]));

it('counts no failure of a pod that terminates while its sandbox is created', async () => {
  const terminated = new AbortController();
  const run = (): Promise<string> => {
    terminated.abort();
    return Promise.reject(new Error('the pod is gone'));
  };
  assert.deepEqual(await observed(run, terminated), ['pod p', 'the pod is gone']);
});

it('reports that the status of a new sandbox cannot be read', async () => {
  const sandboxStatus = (): Promise<object> => Promise.reject(new Error('no answer'));
  assert.deepEqual(await observed(() => Promise.resolve('s1'), { sandboxStatus }), [
    'pod p',
    'pod p failed',
    'no answer',
    'FailedStatusPodSandBox',
  ]);
});

/** Creates a runtime whose containers start at once, and whose hooks fail. */
function startingRuntime(clock: FakeClock): { readonly runtime: KubeRuntime; readonly created: () => number } {
  const directory = temporaryFolder();
  let created = 0;
  const runtime = new KubeRuntime({
    runtime: {
      runSandbox: () => Promise.resolve('s1'),
      sandboxStatus: () => Promise.resolve({ ips: ['10.1.0.2'] }),
      createContainer: () => Promise.resolve(`c${(created += 1)}`),
      startContainer: () => Promise.resolve(),
      stopContainer: () => Promise.resolve(),
      execSync: () => Promise.reject(new Error('the hook failed')),
    },
    clock,
    logger: silentLogger,
    events: { event: () => undefined },
    images: { ensure: () => Promise.resolve({ id: 'image' }) },
    network: { admit: () => Promise.resolve(), forget: () => undefined },
    probes: () => undefined,
    containerLogsDirectory: undefined,
    config: {
      settings: {
        ...{ podLogsDirectory: directory, rootDirectory: directory },
        dns: { clusterDns: [], clusterDomain: '', resolvConf: '' },
        security: { seccompDirectory: directory, seccompDefault: false },
        resources: () => ({}),
        cgroupParent: () => '',
        runtimeHandler: () => Promise.resolve(''),
      },
      services: { list: () => [] },
      objects: {},
      volumes: {
        containerMounts: () => Promise.resolve({ mounts: [], devices: [] }),
        extraSupplementalGroups: () => [],
      },
      userNamespaces: { mapping: () => Promise.resolve(undefined) },
      hostIps: () => [],
      allocatable: () => ({}),
    },
  } as unknown as ConstructorParameters<typeof KubeRuntime>[0]);
  return { runtime, created: () => created };
}

/** Returns the pod with its container `c`, which exited after it ran for a time. */
const exited = (
  attempt: number,
  { finishedAtMs, ranMs }: { finishedAtMs: number; ranMs: number },
): RuntimePodStatus => {
  const config = { id: 's1', state: 'ready', attempt: 0, ips: ['10.1.0.2'], createdAtMs: 0, runtimeHandler: '' };
  const times = { startedAtMs: finishedAtMs - ranMs, finishedAtMs };
  const last = { id: `c${attempt}`, name: 'c', state: 'exited', attempt, exitCode: 1, ...times };
  return {
    sandboxes: [{ ...config, pod: { uid: 'u' }, labels: {}, annotations: {} }],
    containers: [{ ...last, labels: {}, annotations: {} }],
    ips: config.ips,
  } as unknown as RuntimePodStatus;
};

it('has the next sync wait after a hook failed, and another one show the back-off soon', async () => {
  const clock = new FakeClock();
  const { runtime, created } = startingRuntime(clock);
  const container = { name: 'c', image: 'i', lifecycle: { postStart: { exec: { command: ['hook'] } } } };
  const hooked = { ...pod, spec: { ...pod.spec, containers: [container] } } as unknown as Pod;
  const never = new AbortController().signal;
  const first = await runtime.syncPod(hooked, nothing, never);
  assert.deepEqual([first.settlesAtMs, first.retryAtMs], [clock.now() + 1_000, undefined]);
  const times = { finishedAtMs: clock.now(), ranMs: 5_000 };
  const second = await runtime.syncPod(hooked, exited(0, times), never);
  assert.equal(second.settlesAtMs, clock.now() + 1_000);
  const third = await runtime.syncPod(hooked, exited(1, times), never);
  assert.equal(created(), 2, 'the third sync finds the back-off');
  assert.deepEqual([third.settlesAtMs, third.retryAtMs], [undefined, clock.now() + 1_000]);
  const fourth = await runtime.syncPod(hooked, exited(1, times), never);
  assert.equal(fourth.retryAtMs, undefined);
});

for (const [ranMs, isSoon] of [
  [300, true],
  [2_000, false],
] as const)
  it(`shows the back-off of a container that ran for ${ranMs} ms ${isSoon ? 'once after a second' : 'when it ends'}`, async () => {
    const clock = new FakeClock();
    const { runtime, created } = startingRuntime(clock);
    const container = { name: 'c', image: 'i', command: ['crash'] };
    const crashing = { ...pod, spec: { ...pod.spec, containers: [container] } } as unknown as Pod;
    const never = new AbortController().signal;
    await runtime.syncPod(crashing, nothing, never);
    const times = { finishedAtMs: clock.now(), ranMs };
    const restarted = await runtime.syncPod(crashing, exited(0, times), never);
    assert.deepEqual([created(), restarted.retryAtMs], [2, undefined]);
    const backsOff = await runtime.syncPod(crashing, exited(1, times), never);
    assert.deepEqual([created(), backsOff.retryAtMs], [2, isSoon ? clock.now() + 1_000 : undefined]);
    const again = await runtime.syncPod(crashing, exited(1, times), never);
    assert.equal(again.retryAtMs, undefined);
  });

for (const [what, sandboxState, liveness, restarts] of [
  ['kills an unhealthy container', 'ready', 'failure', []],
  ['replaces a sandbox', 'notready', undefined, []],
  ['restarts all containers', 'ready', undefined, [{ exitCodes: { operator: 'In', values: [42] } }]],
] as const)
  it(`ends a sync that ${what} when the pod terminates, though the container does not stop`, async () => {
    const terminated = new AbortController();
    const stopping = Promise.withResolvers<void>();
    const options = {
      runtime: {
        stopContainer: () => {
          stopping.resolve();
          return new Promise(() => undefined);
        },
      },
      clock: new FakeClock(),
      logger: silentLogger,
      events: { event: () => undefined },
      probes: (kind: string) => (kind === 'liveness' ? liveness : undefined),
      config: { settings: { resources: () => ({}) } },
    };
    const runtime = new KubeRuntime(options as unknown as ConstructorParameters<typeof KubeRuntime>[0]);
    const restartPolicyRules = restarts.map((one) => ({ action: 'RestartAllContainers', ...one }));
    const containers = [
      { name: 'c', image: 'i' },
      ...(restarts.length === 0 ? [] : [{ name: 'd', image: 'i', restartPolicy: 'Never', restartPolicyRules }]),
    ];
    const sandbox = {
      id: 's1',
      state: sandboxState,
      attempt: 0,
      ips: ['10.1.0.2'],
      createdAtMs: 0,
      runtimeHandler: '',
    };
    const one = { attempt: 0, labels: {}, annotations: {}, sandboxId: 's1', startedAtMs: 0, createdAtMs: 0 };
    const status = {
      sandboxes: [{ ...sandbox, pod: { uid: 'u' }, labels: {}, annotations: {} }],
      containers: [
        { ...one, id: 'c0', name: 'c', state: 'running' },
        ...(restarts.length === 0 ? [] : [{ ...one, id: 'd0', name: 'd', state: 'exited', exitCode: 42 }]),
      ],
      ips: ['10.1.0.2'],
    } as unknown as RuntimePodStatus;
    const of = { ...pod, spec: { ...pod.spec, containers } } as unknown as Pod;
    const syncing = runtime.syncPod(of, status, terminated.signal).catch((error: unknown) => (error as Error).message);
    await stopping.promise;
    terminated.abort(new Error('the pod is terminating'));
    assert.equal(await syncing, 'the pod is terminating');
  });
