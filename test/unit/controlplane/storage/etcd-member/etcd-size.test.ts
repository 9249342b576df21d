/** Tests the metric of the size of etcd with a real etcd and one that does not answer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { followSizes } from '../../../../../controlplane/storage/etcd-member/etcd-size.ts';
import { etcdMissing, EtcdProcess } from '../../../../etcd-process.ts';
import { until } from '../../../../until.ts';

test('each etcd that answers has its size in a metric', { skip: etcdMissing, timeout: 60_000 }, async () => {
  const etcd = await EtcdProcess.start();
  const stop = new AbortController();
  try {
    const metrics = new MetricsRegistry();
    const following = followSizes({
      clusters: ['http://127.0.0.1:1', etcd.url].map((url) => ({ url: () => url, tls: {} })),
      intervalMs: 10,
      metrics,
      clock: systemClock,
      logger: silentLogger,
      signal: stop.signal,
    });
    const line = await until('the size', () => /^apiserver_storage_size_bytes\{.*/m.exec(metrics.text())?.[0]);
    assert.match(line, /^apiserver_storage_size_bytes\{storage_cluster_id="etcd-1"\} [1-9]\d+/);
    stop.abort();
    await following;
  } finally {
    stop.abort();
    await etcd.remove();
  }
});
