/** Tests the first sync of a restarted agent, with its own allocation and cgroups. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { CgroupManager, CgroupResources } from '../../../../../agent/host/cgroups/cgroup-resources.ts';
import { createPodCgroups } from '../../../../../agent/host/cgroups/pod-cgroups.ts';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { VolumeError, VolumeLimitExceeded } from '../../../../../agent/runtime/container-volumes.ts';
import { PodAllocations } from '../../../../../agent/pods/workers/pod-allocation.ts';
import { PodSync, type PodSyncOptions } from '../../../../../agent/pods/workers/pod-sync.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const MIB = 1024 * 1024;
const limited = (cpu: string, memory: string): object => ({ limits: { cpu, memory }, requests: { cpu, memory } });

/** Returns a pod whose containers run with the resources in its status, while its spec requests others. */
function resizedPod(desired: object, actual: object): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'u', annotations: { 'kubernetes.io/config.source': 'api' } },
    spec: { containers: [{ name: 'c', image: 'i', resources: desired }] },
    status: { containerStatuses: [{ name: 'c', containerID: 'fake://1', resources: actual }] },
  } as unknown as Pod;
}

function syncOf(options: object): PodSync {
  return new PodSync({
    runtime: {
      listSandboxes: () => Promise.resolve([]),
      listContainers: () => Promise.resolve([]),
      containerStats: () => Promise.resolve([]),
    },
    runtimeName: 'fake',
    kubeRuntime: {
      resizing: () => [],
      lowered: () => [],
      waitingReason: () => undefined,
      syncPod: () => Promise.resolve({ errors: [], retryAtMs: undefined }),
    },
    pods: { mirrorOf: () => undefined },
    volumes: { recursiveReadOnly: () => undefined, mount: () => Promise.resolve() },
    probes: {
      addPod: () => undefined,
      probeSoon: () => undefined,
      readiness: () => ({}),
      isReady: () => true,
      isStarted: () => true,
    },
    statuses: { get: () => undefined, set: () => undefined },
    objects: { registerPod: () => undefined, secret: () => Promise.resolve(undefined) },
    services: { synced: () => true },
    cgroups: {
      assume: () => undefined,
      isBehind: () => false,
      loweredMemory: () => undefined,
      ensure: () => Promise.resolve(),
    },
    mirrors: undefined,
    node: { hostIps: () => [] },
    allocations: new PodAllocations({
      node: () => ({ status: { allocatable: { cpu: '4', memory: '4Gi' } } }) as unknown as NodeObject,
      events: { event: () => undefined },
      others: () => [],
      cpuManagerPolicy: 'none',
      memoryManagerPolicy: 'None',
    }),
    events: { event: () => undefined },
    clock: new FakeClock(),
    logger: silentLogger,
    networkProblem: () => '',
    ...options,
  } as unknown as PodSyncOptions);
}

it('reports missing image pull secrets, and continues without them', async () => {
  const events: string[] = [];
  let synced = 0;
  const sync = syncOf({
    kubeRuntime: {
      resizing: () => [],
      lowered: () => [],
      waitingReason: () => undefined,
      syncPod: () => {
        synced += 1;
        return Promise.resolve({ errors: [], retryAtMs: undefined });
      },
    },
    objects: {
      registerPod: () => undefined,
      secret: (_namespace: string, name: string) =>
        name === 'unreadable'
          ? Promise.reject(new Error('no answer'))
          : Promise.resolve(name === 'there' ? {} : undefined),
    },
    events: {
      event: (_pod: Pod, type: string, reason: string, message: string) =>
        void events.push(`${type} ${reason} ${message}`),
    },
  });
  const imagePullSecrets = [{ name: 'gone' }, { name: 'there' }, {}, { name: 'unreadable' }];
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [{ name: 'c' }], imagePullSecrets },
  };
  await sync.sync(pod as unknown as Pod, new AbortController().signal);
  assert.deepEqual(events, [
    'Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, unreadable); attempting to pull the image may not succeed.',
  ]);
  assert.equal(synced, 1);
});

it('a static pod stays ready when the agent restarts, as its mirror pod shows it, unless the mirror is of an earlier run', async () => {
  const annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' };
  const readinessProbe = { exec: { command: ['true'] } };
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u', annotations },
    spec: { containers: [{ name: 'c', image: 'i', readinessProbe }] },
  } as unknown as Pod;
  const running = {
    id: '1',
    name: 'c',
    state: 'running',
    attempt: 0,
    image: 'i',
    imageRef: '',
    imageId: '',
    labels: {},
    annotations: {},
    startedAtMs: 1,
    createdAtMs: 1,
  };
  const shown = async (phase: string): Promise<unknown> => {
    const statuses: unknown[] = [];
    const mirror = {
      metadata: {
        name: 'p',
        namespace: 'ns',
        uid: 'm',
        annotations: { ...annotations, 'kubernetes.io/config.mirror': 'h' },
      },
      status: { phase, containerStatuses: [{ name: 'c', containerID: 'fake://1', ready: true, started: true }] },
    } as unknown as Pod;
    const sync = syncOf({
      runtime: {
        listSandboxes: () => Promise.resolve([]),
        listContainers: () => Promise.resolve([running]),
        containerStatus: () => Promise.resolve(running),
        containerStats: () => Promise.resolve([]),
      },
      probes: { addPod: () => undefined, probeSoon: () => undefined, result: () => undefined },
      pods: { mirrorOf: () => mirror },
      statuses: { get: () => undefined, set: (_pod: Pod, status: unknown) => void statuses.push(status) },
    });
    await sync.sync(pod, new AbortController().signal);
    return statuses[0];
  };
  assert.partialDeepStrictEqual(await shown('Running'), { containerStatuses: [{ name: 'c', ready: true }] });
  assert.partialDeepStrictEqual(await shown('Failed'), {
    phase: 'Running',
    containerStatuses: [{ name: 'c', ready: false }],
  });
});

it('the limits of a pod whose resize was lowered while the agent was down shrink after its containers have', async () => {
  const set: CgroupResources[] = [];
  const manager: CgroupManager = {
    name: (parts) => parts.join('/'),
    set: (_name, resources) => Promise.resolve(void set.push(resources)),
    update: () => Promise.resolve(true),
    remove: () => Promise.resolve(),
    children: () => Promise.resolve([]),
    isUsed: () => Promise.resolve(false),
  };
  const cgroups = createPodCgroups({ manager, perQos: true, podPidsLimit: 0, cpuQuota: true, cpuPeriodUs: 100_000 });
  let changesLeft: readonly string[] = ['c'];
  const sync = syncOf({
    kubeRuntime: { resizing: () => changesLeft, lowered: () => [], waitingReason: () => undefined },
    volumes: { recursiveReadOnly: () => undefined, mount: () => Promise.reject(new VolumeError('the test ends here')) },
    cgroups,
  });
  const pod = resizedPod(limited('1', '32Mi'), limited('2', '64Mi'));
  await sync.sync(pod, new AbortController().signal);
  assert.deepEqual([set.at(-1)?.cpuQuota?.quotaUs, set.at(-1)?.memoryBytes], [200_000, 64 * MIB]);
  changesLeft = [];
  await sync.sync(pod, new AbortController().signal);
  assert.deepEqual([set.at(-1)?.cpuQuota?.quotaUs, set.at(-1)?.memoryBytes], [100_000, 32 * MIB]);
});

it('shows why a container waits at the next sync, and syncs again when its back-off is over', async () => {
  const clock = new FakeClock();
  const backOffUntilMs = clock.now() + 20_000;
  const reasons: unknown[] = [];
  let waiting: object | undefined;
  const sync = syncOf({
    clock,
    kubeRuntime: {
      resizing: () => [],
      lowered: () => [],
      waitingReason: () => waiting,
      syncPod: () => {
        waiting = { reason: 'CrashLoopBackOff', message: 'back-off 20s' };
        return Promise.resolve({ errors: [new Error('no')], backOffUntilMs });
      },
    },
    statuses: {
      get: () => undefined,
      set: (_pod: Pod, status: NonNullable<Pod['status']>) =>
        void reasons.push(status.containerStatuses?.[0]?.state?.waiting?.reason),
    },
  });
  const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [{ name: 'c' }] } };
  const outcome = await sync.sync(pod as unknown as Pod, new AbortController().signal);
  assert.deepEqual(reasons, ['ContainerCreating']);
  assert.deepEqual([outcome.backOffUntilMs, outcome.retryAtMs], [backOffUntilMs, undefined]);
  await sync.sync(pod as unknown as Pod, new AbortController().signal);
  assert.deepEqual(reasons, ['ContainerCreating', 'CrashLoopBackOff']);
});

it('forgets the termination message of a container that the runtime has removed', async () => {
  const exited = (message: string): object => ({
    ...{ id: '1', name: 'c', state: 'exited', attempt: 0, image: 'i', imageRef: '', imageId: '', labels: {} },
    ...{ annotations: {}, mounts: [], startedAtMs: 0, finishedAtMs: 1, createdAtMs: 1, exitCode: 1, message },
  });
  const messages: unknown[] = [];
  let containers: readonly object[] = [];
  const sync = syncOf({
    runtime: {
      listSandboxes: () => Promise.resolve([]),
      listContainers: () => Promise.resolve(containers),
      containerStatus: () => Promise.resolve(containers[0]),
      containerStats: () => Promise.resolve([]),
    },
    statuses: {
      get: () => undefined,
      set: (_pod: Pod, status: NonNullable<Pod['status']>) =>
        void messages.push(status.containerStatuses?.[0]?.state?.terminated?.message),
    },
  });
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [{ name: 'c' }], restartPolicy: 'Never' },
  } as unknown as Pod;
  for (containers of [[exited('first')], [exited('changed')], [], [exited('later')]])
    await sync.sync(pod, new AbortController().signal);
  assert.deepEqual(messages, ['first', 'first', undefined, 'later']);
});

it('measures how long a resize takes in the cgroup of the pod and in its containers', async () => {
  const clock = new FakeClock();
  const attempts: unknown[] = [];
  const outcomes = [{}, { resizeError: 'no' }];
  const sync = syncOf({
    clock,
    kubeRuntime: {
      resizing: () => ['c'],
      lowered: () => [],
      waitingReason: () => undefined,
      syncPod: () => Promise.resolve({ errors: [], retryAtMs: undefined, resizeMs: 30, ...outcomes.shift() }),
    },
    cgroups: {
      assume: () => undefined,
      isBehind: () => false,
      loweredMemory: () => undefined,
      ensure: () => clock.advance(20),
    },
    allocations: {
      allocated: (pod: Pod) => pod,
      decide: (pod: Pod) => pod,
      conditions: () => ({}),
      actuated: () => undefined,
      attempted: (attempt: unknown) => void attempts.push(attempt),
    },
  });
  const pod = resizedPod(limited('1', '32Mi'), limited('2', '64Mi'));
  await sync.sync(pod, new AbortController().signal);
  await sync.sync(pod, new AbortController().signal);
  assert.deepEqual(attempts, [
    { tookMs: 50, isDone: true },
    { tookMs: 50, isDone: false },
  ]);
});

it('rejects a pod whose volumes the node has no room for', async () => {
  const seen: unknown[] = [];
  const sync = syncOf({
    volumes: { recursiveReadOnly: () => undefined, mount: () => Promise.reject(new VolumeLimitExceeded('no room')) },
    statuses: { get: () => undefined, set: (_pod: Pod, status: object) => seen.push(status) },
    events: { event: (_pod: Pod, ...event: string[]) => seen.push(event.join(' ')) },
    onRejected: (_pod: Pod, reason: string) => seen.push(reason),
  });
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u', annotations: { 'kubernetes.io/config.source': 'api' } },
    spec: { containers: [{ name: 'c', image: 'i' }] },
  };
  const { ended } = await sync.sync(pod, new AbortController().signal);
  const reason = 'VolumeAttachmentLimitExceeded';
  assert.equal(ended, true);
  assert.deepEqual(seen.slice(1), [
    `Warning ${reason} no room`,
    { phase: 'Failed', reason, message: 'Pod was rejected: no room', qosClass: 'BestEffort' },
    reason,
  ]);
});

it('reads the runtime for the clean-up only if the pod has changed since it was terminated', async () => {
  let lists = 0;
  const generations: unknown[] = [];
  const nothing = (): void => undefined;
  const sync = syncOf({
    runtime: {
      listSandboxes: () => Promise.resolve([]),
      listContainers() {
        lists += 1;
        return Promise.resolve([]);
      },
    },
    kubeRuntime: { resizing: () => [], waitingReason: nothing, killPod: () => Promise.resolve(), forgetPod: nothing },
    volumes: { recursiveReadOnly: nothing, unmount: () => Promise.resolve() },
    probes: {
      ...{ stopLivenessAndStartup: nothing, removePod: nothing, probeSoon: nothing },
      ...{ readiness: () => ({}), isReady: () => true, isStarted: () => true },
    },
    statuses: {
      get: nothing,
      set: (_pod: Pod, { observedGeneration }: { observedGeneration?: number }) => generations.push(observedGeneration),
      terminate: nothing,
    },
    objects: { unregisterPod: nothing },
    cgroups: { remove: () => Promise.resolve() },
  });
  const { signal } = new AbortController();
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u', generation: 1 },
    spec: { containers: [{ name: 'c' }] },
  } as unknown as Pod;
  await sync.terminate(pod, { gracePeriodSeconds: undefined, status: undefined }, signal);
  await sync.cleanUp(pod, signal);
  assert.equal(lists, 2);
  await sync.cleanUp({ ...pod, metadata: { ...pod.metadata, generation: 2 } }, signal);
  assert.equal(lists, 3);
  assert.deepEqual(generations, [1, 1, 2]);
});
