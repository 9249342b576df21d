/**
 * Registers the metrics of volumes under the kubelet's names: the duration of volume operations, and the cleanup of
 * volumes of orphaned pods.
 */
import type { Volume } from '../base/model/pod.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { VolumeObserver } from './volume-manager.ts';

/** The plugin's name by the field of the volume source. */
const VOLUME_PLUGINS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    configMap: 'kubernetes.io/configmap',
    csi: 'kubernetes.io/csi',
    downwardAPI: 'kubernetes.io/downward-api',
    emptyDir: 'kubernetes.io/empty-dir',
    ephemeral: 'kubernetes.io/csi',
    hostPath: 'kubernetes.io/host-path',
    image: 'kubernetes.io/image',
    iscsi: 'kubernetes.io/iscsi',
    nfs: 'kubernetes.io/nfs',
    persistentVolumeClaim: 'kubernetes.io/csi',
    projected: 'kubernetes.io/projected',
    secret: 'kubernetes.io/secret',
  }),
);

/** Returns the name of the plugin of a volume. A volume without a source is an emptyDir. */
export function volumePlugin(volume: Volume): string {
  const source = Object.keys(volume).find((key) => VOLUME_PLUGINS.has(key)) ?? 'emptyDir';
  return VOLUME_PLUGINS.get(source) ?? 'kubernetes.io/empty-dir';
}

const STEP_BUCKETS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600];

/** Registers the metrics and returns the observer that the volume manager calls. */
export function volumeMetrics(metrics: MetricsRegistry): VolumeObserver {
  const steps = metrics.histogram({
    name: 'storage_operation_duration_seconds',
    help: 'Storage operation duration',
    labels: ['migrated', 'operation_name', 'status', 'volume_plugin'],
    buckets: STEP_BUCKETS,
  });
  const whole = metrics.histogram({
    name: 'volume_operation_total_seconds',
    help: 'Storage operation end to end duration in seconds',
    labels: ['operation_name', 'plugin_name'],
    buckets: STEP_BUCKETS,
  });
  const gauge = (name: string, help: string) => metrics.gauge({ name, help }).with();
  const cleaned = gauge(
    'kubelet_orphan_pod_cleaned_volumes',
    'The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.',
  );
  const uncleaned = gauge(
    'kubelet_orphan_pod_cleaned_volumes_errors',
    'The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.',
  );
  return {
    mounted(volume, { tookMs, isDone }) {
      const plugin = volumePlugin(volume);
      steps.with('false', 'volume_mount', isDone ? 'success' : 'fail-unknown', plugin).observe(tookMs / 1000);
      if (isDone) whole.with('overall_volume_mount', plugin).observe(tookMs / 1000);
    },
    swept(counts) {
      cleaned.set(counts.cleaned);
      uncleaned.set(counts.failed);
    },
  };
}
