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
