/** Tests when jobs with `activeDeadlineSeconds` fail. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import type { Job } from '../../../../../api/kinds/kinds.ts';
import { jobs } from '../../../../../api/client/resources.ts';
import { runJobs } from '../../../../../controlplane/controllers/job/job.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const startTime = formatTime(new FakeClock().now() - 30_000);

async function startJob(activeDeadlineSeconds: number): Promise<ControllerTest> {
  const job = {
    metadata: { name: 'work', namespace: 'shop', uid: 'job-uid' },
    spec: {
      parallelism: 1,
      completions: 1,
      activeDeadlineSeconds,
      selector: { matchLabels: { job: 'work' } },
      template: {
        metadata: { labels: { job: 'work' } },
        spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
      },
    },
    status: { startTime },
  } as unknown as Job;
  const t = controllerTest({ objects: [[jobs, job]] });
  await t.start(runJobs);
  await t.advance(100);
  return t;
}

const failure = (t: ControllerTest): string | undefined =>
  t.client.peekAll(jobs)[0]?.status?.conditions?.find(({ type }) => type === 'FailureTarget')?.reason;

it('a job that had started before the controller fails at its deadline', async () => {
  const t = await startJob(60);
  await t.advance(29_000);
  assert.equal(failure(t), undefined);
  await t.advance(1000);
  assert.equal(failure(t), 'DeadlineExceeded');
  await t.stop();
});

it('a job fails at a deadline that was set while it ran', async () => {
  const t = await startJob(3600);
  const [job] = t.client.peekAll(jobs);
  assert.ok(job !== undefined);
  await t.client.update(jobs, { ...job, spec: { ...job.spec, activeDeadlineSeconds: 60 } } as Job);
  await t.advance(30_000);
  assert.equal(failure(t), 'DeadlineExceeded');
  await t.stop();
});
