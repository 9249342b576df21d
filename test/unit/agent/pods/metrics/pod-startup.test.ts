/** Tests how the time that pods take to start is measured, by the rules of the kubelet. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { podStartups } from '../../../../../agent/pods/metrics/pod-startup.ts';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function setUp() {
  const clock = new FakeClock();
  const metrics = new MetricsRegistry();
  const startups = podStartups(metrics, clock);
  const sum = (name: string): number | undefined => {
    const found = new RegExp(`^kubelet_${name.replace(/[{}]/g, '\\$&')} (\\S+)$`, 'm').exec(metrics.text());
    return found === null ? undefined : Number(found[1]);
  };
  const pod = (spec: object = {}, status: object = {}): Pod =>
    ({
      metadata: { name: 'p', namespace: 'ns', uid: 'u', creationTimestamp: formatTime(clock.now()) },
      spec: { containers: [{ name: 'c' }], ...spec },
      status,
    }) as unknown as Pod;
  const running = (of: Pod, more: object = {}): Pod =>
    ({
      ...of,
      status: {
        phase: 'Running',
        startTime: formatTime(clock.now()),
        containerStatuses: [{ name: 'c', state: { running: { startedAt: formatTime(clock.now()) } } }],
        ...more,
      },
    }) as unknown as Pod;
  return { clock, startups, sum, pod, running };
}

it('counts a start once, and leaves pulls and init containers out of the indicator', async () => {
  const { clock, startups, sum, pod, running } = setUp();
  const created = pod({ initContainers: [{ name: 'i' }] });
  startups.observed(created);
  await clock.advance(2_000);
  startups.workerStarted('u');
  startups.workerStarted('u');
  startups.pulled('u', 3_000);
  await clock.advance(18_000);
  const times = { startedAt: '2026-01-01T00:00:00Z', finishedAt: '2026-01-01T00:00:04Z' };
  const started = running(created, { initContainerStatuses: [{ name: 'i', state: { terminated: times } }] });
  startups.observed(started);
  startups.observed(started);
  assert.equal(sum('pod_start_total_duration_seconds_count'), 1);
  assert.equal(sum('pod_start_total_duration_seconds_sum'), 20);
  assert.equal(sum('pod_start_sli_duration_seconds_sum'), 13);
  assert.equal(sum('first_network_pod_start_sli_duration_seconds'), 13);
  assert.equal(sum('pod_worker_start_duration_seconds_count'), 1);
  assert.equal(sum('pod_worker_start_duration_seconds_sum'), 2);
});

for (const [what, spec, status, counts] of [
  ['has a volume that keeps data', { volumes: [{ name: 'v', hostPath: { path: '/x' } }] }, {}, [1, 0]],
  ['had to wait for a place', {}, { conditions: [{ type: 'PodScheduled', status: 'False' }] }, [0, 0]],
  ['was there before the agent', {}, { startTime: '2026-01-01T00:00:00Z' }, [0, 0]],
] as const) {
  it(`does not take a pod for the indicator that ${what}`, () => {
    const { startups, sum, pod, running } = setUp();
    const first = pod(spec, status);
    startups.observed(first);
    startups.observed(running(first));
    const of = (name: string): number => sum(`pod_start_${name}_duration_seconds_count`) ?? 0;
    assert.deepEqual([of('total'), of('sli')], counts);
  });
}

it('counts rejections by reasons that the kubelet names', () => {
  const { startups, sum } = setUp();
  for (const reason of ['OutOfcpu', 'OutOfexample.com/thing', 'NodeAffinity']) startups.rejected('u', reason);
  for (const reason of ['OutOfcpu', 'OutOfExtendedResources', 'Other'])
    assert.equal(sum(`admission_rejections_total{reason="${reason}"}`), 1);
});
