/** Compares the metrics of requests to etcd with those of kube-apiserver, and tests what they count. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { EtcdMetrics } from '../../../../../controlplane/storage/etcd/etcd-metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const RECORDED = join(import.meta.dirname, '../../start/upstream/metrics-apiserver.tsv');

test('the metrics of etcd have the types and labels of kube-apiserver', () => {
  const registry = new MetricsRegistry();
  const metrics = new EtcdMetrics(registry, new FakeClock());
  assert.ok(metrics);
  const own = new Map(
    registry.families().map(({ name, kind, labels }) => [name, `${kind} ${labels.toSorted().join()}`]),
  );
  const recorded = readFileSync(RECORDED, 'utf8')
    .split('\n')
    .filter((line) => /^etcd_(request|lease)/.test(line))
    .map((line) => {
      const [name = '', kind = '', labels = ''] = line.split('\t');
      const kept = labels.split(',').filter((label) => label !== 'le');
      return [name.replace(/_(bucket|count|sum)$/, ''), `${kind} ${kept.join()}`] as const;
    });
  assert.deepEqual([...new Set(recorded.map(([name]) => name))].toSorted(), [
    'etcd_lease_object_counts',
    'etcd_request_duration_seconds',
    'etcd_requests_total',
  ]);
  for (const [name, form] of recorded) assert.equal(own.get(name), form, name);
});

test('a request counts by its operation and resource, with its duration, and as an error if it fails', async () => {
  const registry = new MetricsRegistry();
  const clock = new FakeClock();
  const metrics = new EtcdMetrics(registry, clock);
  const slow = metrics.measure('create', '/apps/deployments/default/a', () => clock.sleep(300));
  await clock.advance(300);
  await slow;
  await assert.rejects(metrics.measure('update', '/core/pods/default/a', () => Promise.reject(new Error('no'))));
  await metrics.measure('get', '', () => Promise.resolve(1));
  metrics.leaseFilled(12);
  const text = registry.text();
  for (const line of [
    'etcd_requests_total{group="apps",operation="create",resource="deployments"} 1',
    'etcd_requests_total{group="",operation="update",resource="pods"} 1',
    'etcd_requests_total{group="",operation="get",resource=""} 1',
    'etcd_request_errors_total{group="",operation="update",resource="pods"} 1',
    'etcd_request_duration_seconds_sum{group="apps",operation="create",resource="deployments"} 0.3',
    'etcd_request_duration_seconds_bucket{group="apps",operation="create",resource="deployments",le="0.2"} 0',
    'etcd_request_duration_seconds_bucket{group="apps",operation="create",resource="deployments",le="0.4"} 1',
    'etcd_lease_object_counts_sum 12',
  ])
    assert.ok(text.split('\n').includes(line), `${line}\n${text}`);
  assert.doesNotMatch(text, /etcd_request_errors_total\{operation="create"/);
});
