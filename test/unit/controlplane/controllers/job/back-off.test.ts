/** Tests how long the next pod of a job waits after failures. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Job, Pod } from '../../../../../api/kinds/kinds.ts';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import { jobs, pods } from '../../../../../api/client/resources.ts';
import { runJobs } from '../../../../../controlplane/controllers/job/job.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const job = {
  metadata: { name: 'work', namespace: 'shop', uid: 'job-uid' },
  spec: {
    parallelism: 1,
    completions: 1,
    backoffLimit: 6,
    selector: { matchLabels: { job: 'work' } },
    template: {
      metadata: { labels: { job: 'work' } },
      spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
    },
  },
} as unknown as Job;

const unfinished = (t: ControllerTest): Pod[] =>
  t.client.peekAll(pods).filter(({ status }) => status?.phase === undefined);

async function failPod(t: ControllerTest): Promise<void> {
  const [pod] = unfinished(t);
  assert.ok(pod !== undefined);
  const terminated = { exitCode: 1, finishedAt: formatTime(t.clock.now()) };
  const status = { phase: 'Failed', containerStatuses: [{ name: 'c', state: { terminated } }] };
  await t.client.update(pods, { ...pod, status } as unknown as Pod, { subresource: 'status' });
  await t.advance(100);
}

it('a failure counts once, although writes of the status fail and are repeated', async () => {
  const t = controllerTest({ objects: [[jobs, job]] });
  await t.start(runJobs);
  await t.advance(100);
  let refusals = 3;
  t.client.intercept(({ verb, resource, subresource }) => {
    if (verb === 'update' && resource === jobs && subresource === 'status' && refusals-- > 0)
      throw new Error('the server is away');
    return undefined;
  });
  await failPod(t);
  await t.advance(5_000);
  assert.ok(refusals <= 0, 'the status was written at last');
  assert.equal(unfinished(t).length, 0);
  await t.advance(5_500);
  assert.equal(unfinished(t).length, 1, 'the next pod comes ten seconds after the failure');
  await t.stop();
});
