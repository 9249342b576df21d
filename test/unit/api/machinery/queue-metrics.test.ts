/** The metrics of work queues have the names and values of Kubernetes' Go client. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { queueMetrics } from '../../../../api/machinery/queue-metrics.ts';
import { WorkQueue } from '../../../../api/machinery/work-queue.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function setUp() {
  const clock = new FakeClock();
  const metrics = new MetricsRegistry();
  const observe = queueMetrics(metrics, clock);
  const queue = (name: string): WorkQueue => new WorkQueue({ clock, observer: observe(name) });
  const value = (series: string): number => {
    const line = metrics
      .text()
      .split('\n')
      .find((each) => each.startsWith(`${series} `));
    return Number(line?.slice(series.length + 1));
  };
  return { clock, metrics, queue, value };
}

test('depth counts the keys that wait, of all queues of a name', async () => {
  const { queue, value } = setUp();
  const [one, other] = [queue('deployment'), queue('deployment')];
  for (const key of ['a', 'b', 'b']) one.add(key);
  other.add('c');
  assert.equal(value('workqueue_depth{name="deployment"}'), 3);
  assert.equal(value('workqueue_adds_total{name="deployment"}'), 3);
  await one.next();
  assert.equal(value('workqueue_depth{name="deployment"}'), 2);
  one.shutDown();
  assert.equal(value('workqueue_depth{name="deployment"}'), 1);
});

test('waiting and work are timed, also of a key that was added while it was handled', async () => {
  const { clock, queue, value } = setUp();
  const jobs = queue('job');
  jobs.add('a');
  await clock.advance(2_000);
  await jobs.next();
  await clock.advance(3_000);
  jobs.add('a');
  assert.equal(value('workqueue_unfinished_work_seconds{name="job"}'), 3);
  assert.equal(value('workqueue_longest_running_processor_seconds{name="job"}'), 3);
  await clock.advance(1_000);
  jobs.done('a');
  await jobs.next();
  assert.equal(value('workqueue_queue_duration_seconds_sum{name="job"}'), 3);
  assert.equal(value('workqueue_work_duration_seconds_sum{name="job"}'), 4);
  assert.equal(value('workqueue_adds_total{name="job"}'), 2);
});

test('retries are counted', () => {
  const { queue, value } = setUp();
  const jobs = queue('job');
  jobs.addRateLimited('a');
  jobs.addRateLimited('a');
  assert.equal(value('workqueue_retries_total{name="job"}'), 2);
});

test('the buckets have the names of those of client-go', async () => {
  const { metrics, queue } = setUp();
  const jobs = queue('job');
  jobs.add('a');
  await jobs.next();
  const bounds = [...metrics.text().matchAll(/workqueue_queue_duration_seconds_bucket\{.*le="([^"]+)"/g)];
  assert.deepEqual(
    bounds.map(([, bound]) => bound),
    ['1e-08', '1e-07', '1e-06', '9.999999999999999e-06', '9.999999999999999e-05'].concat([
      '0.001',
      '0.01',
      '0.1',
      '1',
      '10',
      '+Inf',
    ]),
  );
});
