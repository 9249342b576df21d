import assert from 'node:assert/strict';
import { it } from 'node:test';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import type { Job, Pod } from '../../../../../api/kinds/kinds.ts';
import { jobs, pods } from '../../../../../api/client/resources.ts';
import { runJobs } from '../../../../../controlplane/controllers/job/job.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

async function startJob(spec: object): Promise<ControllerTest> {
  const job = {
    metadata: { name: 'work', namespace: 'shop', uid: 'job-uid' },
    spec: {
      parallelism: 2,
      selector: { matchLabels: { job: 'work' } },
      template: {
        metadata: { labels: { job: 'work' } },
        spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
      },
      ...spec,
    },
  } as unknown as Job;
  const t = controllerTest({ objects: [[jobs, job]] });
  await t.start(runJobs);
  await t.advance(100);
  return t;
}

function theJob(t: ControllerTest): Job {
  const job = t.client.peekAll(jobs)[0];
  assert.ok(job !== undefined);
  return job;
}

async function suspend(t: ControllerTest): Promise<void> {
  const job = theJob(t);
  await t.client.update(jobs, { ...job, spec: { ...job.spec, suspend: true } } as Job);
}

async function succeed(t: ControllerTest, pod: Pod | undefined): Promise<void> {
  assert.ok(pod !== undefined);
  const terminated = { exitCode: 0, finishedAt: formatTime(t.clock.now()) };
  const status = { phase: 'Succeeded', containerStatuses: [{ name: 'c', state: { terminated } }] };
  await t.client.update(pods, { ...pod, status } as unknown as Pod, { subresource: 'status' });
}

const conditionsOf = (t: ControllerTest): string[] =>
  (theJob(t).status?.conditions ?? []).filter(({ status }) => status === 'True').map(({ type }) => type);

it('a job whose last pod succeeds while it is suspended is complete', async () => {
  const t = await startJob({ completions: 1, parallelism: 1 });
  const pod = t.client.peekAll(pods)[0];
  await succeed(t, pod);
  await suspend(t);
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['SuccessCriteriaMet', 'Complete']);
  assert.equal(theJob(t).status?.succeeded, 1);
  await t.stop();
});

it('a job without completions that is suspended after a success is complete, and its other pods are deleted', async () => {
  const t = await startJob({});
  assert.equal(t.client.peekAll(pods).length, 2);
  await succeed(t, t.client.peekAll(pods)[0]);
  await t.advance(100);
  await suspend(t);
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['SuccessCriteriaMet', 'Complete']);
  assert.equal(t.client.peekAll(pods).filter(({ status }) => status?.phase !== 'Succeeded').length, 0);
  await t.stop();
});

it('a suspended job that has not reached its completions stays suspended', async () => {
  const t = await startJob({ completions: 3 });
  await succeed(t, t.client.peekAll(pods)[0]);
  await t.advance(100);
  await suspend(t);
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['Suspended']);
  await t.stop();
});

it('pods that are deleted because their job is suspended or runs fewer of them are no failures', async () => {
  const t = await startJob({ completions: 6, parallelism: 3, backoffLimit: 0 });
  await t.client.patch(jobs, 'shop', 'work', { type: 'merge', body: { spec: { parallelism: 2 } } });
  await t.advance(5000);
  await suspend(t);
  await t.advance(5000);
  assert.deepEqual(conditionsOf(t), ['Suspended']);
  assert.equal(theJob(t).status?.failed, undefined);
  await t.stop();
});

it('the indexes of pods that are deleted because their job is suspended have not failed, and start again', async () => {
  const t = await startJob({ completionMode: 'Indexed', completions: 2, backoffLimitPerIndex: 0 });
  for (const pod of t.client.peekAll(pods)) {
    const running = { ...pod, spec: { ...pod.spec, nodeName: 'n' }, status: { phase: 'Running' } };
    await t.client.update(pods, running as unknown as Pod);
  }
  await suspend(t);
  await t.advance(5000);
  assert.equal(t.client.peekAll(pods).filter(({ metadata }) => metadata.deletionTimestamp !== undefined).length, 2);
  assert.deepEqual(conditionsOf(t), ['Suspended']);
  await t.client.patch(jobs, 'shop', 'work', { type: 'merge', body: { spec: { suspend: false } } });
  await t.advance(5000);
  assert.equal(theJob(t).status?.failedIndexes ?? '', '');
  assert.equal(t.client.peekAll(pods).filter(({ metadata }) => metadata.deletionTimestamp === undefined).length, 2);
  await t.stop();
});

it('a controller that starts while the pods of a suspended job terminate counts them against no index', async () => {
  const t = await startJob({ completionMode: 'Indexed', completions: 2, backoffLimitPerIndex: 0 });
  for (const pod of t.client.peekAll(pods)) {
    const running = { ...pod, spec: { ...pod.spec, nodeName: 'n' }, status: { phase: 'Running' } };
    await t.client.update(pods, running as unknown as Pod);
  }
  await suspend(t);
  await t.advance(5000);
  const left = [theJob(t), ...t.client.peekAll(pods)] as const;
  await t.stop();
  const terminating = left.slice(1) as Pod[];
  assert.equal(terminating.length, 2);
  const terminated = { exitCode: 137, finishedAt: formatTime(t.clock.now()) };
  const killed = terminating.map((pod): Pod => {
    const status = { phase: 'Failed', containerStatuses: [{ name: 'c', state: { terminated } }] };
    return { ...pod, status } as unknown as Pod;
  });
  const next = controllerTest({ objects: [[jobs, left[0]], ...killed.map((pod) => [pods, pod] as const)] });
  await next.start(runJobs);
  await next.advance(100);
  await next.client.patch(jobs, 'shop', 'work', { type: 'merge', body: { spec: { suspend: false } } });
  await next.advance(5000);
  assert.equal(theJob(next).status?.failedIndexes ?? '', '');
  assert.deepEqual(conditionsOf(next), []);
  await next.stop();
});
