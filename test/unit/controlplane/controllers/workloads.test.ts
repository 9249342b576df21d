import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DaemonSet, Job, Node, Pod, StatefulSet } from '../../../../api/kinds/kinds.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import {
  controllerRevisions,
  daemonSets,
  jobs,
  namespaces,
  nodes,
  persistentVolumeClaims,
  pods,
  replicaSets,
  serviceAccounts,
  statefulSets,
} from '../../../../api/client/resources.ts';
import { runDaemonSets } from '../../../../controlplane/controllers/daemon-set/daemon-set.ts';
import { runJobs } from '../../../../controlplane/controllers/job/job.ts';
import { runTtlAfterFinished } from '../../../../controlplane/controllers/job/ttl-after-finished.ts';
import { runNamespaces } from '../../../../controlplane/controllers/namespace/namespace.ts';
import { runNodeLifecycle } from '../../../../controlplane/controllers/node/node-lifecycle.ts';
import { runTaintEviction } from '../../../../controlplane/controllers/node/taint-eviction.ts';
import { runReplicaSets } from '../../../../controlplane/controllers/replica-set/replica-set.ts';
import { runServiceAccounts } from '../../../../controlplane/controllers/service-account/service-accounts.ts';
import { computeStatus, planActions } from '../../../../controlplane/controllers/stateful-set/stateful-set-core.ts';
import { runStatefulSets } from '../../../../controlplane/controllers/stateful-set/stateful-set.ts';
import { isEnabled } from '../../../../controlplane/controllers/controller-names.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const template = (labels: Record<string, string>, restartPolicy = 'Always') => ({
  metadata: { labels },
  spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy },
});

async function setPhase(t: ControllerTest, name: string, phase: string): Promise<void> {
  const pod = t.client.peek(pods, 'shop', name);
  assert.ok(pod, `pod ${name}`);
  const conditions =
    phase === 'Running' ? [{ type: 'Ready', status: 'True', lastTransitionTime: formatTime(t.clock.now()) }] : [];
  await t.client.update(pods, { ...pod, status: { phase, conditions } }, { subresource: 'status' });
  await t.advance(100);
}

const names = (t: ControllerTest): string[] =>
  t.client
    .peekAll(pods)
    .map((pod) => pod.metadata.name ?? '')
    .toSorted();

test('a stateful set creates its pods one after another, each with its claim, and deletes them in reverse order', async () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop', annotations: { note: 'n' } },
    spec: {
      replicas: 2,
      serviceName: 'db',
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
      volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: {} }],
    },
  };
  const t = controllerTest({ objects: [[statefulSets, set]] });
  await t.start(runStatefulSets);
  await t.advance(100);
  assert.deepEqual(names(t), ['db-0']);
  assert.equal(t.client.peek(pods, 'shop', 'db-0')?.metadata.labels?.['apps.kubernetes.io/pod-index'], '0');
  await setPhase(t, 'db-0', 'Running');
  assert.deepEqual(names(t), ['db-0', 'db-1']);
  await setPhase(t, 'db-1', 'Running');
  assert.deepEqual(
    t.client.peekAll(persistentVolumeClaims).map(({ metadata }) => metadata.name),
    ['data-db-0', 'data-db-1'],
  );
  assert.deepEqual(
    t.client.peekAll(pods).map(({ metadata }) => metadata.generateName),
    ['db-', 'db-'],
  );
  assert.equal(t.client.peek(statefulSets, 'shop', 'db')?.status?.readyReplicas, 2);
  await t.client.patch(statefulSets, 'shop', 'db', { type: 'merge', body: { spec: { replicas: 1 } } });
  await t.advance(100);
  assert.deepEqual(names(t), ['db-0']);
  assert.equal(t.client.peekAll(persistentVolumeClaims).length, 2, 'claims outlive their pods');
  assert.deepEqual(
    t.events().filter((event) => event.includes('db-0')),
    [
      'Normal SuccessfulCreate Create Claim data-db-0 Pod db-0 in StatefulSet db success',
      'Normal SuccessfulCreate Create Pod db-0 in StatefulSet db successful',
    ],
  );
  const [revision] = t.client.peekAll(controllerRevisions);
  const hash = revision?.metadata.name?.replace('db-', '');
  assert.deepEqual(revision?.metadata.annotations, { note: 'n' });
  assert.deepEqual(revision?.metadata.labels, { app: 'db', 'controller.kubernetes.io/hash': hash });
  await t.stop();
});

test('a stateful set replaces a pod that has failed or has terminated by itself', async () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop' },
    spec: {
      replicas: 1,
      serviceName: 'db',
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
    },
  };
  const t = controllerTest({ objects: [[statefulSets, set]] });
  await t.start(runStatefulSets);
  for (const phase of ['Succeeded', 'Failed']) {
    await t.advance(100);
    const before = t.client.peek(pods, 'shop', 'db-0')?.metadata.uid;
    await setPhase(t, 'db-0', phase);
    await t.advance(100);
    assert.notEqual(t.client.peek(pods, 'shop', 'db-0')?.metadata.uid, before);
  }
  assert.deepEqual(t.events(), [
    'Normal SuccessfulCreate Create Pod db-0 in StatefulSet db successful x3',
    'Normal SuccessfulDelete Delete Pod db-0 in StatefulSet db successful x2',
  ]);
  await t.stop();
});

test('an ordered stateful set does not shrink past pods that are not healthy', async () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop' },
    spec: {
      replicas: 2,
      serviceName: 'db',
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
    },
  };
  const t = controllerTest({ objects: [[statefulSets, set]] });
  await t.start(runStatefulSets);
  await t.advance(100);
  for (const name of ['db-0', 'db-1']) await setPhase(t, name, 'Running');
  for (const name of ['db-0', 'db-1']) await setPhase(t, name, 'Pending');
  await t.client.patch(statefulSets, 'shop', 'db', { type: 'merge', body: { spec: { replicas: 0 } } });
  await t.advance(100);
  assert.deepEqual(names(t), ['db-0', 'db-1']);
  await setPhase(t, 'db-1', 'Running');
  assert.deepEqual(names(t), [], 'the last that is broken goes too');
  await t.stop();
});

test('the claims of a pending pod are recreated, and an adopted pod gets the label with its name', async () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop', uid: 'set-uid' },
    spec: {
      replicas: 1,
      serviceName: 'db',
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
      volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: {} }],
    },
  };
  const orphan = { metadata: { name: 'db-0', namespace: 'shop', labels: { app: 'db' } }, spec: { containers: [] } };
  const t = controllerTest({
    objects: [
      [statefulSets, set],
      [pods, orphan as Pod],
    ],
  });
  await t.start(runStatefulSets);
  await t.advance(100);
  await setPhase(t, 'db-0', 'Pending');
  assert.equal(t.client.peekAll(persistentVolumeClaims)[0]?.metadata.name, 'data-db-0');
  await setPhase(t, 'db-0', 'Running');
  assert.equal(t.client.peek(pods, 'shop', 'db-0')?.metadata.labels?.['statefulset.kubernetes.io/pod-name'], 'db-0');
  assert.ok(t.events().includes('Normal SuccessfulUpdate Update Pod db-0 in StatefulSet db successful'));
  await t.stop();
});

test('the current revision of a stateful set that updates on deletion stays', () => {
  const set = {
    metadata: { name: 'db' },
    spec: { replicas: 1, updateStrategy: { type: 'OnDelete' } },
  } as unknown as StatefulSet;
  const pod = {
    metadata: { name: 'db-0', uid: 'u', labels: { 'controller-revision-hash': 'db-b' } },
    status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] },
  } as unknown as Pod;
  const input = { set, pods: [pod], currentRevision: 'db-a', updateRevision: 'db-b', nowMs: 0 };
  const status = computeStatus(input, { current: 'db-a', update: 'db-b' });
  assert.deepEqual([status.currentRevision, status.updateRevision], ['db-a', 'db-b']);
  assert.deepEqual([status.currentReplicas, status.updatedReplicas], [undefined, 1]);
});

test('a stateful set of two thousand million replicas costs as much as the pods that it has', () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop' },
    spec: {
      replicas: 2 ** 31 - 1,
      podManagementPolicy: 'Parallel',
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
      updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '10%' } },
    },
  };
  const input = { set, pods: [], currentRevision: 'a', updateRevision: 'b', nowMs: 0 };
  const actions = planActions(input);
  assert.deepEqual([actions.length, actions.every(({ kind }) => kind === 'create')], [500, true]);
});

test('a rolling update of a stateful set proceeds from the highest ordinal down to the partition', async () => {
  const set: StatefulSet = {
    metadata: { name: 'db', namespace: 'shop' },
    spec: {
      replicas: 3,
      serviceName: 'db',
      podManagementPolicy: 'Parallel',
      ordinals: { start: 5 },
      selector: { matchLabels: { app: 'db' } },
      template: template({ app: 'db' }),
      updateStrategy: { type: 'RollingUpdate', rollingUpdate: { partition: 1 } },
    },
  };
  const t = controllerTest({ objects: [[statefulSets, set]] });
  await t.start(runStatefulSets);
  await t.advance(100);
  for (const name of names(t)) await setPhase(t, name, 'Running');
  const hash = () =>
    Object.fromEntries(
      t.client.peekAll(pods).map((pod) => [pod.metadata.name, pod.metadata.labels?.['controller-revision-hash']]),
    );
  const before = hash();
  await t.client.patch(statefulSets, 'shop', 'db', {
    type: 'merge',
    body: {
      spec: { template: { spec: { containers: [{ name: 'c', image: 'new' }] } } },
    },
  });
  for (let round = 0; round < 4; round++) {
    await t.advance(100);
    for (const name of names(t))
      if (t.client.peek(pods, 'shop', name)?.status?.phase !== 'Running') await setPhase(t, name, 'Running');
  }
  const after = hash();
  assert.equal(after['db-5'], before['db-5']);
  assert.notEqual(after['db-6'], before['db-6']);
  assert.equal(after['db-6'], after['db-7']);
  // Clients find the pods of a revision by its full name.
  const status = t.client.peek(statefulSets, 'shop', 'db')?.status;
  assert.deepEqual([after['db-5'], after['db-7']], [status?.currentRevision, status?.updateRevision]);
  await t.client.delete(pods, 'shop', 'db-5');
  await t.advance(100);
  assert.equal(hash()['db-5'], before['db-5'], 'below the partition a pod comes back as it was');
  await t.stop();
});

test('a daemon set has one pod on each node that fits, bound to it by affinity', async () => {
  const set: DaemonSet = {
    metadata: { name: 'log', namespace: 'shop' },
    spec: { selector: { matchLabels: { app: 'log' } }, template: template({ app: 'log' }) },
  };
  const node = (name: string, spec: object = {}): Node => ({ metadata: { name }, spec });
  const t = controllerTest({
    objects: [
      [nodes, node('a')],
      [nodes, node('b')],
      [nodes, node('c', { taints: [{ key: 'own', effect: 'NoSchedule' }] })],
      [daemonSets, set],
    ],
  });
  await t.start(runDaemonSets);
  await t.advance(100);
  const targets = t.client
    .peekAll(pods)
    .map(
      (pod) =>
        pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms[0]
          ?.matchFields?.[0]?.values?.[0],
    );
  assert.deepEqual(targets.toSorted(), ['a', 'b']);
  assert.equal(t.client.peek(daemonSets, 'shop', 'log')?.status?.desiredNumberScheduled, 2);
  await t.client.create(nodes, '', node('d'));
  await t.advance(100);
  assert.equal(t.client.peekAll(pods).length, 3);
  await t.client.delete(nodes, '', 'd');
  await t.advance(100);
  assert.equal(t.client.peekAll(pods).length, 2);
  await t.stop();
});

function job(spec: object = {}): Job {
  return {
    metadata: { name: 'work', namespace: 'shop' },
    spec: {
      parallelism: 1,
      completions: 2,
      backoffLimit: 2,
      selector: { matchLabels: { job: 'work' } },
      template: template({ job: 'work' }, 'Never'),
      ...spec,
    },
  };
}

const jobStatus = (t: ControllerTest) => t.client.peek(jobs, 'shop', 'work')?.status;
const jobCondition = (t: ControllerTest, type: string) =>
  jobStatus(t)?.conditions?.find((condition) => condition.type === type);

test('a job runs to its completions, counts each pod once and becomes complete', async () => {
  const t = controllerTest({ objects: [[jobs, job()]] });
  await t.start(runJobs);
  await t.advance(100);
  assert.deepEqual(jobStatus(t)?.uncountedTerminatedPods, {}, 'also while nothing waits to be counted');
  for (let round = 0; round < 2; round++) {
    const next = t.client.peekAll(pods).find((pod) => pod.status?.phase === undefined);
    await setPhase(t, next?.metadata.name ?? '', 'Succeeded');
  }
  assert.equal(jobStatus(t)?.succeeded, 2);
  assert.equal(jobCondition(t, 'Complete')?.reason, 'CompletionsReached');
  assert.deepEqual(jobStatus(t)?.uncountedTerminatedPods ?? {}, {});
  for (const pod of t.client.peekAll(pods)) assert.deepEqual(pod.metadata.finalizers ?? [], []);
  assert.ok(t.events().includes('Normal Completed Job completed'));
  await t.stop();
});

test('an indexed job gives each pod an index and makes only the missing ones again', async () => {
  const t = controllerTest({ objects: [[jobs, job({ completionMode: 'Indexed', completions: 3, parallelism: 3 })]] });
  await t.start(runJobs);
  await t.advance(100);
  const byIndex = (index: string): Pod[] =>
    t.client
      .peekAll(pods)
      .filter((pod) => pod.metadata.annotations?.['batch.kubernetes.io/job-completion-index'] === index);
  await setPhase(t, byIndex('0')[0]?.metadata.name ?? '', 'Succeeded');
  await setPhase(t, byIndex('2')[0]?.metadata.name ?? '', 'Succeeded');
  await setPhase(t, byIndex('1')[0]?.metadata.name ?? '', 'Failed');
  assert.equal(jobStatus(t)?.completedIndexes, '0,2');
  await t.advance(15_000);
  const again = byIndex('1').find((pod) => pod.status?.phase === undefined);
  assert.ok(again, 'recreated after the backoff');
  await setPhase(t, again.metadata.name ?? '', 'Succeeded');
  assert.equal(jobStatus(t)?.completedIndexes, '0-2');
  assert.equal(jobCondition(t, 'Complete')?.status, 'True');
  await t.stop();
});

test('a job fails when its back-off limit is exceeded', async () => {
  const t = controllerTest({ objects: [[jobs, job({ backoffLimit: 1 })]] });
  await t.start(runJobs);
  for (let round = 0; round < 2; round++) {
    await t.advance(60_000);
    const next = t.client.peekAll(pods).find((pod) => pod.status?.phase === undefined);
    await setPhase(t, next?.metadata.name ?? '', 'Failed');
  }
  assert.equal(jobCondition(t, 'Failed')?.reason, 'BackoffLimitExceeded');
  assert.equal(jobStatus(t)?.failed, 2);
  assert.equal(t.client.peekAll(pods).length, 2);
  await t.stop();
});

test('a failed pod that the policy of its job ignores is replaced and let go, and counts for nothing', async () => {
  const podFailurePolicy = {
    rules: [{ action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] }],
  };
  const t = controllerTest({ objects: [[jobs, job({ completions: 1, backoffLimit: 0, podFailurePolicy })]] });
  await t.start(runJobs);
  await t.advance(100);
  const first = t.client.peekAll(pods)[0];
  assert.ok(first);
  const conditions = [{ type: 'DisruptionTarget', status: 'True' }];
  await t.client.update(pods, { ...first, status: { phase: 'Failed', conditions } }, { subresource: 'status' });
  await t.advance(60_000);
  assert.equal(jobCondition(t, 'Failed'), undefined);
  assert.equal(jobStatus(t)?.failed ?? 0, 0);
  assert.deepEqual(t.client.peek(pods, 'shop', first.metadata.name ?? '')?.metadata.finalizers ?? [], []);
  const next = t.client.peekAll(pods).find((pod) => pod.status?.phase === undefined);
  await setPhase(t, next?.metadata.name ?? '', 'Succeeded');
  assert.equal(jobCondition(t, 'Complete')?.status, 'True');
  await t.stop();
});

test('a finished job is deleted when its time to live has passed', async () => {
  const t = controllerTest({ objects: [[jobs, job({ completions: 1, ttlSecondsAfterFinished: 60 })]] });
  await t.start(runJobs, runTtlAfterFinished);
  await t.advance(100);
  await setPhase(t, names(t)[0] ?? '', 'Succeeded');
  await t.advance(59_000);
  assert.notEqual(t.client.peek(jobs, 'shop', 'work'), undefined);
  await t.advance(2000);
  // The job waits for its dependents, which the garbage collector deletes.
  assert.notEqual(t.client.peek(jobs, 'shop', 'work')?.metadata.deletionTimestamp, undefined);
  await t.stop();
});

test('a suspended job has no pods, and starts when it is resumed', async () => {
  const t = controllerTest({ objects: [[jobs, job({ suspend: true })]] });
  await t.start(runJobs);
  await t.advance(1000);
  assert.equal(t.client.peekAll(pods).length, 0);
  assert.equal(jobCondition(t, 'Suspended')?.message, 'Job suspended');
  await t.client.patch(jobs, 'shop', 'work', { type: 'merge', body: { spec: { suspend: false } } });
  await t.advance(1000);
  assert.equal(t.client.peekAll(pods).length, 1);
  assert.equal(jobCondition(t, 'Suspended')?.status, 'False');
  await t.stop();
});

test('pods of another namespace that name the uid of a controller are none of its pods', async () => {
  const selector = { matchLabels: { app: 'web' } };
  const own = (name: string) => ({ name, namespace: 'shop', uid: `${name}-uid` });
  const controllers = [
    [replicaSets, { metadata: own('rs'), spec: { replicas: 1, selector, template: template({ app: 'web' }) } }],
    [
      statefulSets,
      { metadata: own('db'), spec: { replicas: 1, serviceName: 'db', selector, template: template({ app: 'web' }) } },
    ],
    [
      jobs,
      {
        metadata: own('job'),
        spec: { completions: 1, parallelism: 1, selector, template: template({ app: 'web' }, 'Never') },
      },
    ],
  ] as const;
  for (const [resource, object] of controllers) {
    const { name, uid } = object.metadata;
    const reference = { apiVersion: `${resource.group}/v1`, kind: resource.kind, name, uid, controller: true };
    const stranger: Pod = {
      metadata: {
        name: `${name}-0`,
        namespace: 'evil',
        labels: { app: 'web' },
        ownerReferences: [reference],
        finalizers: ['batch.kubernetes.io/job-tracking'],
      },
      spec: { containers: [{ name: 'c', image: 'i' }] },
      status: {
        phase: resource === jobs ? 'Succeeded' : 'Running',
        conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z' }],
      },
    };
    const t = controllerTest({
      objects: [
        [resource, object],
        [pods, stranger],
      ],
    });
    await t.start(runReplicaSets, runStatefulSets, runJobs);
    await t.advance(1000);
    const made = t.client.peekAll(pods).filter(({ metadata }) => metadata.namespace === 'shop');
    assert.equal(made.length, 1, `${resource.kind} makes its own pod`);
    assert.deepEqual(t.client.peek(pods, 'evil', `${name}-0`)?.metadata.finalizers, stranger.metadata.finalizers);
    await t.stop();
  }
});

test('the content of a namespace is deleted before the namespace', async () => {
  const space = {
    metadata: { name: 'shop', deletionTimestamp: '2026-01-02T03:04:05Z' },
    spec: { finalizers: ['kubernetes'] },
    status: { phase: 'Terminating' },
  };
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'shop' },
    spec: { containers: [], nodeName: 'n', terminationGracePeriodSeconds: 4 },
  };
  const t = controllerTest({
    objects: [
      [namespaces, space],
      [pods, pod],
    ],
    served: [pods, serviceAccounts],
  });
  await t.start(runNamespaces);
  await t.advance(100);
  const remaining = t.client
    .peek(namespaces, '', 'shop')
    ?.status?.conditions?.find(({ type }) => type === 'NamespaceContentRemaining');
  // Like kube-controller-manager, it reports what remains only after the pods are gone.
  assert.equal(remaining?.message, 'All content successfully removed');
  await t.client.delete(pods, 'shop', 'p', { gracePeriodSeconds: 0 });
  await t.advance(5000);
  const finalized = t.client.writes('update').find(({ subresource }) => subresource === 'finalize');
  assert.deepEqual(finalized?.object?.['spec'], { finalizers: [] });
  await t.stop();
});

test('a namespace gets its default service account, again when it is deleted', async () => {
  const t = controllerTest({ objects: [[namespaces, { metadata: { name: 'shop' }, status: { phase: 'Active' } }]] });
  await t.start(runServiceAccounts);
  await t.client.delete(serviceAccounts, 'shop', 'default');
  await t.advance(100);
  assert.notEqual(t.client.peek(serviceAccounts, 'shop', 'default'), undefined);
  await t.stop();
});

test('a silent node becomes Unknown after the grace period, is tainted, and its pods are evicted when another zone member lives', async () => {
  const t = controllerTest();
  const ready = () => [
    {
      type: 'Ready',
      status: 'True',
      lastHeartbeatTime: formatTime(t.clock.now()),
      lastTransitionTime: formatTime(t.clock.now()),
    },
  ];
  for (const name of ['a', 'b'])
    t.client.seed(nodes, { metadata: { name }, spec: {}, status: { conditions: ready() } });
  t.client.seed(pods, {
    metadata: { name: 'p', namespace: 'shop' },
    spec: {
      containers: [],
      nodeName: 'a',
      tolerations: [
        { key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 30 },
      ],
    },
    status: { phase: 'Running', conditions: ready() },
  });
  await t.start(runNodeLifecycle, runTaintEviction);
  const heartbeat = async (): Promise<void> => {
    const node = t.client.peek(nodes, '', 'b');
    if (node !== undefined)
      await t.client.update(nodes, { ...node, status: { conditions: ready() } }, { subresource: 'status' });
  };
  for (let at = 0; at < 6; at++) {
    await t.advance(10_000);
    await heartbeat();
  }
  const node = t.client.peek(nodes, '', 'a');
  assert.equal(node?.status?.conditions?.[0]?.status, 'Unknown');
  assert.equal(node?.status?.conditions?.[0]?.message, 'Kubelet stopped posting node status.');
  assert.deepEqual(
    node?.spec?.taints?.map(({ key, effect }) => `${key}:${effect}`),
    ['node.kubernetes.io/unreachable:NoSchedule', 'node.kubernetes.io/unreachable:NoExecute'],
  );
  assert.equal(t.client.peek(pods, 'shop', 'p')?.status?.conditions?.[0]?.status, 'False');
  assert.equal(t.client.peek(pods, 'shop', 'p')?.metadata.deletionTimestamp, undefined);
  for (let at = 0; at < 4; at++) {
    await t.advance(10_000);
    await heartbeat();
  }
  assert.notEqual(t.client.peek(pods, 'shop', 'p')?.metadata.deletionTimestamp, undefined);
  await t.stop();
});

test('a pod that tolerates a taint for some seconds is evicted after them, even if the taint has no time', async () => {
  const t = controllerTest();
  t.client.seed(nodes, { metadata: { name: 'a' }, spec: {} });
  const toleration = { key: 'own', operator: 'Equal', value: 'yes', effect: 'NoExecute', tolerationSeconds: 5 };
  for (const [name, tolerations] of [
    ['none', []],
    ['some', [toleration]],
  ] as const)
    t.client.seed(pods, {
      metadata: { name, namespace: 'shop' },
      spec: { containers: [], nodeName: 'a', tolerations: [...tolerations] },
      status: { phase: 'Running' },
    });
  const stay = (): string[] =>
    t.client
      .peekAll(pods)
      .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
      .map(({ metadata }) => metadata.name ?? '');
  await t.start(runTaintEviction);
  await t.client.patch(nodes, '', 'a', {
    type: 'merge',
    body: {
      spec: { taints: [{ key: 'own', value: 'yes', effect: 'NoExecute' }] },
    },
  });
  await t.advance(4000);
  assert.deepEqual(stay(), ['some']);
  await t.advance(2000);
  assert.deepEqual(stay(), []);
  await t.stop();
});

test('--controllers: names decide before the star', () => {
  const row = { name: 'job-controller' } as const;
  assert.equal(isEnabled(row, ['*']), true);
  assert.equal(isEnabled(row, ['*', '-job-controller']), false);
  assert.equal(isEnabled(row, ['*', '-job']), false);
  assert.equal(isEnabled(row, ['job-controller']), true);
  assert.equal(isEnabled({ ...row, offByDefault: true }, ['*']), false);
});
