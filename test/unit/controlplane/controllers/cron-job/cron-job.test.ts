import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { CronJob, Job } from '../../../../../api/kinds/kinds.ts';
import { cronJobs, jobs } from '../../../../../api/client/resources.ts';
import { runCronJobs } from '../../../../../controlplane/controllers/cron-job/cron-job.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

/** A minute. The fake clock begins at five seconds past the minute. */
const MINUTE_MS = 60_000;

function cronJob(concurrencyPolicy: string): CronJob {
  return {
    metadata: { name: 'nightly', namespace: 'shop', uid: 'cron-uid', creationTimestamp: '2026-01-02T03:04:00Z' },
    spec: {
      schedule: '* * * * *',
      concurrencyPolicy,
      jobTemplate: { spec: { template: { spec: { containers: [] } } } },
    },
  } as unknown as CronJob;
}

/** A job like that of `kubectl create job --from=cronjob/nightly`. */
const BY_HAND = {
  metadata: {
    name: 'by-hand',
    namespace: 'shop',
    uid: 'hand-uid',
    annotations: { 'cronjob.kubernetes.io/instantiate': 'manual' },
    ownerReferences: [{ apiVersion: 'batch/v1', kind: 'CronJob', name: 'nightly', uid: 'cron-uid', controller: true }],
  },
  spec: { template: {} },
} as unknown as Job;

const activeOf = (t: ControllerTest): (string | undefined)[] =>
  (t.client.peek(cronJobs, 'shop', 'nightly')?.status?.active ?? []).map(({ name }) => name);
const jobNames = (t: ControllerTest): (string | undefined)[] =>
  t.client.peekAll(jobs).map(({ metadata }) => metadata.name);

for (const policy of ['Forbid', 'Replace'] as const) {
  it(`${policy}: a job made by hand neither keeps the scheduled one from starting nor is replaced by it`, async () => {
    const t = controllerTest({
      objects: [
        [cronJobs, cronJob(policy)],
        [jobs, BY_HAND],
      ],
    });
    await t.start(runCronJobs);
    await t.advance(MINUTE_MS);
    const [scheduled] = activeOf(t);
    assert.match(scheduled ?? '', /^nightly-\d+$/);
    assert.deepEqual(jobNames(t).toSorted(), ['by-hand', scheduled]);
    assert.ok(
      t
        .events()
        .some((event) =>
          event.startsWith('Warning UnexpectedJob Saw a job that the controller did not create or forgot: by-hand'),
        ),
    );
    await t.advance(MINUTE_MS);
    const [next] = activeOf(t);
    assert.equal(next === scheduled, policy === 'Forbid');
    assert.ok(jobNames(t).includes('by-hand'));
    await t.stop();
  });
}

it('a job that the informer shows before the status that lists it is not unexpected', async () => {
  const t = controllerTest({ objects: [[cronJobs, cronJob('Allow')]] });
  await t.start(runCronJobs);
  // The status write succeeds, but its event is delayed.
  let isLate = true;
  t.client.intercept((call) => {
    if (call.verb !== 'update' || call.subresource !== 'status' || !isLate) return undefined;
    isLate = false;
    const known = t.client.peek(cronJobs, 'shop', 'nightly');
    const active = t.client.peekAll(jobs).map(({ metadata: { name, namespace, uid } }) => ({ name, namespace, uid }));
    return { ...known, status: { active } } as never;
  });
  t.client.intercept((call) => {
    if (call.verb !== 'get' || call.resource.resource !== 'cronjobs') return undefined;
    const active = t.client.peekAll(jobs).map(({ metadata: { name, namespace, uid } }) => ({ name, namespace, uid }));
    return { ...t.client.peek(cronJobs, 'shop', 'nightly'), status: { active } } as never;
  });
  await t.advance(MINUTE_MS);
  const [job] = t.client.peekAll(jobs);
  assert.ok(job !== undefined);
  await t.client.update(jobs, { ...job, status: { ready: 1 } } as unknown as Job, { subresource: 'status' });
  await t.advance(1_000);
  assert.deepEqual(
    t.events().filter((event) => event.includes('UnexpectedJob')),
    [],
  );
  await t.stop();
});

it('an active job that a user deletes is reported as missing, and a finished one is no longer active', async () => {
  const t = controllerTest({ objects: [[cronJobs, cronJob('Allow')]] });
  await t.start(runCronJobs);
  await t.advance(MINUTE_MS);
  const [first = ''] = activeOf(t);
  await t.client.delete(jobs, 'shop', first);
  await t.advance(100);
  assert.deepEqual(activeOf(t), []);
  assert.ok(t.events().some((event) => event.startsWith(`Normal MissingJob Active job went missing: ${first}`)));
  await t.advance(MINUTE_MS);
  const [second = ''] = activeOf(t);
  const job = t.client.peek(jobs, 'shop', second);
  assert.ok(job !== undefined);
  const status = { completionTime: '2026-01-02T03:06:00Z', conditions: [{ type: 'Complete', status: 'True' }] };
  await t.client.update(jobs, { ...job, status } as unknown as Job, { subresource: 'status' });
  await t.advance(100);
  assert.deepEqual(activeOf(t), []);
  assert.equal(t.client.peek(cronJobs, 'shop', 'nightly')?.status?.lastSuccessfulTime, '2026-01-02T03:06:00Z');
  await t.stop();
});

it('more than a hundred missed times are reported without their number', async () => {
  const job = cronJob('Allow');
  const creationTimestamp = '2026-01-02T00:00:00Z' as never;
  const t = controllerTest({ objects: [[cronJobs, { ...job, metadata: { ...job.metadata, creationTimestamp } }]] });
  await t.start(runCronJobs);
  await t.advance(100);
  const hint = 'Set or decrease .spec.startingDeadlineSeconds or check clock skew';
  assert.ok(t.events().includes(`Warning TooManyMissedTimes too many missed start times. ${hint}`));
  assert.equal(jobNames(t).length, 1);
  await t.stop();
});

for (const policy of ['Forbid', 'Replace'] as const) {
  it(`${policy}: a job of another owner with the name of the next one neither becomes active nor is deleted`, async () => {
    const t = controllerTest({ objects: [[cronJobs, cronJob(policy)]] });
    const dueMinute = Math.floor(t.clock.now() / MINUTE_MS) + 1;
    const name = `nightly-${dueMinute}`;
    const foreign = { metadata: { name, namespace: 'shop', uid: 'foreign-uid' }, spec: { template: {} } };
    await t.client.create(jobs, 'shop', foreign as unknown as Job);
    await t.start(runCronJobs);
    await t.advance(MINUTE_MS);
    assert.deepEqual(activeOf(t), []);
    await t.advance(MINUTE_MS);
    assert.deepEqual(activeOf(t), [`nightly-${dueMinute + 1}`]);
    assert.ok(jobNames(t).includes(name));
    await t.stop();
  });
}
