/** What a sync reports of the starts of pods and containers. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/model/pod.ts';
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
  const told: string[] = [];
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
      pod: ({ metadata }: Pod) => told.push(`pod ${metadata.name}`),
      sandboxFailed: () => told.push('sandbox failed'),
      podFailed: ({ metadata }: Pod) => told.push(`pod ${metadata.name} failed`),
      container: (kind: string) => told.push(kind),
      containerFailed: (kind: string, reason: string) => told.push(`${kind} failed: ${reason}`),
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
  await runtime.syncPod(pod, nothing, signal).catch((error: unknown) => told.push((error as Error).message));
  return [...told, ...events];
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

it('has the next sync wait after a hook failed, and another one show the back-off soon', async () => {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const container = { name: 'c', image: 'i', lifecycle: { postStart: { exec: { command: ['hook'] } } } };
  const hooked = { ...pod, spec: { ...pod.spec, containers: [container] } } as unknown as Pod;
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
  const never = new AbortController().signal;
  const first = await runtime.syncPod(hooked, nothing, never);
  assert.deepEqual([first.settlesAtMs, first.retryAtMs], [clock.now() + 1_000, undefined]);
  const exited = (attempt: number): RuntimePodStatus => {
    const config = { id: 's1', state: 'ready', attempt: 0, ips: ['10.1.0.2'], createdAtMs: 0, runtimeHandler: '' };
    const last = { id: `c${attempt}`, name: 'c', state: 'exited', attempt, exitCode: 1, finishedAtMs: clock.now() };
    return {
      sandboxes: [{ ...config, pod: { uid: 'u' }, labels: {}, annotations: {} }],
      containers: [{ ...last, labels: {}, annotations: {} }],
      ips: config.ips,
    } as unknown as RuntimePodStatus;
  };
  const second = await runtime.syncPod(hooked, exited(0), never);
  assert.equal(second.settlesAtMs, clock.now() + 1_000);
  const third = await runtime.syncPod(hooked, exited(1), never);
  assert.equal(created, 2, 'the third sync finds the back-off');
  assert.deepEqual([third.settlesAtMs, third.retryAtMs], [undefined, clock.now() + 1_000]);
  const fourth = await runtime.syncPod(hooked, exited(1), never);
  assert.equal(fourth.retryAtMs, undefined);
});
