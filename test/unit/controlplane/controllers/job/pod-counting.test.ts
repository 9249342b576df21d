/** Tests which pods of a job count as failed when the job ends, and which pods an indexed job keeps. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import type { Job, Pod } from '../../../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { jobs, pods } from '../../../../../api/client/resources.ts';
import { runJobs } from '../../../../../controlplane/controllers/job/job.ts';
import { withJobCondition } from '../../../../../controlplane/controllers/job/job-status.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const INDEX = 'batch.kubernetes.io/job-completion-index';

async function startJob(spec: object, name = 'work', existing: readonly KubeObject[] = []): Promise<ControllerTest> {
  const job = {
    metadata: { name, namespace: 'shop', uid: 'job-uid' },
    spec: {
      completions: 3,
      parallelism: 3,
      selector: { matchLabels: { job: 'work' } },
      template: {
        metadata: { labels: { job: 'work' } },
        spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
      },
      ...spec,
    },
  } as unknown as Job;
  const t = controllerTest({ objects: [[jobs, job], ...existing.map((pod) => [pods, pod] as const)] });
  await t.start(runJobs);
  await t.advance(100);
  return t;
}

function statusOf(t: ControllerTest): NonNullable<Job['status']> {
  return t.client.peekAll(jobs)[0]?.status ?? {};
}

const conditionsOf = (t: ControllerTest): string[] =>
  (statusOf(t).conditions ?? []).map(({ type, reason }) => `${type} ${reason}`);

const indexesOf = (t: ControllerTest): string[] =>
  t.client
    .peekAll(pods)
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .map(({ metadata }) => metadata.annotations?.[INDEX] ?? '')
    .toSorted();

async function setStatus(t: ControllerTest, pod: Pod | undefined, status: object): Promise<void> {
  assert.ok(pod !== undefined);
  const bound = await t.client.update(pods, { ...pod, spec: { ...pod.spec, nodeName: 'n' } } as unknown as Pod);
  await t.client.update(pods, { ...bound, status } as unknown as Pod, { subresource: 'status' });
  await t.advance(100);
}

async function run(t: ControllerTest): Promise<void> {
  for (const pod of t.client.peekAll(pods)) await setStatus(t, pod, { phase: 'Running' });
}

async function end(t: ControllerTest, pod: Pod | undefined, exitCode: number): Promise<void> {
  const terminated = { exitCode, finishedAt: formatTime(t.clock.now()) };
  await setStatus(t, pod, {
    phase: exitCode === 0 ? 'Succeeded' : 'Failed',
    containerStatuses: [{ name: 'c', state: { terminated } }],
  });
}

const terminating = (t: ControllerTest): Pod[] =>
  t.client.peekAll(pods).filter(({ metadata }) => metadata.deletionTimestamp !== undefined);

it('a job that fails counts its other pods as failed, and has Failed when the last of them has terminated', async () => {
  const rules = [{ action: 'FailJob', onExitCodes: { operator: 'In', values: [42] } }];
  const t = await startJob({ podFailurePolicy: { rules }, podReplacementPolicy: 'Failed' });
  await run(t);
  await end(t, t.client.peekAll(pods)[0], 42);
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['FailureTarget PodFailurePolicy']);
  const { active, failed, terminating: leaving } = statusOf(t);
  assert.deepEqual([active, failed, leaving], [undefined, 3, 2]);
  for (const pod of terminating(t))
    await t.client.delete(pods, 'shop', pod.metadata.name ?? '', { gracePeriodSeconds: 0 });
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['FailureTarget PodFailurePolicy', 'Failed PodFailurePolicy']);
  assert.equal(statusOf(t).failed, 3);
  await t.stop();
});

it('pods that are deleted because the success policy of their job is met are no failures', async () => {
  const successPolicy = { rules: [{ succeededIndexes: '0' }] };
  const t = await startJob({ completionMode: 'Indexed', successPolicy });
  await run(t);
  await end(
    t,
    t.client.peekAll(pods).find(({ metadata }) => metadata.annotations?.[INDEX] === '0'),
    0,
  );
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['SuccessCriteriaMet SuccessPolicy']);
  for (const pod of terminating(t))
    await t.client.delete(pods, 'shop', pod.metadata.name ?? '', { gracePeriodSeconds: 0 });
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['SuccessCriteriaMet SuccessPolicy', 'Complete SuccessPolicy']);
  assert.deepEqual([statusOf(t).succeeded, statusOf(t).failed], [1, undefined]);
  await t.stop();
});

it('an indexed job that is scaled down keeps the indexes below its completions', async () => {
  const t = await startJob({ completionMode: 'Indexed' });
  const ready = [{ type: 'Ready', status: 'True', lastTransitionTime: formatTime(t.clock.now()) }];
  for (const pod of t.client.peekAll(pods)) {
    const isLast = pod.metadata.annotations?.[INDEX] === '2';
    await setStatus(t, pod, isLast ? { phase: 'Running', conditions: ready } : { phase: 'Pending' });
  }
  await t.client.patch(jobs, 'shop', 'work', { type: 'merge', body: { spec: { completions: 2, parallelism: 2 } } });
  await t.advance(5000);
  assert.deepEqual(indexesOf(t), ['0', '1']);
  assert.equal(statusOf(t).failed, undefined);
  await t.stop();
});

it('an index whose pod was rejected by its node gets its next pod after the back-off', async () => {
  const t = await startJob({ completionMode: 'Indexed', completions: 1, parallelism: 1, backoffLimitPerIndex: 2 });
  await setStatus(t, t.client.peekAll(pods)[0], { phase: 'Failed', reason: 'OutOfcpu' });
  await t.advance(15_000);
  assert.equal(t.client.peekAll(pods).filter(({ status }) => status?.phase !== 'Failed').length, 1);
  await t.stop();
});

it('the failed pod of an index keeps its finalizer until the index has its next pod', async () => {
  const t = await startJob({ completionMode: 'Indexed', completions: 1, parallelism: 1, backoffLimitPerIndex: 1 });
  const [first] = t.client.peekAll(pods);
  await end(t, first, 1);
  await t.client.delete(pods, 'shop', first?.metadata.name ?? '', { gracePeriodSeconds: 0 });
  await t.advance(15_000);
  const next = t.client.peekAll(pods).find(({ metadata }) => metadata.deletionTimestamp === undefined);
  assert.equal(next?.metadata.annotations?.['batch.kubernetes.io/job-index-failure-count'], '1');
  assert.equal(statusOf(t).failed, 1);
  await t.stop();
});

it('a job that succeeds more often than it should reports it', async () => {
  const ownerReferences = [{ apiVersion: 'batch/v1', kind: 'Job', name: 'work', uid: 'job-uid', controller: true }];
  const succeeded = ['a', 'b'].map((name) => ({
    metadata: {
      name,
      namespace: 'shop',
      uid: name,
      labels: { job: 'work' },
      finalizers: ['batch.kubernetes.io/job-tracking'],
      ownerReferences,
    },
    status: { phase: 'Succeeded' },
  }));
  const t = await startJob({ completions: 1, parallelism: 1 }, 'work', succeeded);
  await t.advance(5000);
  assert.equal(statusOf(t).succeeded, 2);
  const text = 'Warning TooManySucceededPods Too many succeeded pods running after completion count reached';
  assert.ok(t.events().includes(text));
  await t.stop();
});

it('the prefix of the names of pods keeps the index of a job with a long name', async () => {
  const t = await startJob({ completionMode: 'Indexed', completions: 1, parallelism: 1 }, 'n'.repeat(63));
  assert.equal(t.client.peekAll(pods)[0]?.metadata.generateName, `${'n'.repeat(55)}-0-`);
  await t.stop();
});

it('a condition that changes keeps its place', () => {
  const suspended = withJobCondition(
    undefined,
    { type: 'Suspended', status: 'True', reason: 'JobSuspended', message: 'Job suspended' },
    0,
  );
  const both = withJobCondition(suspended, { type: 'FailureTarget', status: 'True', reason: 'R', message: 'm' }, 0);
  assert.deepEqual(
    withJobCondition(both, { type: 'Suspended', status: 'False', reason: 'JobResumed', message: 'Job resumed' }, 0).map(
      ({ type }) => type,
    ),
    ['Suspended', 'FailureTarget'],
  );
});
