/** Defines the metric of the storage's size, which SQLite's file and each etcd have. */
import type { Family, Gauge, MetricsRegistry } from '../../api/component/metrics.ts';

/** Registers the gauge under kube-apiserver's name, or returns it. Its label names the database or the etcd cluster. */
export function storageSize(metrics: MetricsRegistry): Family<Gauge> {
  return metrics.gauge({
    name: 'apiserver_storage_size_bytes',
    help: 'Size of the storage database file physically allocated in bytes.',
    labels: ['storage_cluster_id'],
  });
}
