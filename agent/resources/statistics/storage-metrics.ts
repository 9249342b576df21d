/**
 * Registers the metrics of container logs and persistent volume claims on the agent's `/metrics`. The values are those of the
 * measurement that is passed at each scrape.
 */
import type { Gauge, Family, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { PodStorage } from './storage-usage.ts';

interface Series {
  readonly family: Family<Gauge>;
  readonly labels: readonly string[];
}

/**
 * Registers the metrics. The returned function is called before each scrape: it sets the series of the given pods, and removes
 * those of other pods.
 */
export function storageMetrics(
  metrics: MetricsRegistry,
): (pods: readonly Pod[], storage: ReadonlyMap<string, PodStorage>) => void {
  const logs = metrics.gauge({
    name: 'kubelet_container_log_filesystem_used_bytes',
    help: "Bytes used by the container's logs on the filesystem.",
    labels: ['uid', 'namespace', 'pod', 'container'],
  });
  const volume = (name: string, help: string): Family<Gauge> =>
    metrics.gauge({ name: `kubelet_volume_stats_${name}`, help, labels: ['namespace', 'persistentvolumeclaim'] });
  const capacity = volume('capacity_bytes', 'Capacity in bytes of the volume');
  const available = volume('available_bytes', 'Number of available bytes in the volume');
  const used = volume('used_bytes', 'Number of used bytes in the volume');
  const inodes = volume('inodes', 'Maximum number of inodes in the volume');
  const inodesFree = volume('inodes_free', 'Number of free inodes in the volume');
  const inodesUsed = volume('inodes_used', 'Number of used inodes in the volume');
  let written: Series[] = [];
  return (pods, storage) => {
    for (const { family, labels } of written) family.delete(...labels);
    written = [];
    const set = (family: Family<Gauge>, labels: readonly string[], value: number): void => {
      family.with(...labels).set(value);
      written.push({ family, labels });
    };
    for (const pod of pods) {
      const { name, namespace, uid } = pod.metadata;
      const measured = storage.get(uid);
      if (measured === undefined) continue;
      for (const [container, storageOf] of measured.containers)
        set(logs, [uid, namespace, name, container], storageOf.logs.usedBytes);
      for (const { claim, usage, filesystem } of measured.volumes) {
        if (claim === '' || filesystem === undefined) continue;
        const labels = [namespace, claim];
        set(capacity, labels, filesystem.capacityBytes);
        set(available, labels, filesystem.availableBytes);
        set(used, labels, usage.usedBytes);
        set(inodes, labels, filesystem.inodes);
        set(inodesFree, labels, filesystem.inodesFree);
        set(inodesUsed, labels, usage.inodesUsed);
      }
    }
  };
}

/** Registers the histogram of the time that a measurement of a volume takes, and returns the function that adds to it. */
export function volumeMeasureMetrics(metrics: MetricsRegistry): (source: string, tookMs: number) => void {
  const durations = metrics.histogram({
    name: 'kubelet_volume_metric_collection_duration_seconds',
    help: 'Duration in seconds of the measurements of volumes, by source: a CSI driver, or du for a walk.',
    labels: ['metric_source'],
  });
  return (source, tookMs) => durations.with(source).observe(tookMs / 1000);
}
