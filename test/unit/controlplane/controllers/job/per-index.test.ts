import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Job, Pod } from '../../../../../api/kinds/kinds.ts';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import { jobs, pods } from '../../../../../api/client/resources.ts';
import { runJobs } from '../../../../../controlplane/controllers/job/job.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const FAILURES = 'batch.kubernetes.io/job-index-failure-count';
const IGNORED = 'batch.kubernetes.io/job-index-ignored-failure-count';

function indexedJob(spec: object): Job {
  return {
    metadata: { name: 'work', namespace: 'shop', uid: 'job-uid' },
    spec: {
      completionMode: 'Indexed',
      completions: 2,
      parallelism: 2,
      backoffLimit: 2 ** 31 - 1,
      selector: { matchLabels: { job: 'work' } },
      template: {
        metadata: { labels: { job: 'work' } },
        spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
      },
      ...spec,
    },
  } as unknown as Job;
}

const podOf = (t: ControllerTest, index: number): Pod | undefined =>
  t.client
    .peekAll(pods)
    .find(
      ({ metadata, status }) =>
        metadata.annotations?.['batch.kubernetes.io/job-completion-index'] === String(index) &&
        status?.phase === undefined,
    );

async function end(t: ControllerTest, index: number, phase: string, status: object = {}): Promise<void> {
  const pod = podOf(t, index);
  assert.ok(pod !== undefined, `a pod of index ${index}`);
  const terminated = { exitCode: phase === 'Failed' ? 1 : 0, finishedAt: formatTime(t.clock.now()) };
  const containerStatuses = [{ name: 'c', state: { terminated } }];
  await t.client.update(pods, { ...pod, status: { phase, containerStatuses, ...status } } as unknown as Pod, {
    subresource: 'status',
  });
  await t.advance(100);
}

it('the failures of an index delay its own next pod only, and the pod carries their number', async () => {
  const t = controllerTest({
    objects: [[jobs, indexedJob({ completions: 3, parallelism: 2, backoffLimitPerIndex: 3 })]],
  });
  await t.start(runJobs);
  await t.advance(100);
  assert.equal(podOf(t, 0)?.metadata.annotations?.[FAILURES], '0');
  await end(t, 0, 'Failed');
  await end(t, 1, 'Succeeded');
  // Index 0 waits for its back-off; index 2 does not.
  assert.equal(podOf(t, 0), undefined);
  assert.notEqual(podOf(t, 2), undefined);
  await t.advance(11_000);
  assert.equal(podOf(t, 0)?.metadata.annotations?.[FAILURES], '1');
  assert.equal(podOf(t, 0)?.metadata.annotations?.[IGNORED], undefined);
  await t.stop();
});

it('deleted failed pods still count against the limit of their index', async () => {
  const t = controllerTest({ objects: [[jobs, indexedJob({ backoffLimitPerIndex: 1 })]] });
  await t.start(runJobs);
  await t.advance(100);
  await end(t, 0, 'Failed');
  await t.advance(11_000);
  for (const { metadata, status } of t.client.peekAll(pods))
    if (status?.phase === 'Failed') await t.client.delete(pods, 'shop', metadata.name ?? '');
  await t.advance(1_000);
  await end(t, 0, 'Failed');
  assert.equal(t.client.peek(jobs, 'shop', 'work')?.status?.failedIndexes, '0');
  await t.stop();
});

it('failures that the policy ignores lengthen the back-off of an index and do not count against its limit', async () => {
  const podFailurePolicy = {
    rules: [{ action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] }],
  };
  const t = controllerTest({ objects: [[jobs, indexedJob({ backoffLimitPerIndex: 0, podFailurePolicy })]] });
  await t.start(runJobs);
  await t.advance(100);
  await end(t, 0, 'Failed', { conditions: [{ type: 'DisruptionTarget', status: 'True' }] });
  await t.advance(11_000);
  assert.deepEqual(
    [podOf(t, 0)?.metadata.annotations?.[FAILURES], podOf(t, 0)?.metadata.annotations?.[IGNORED]],
    ['0', '1'],
  );
  assert.equal(t.client.peek(jobs, 'shop', 'work')?.status?.failedIndexes ?? '', '');
  await t.stop();
});
