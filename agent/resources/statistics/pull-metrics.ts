/** Registers the metrics of image pulls and of credential providers, under the kubelet's names. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

/** The labels of images by the size that they exceed. The largest size comes first. */
const SIZES: readonly (readonly [aboveBytes: number, label: string])[] = [
  [100 * GIB, 'GT100GB'],
  [60 * GIB, '60GB-100GB'],
  [40 * GIB, '40GB-60GB'],
  [30 * GIB, '30GB-40GB'],
  [20 * GIB, '20GB-30GB'],
  [10 * GIB, '10GB-20GB'],
  [5 * GIB, '5GB-10GB'],
  [GIB, '1GB-5GB'],
  [500 * MIB, '500MB-1GB'],
  [100 * MIB, '100MB-500MB'],
  [10 * MIB, '10MB-100MB'],
  [0, '0-10MB'],
];
const UNKNOWN_SIZE = 'N/A';

/** The bounds of the buckets in seconds. */
const PULL_BUCKETS = [1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600];

/** Returns the observer of pulls that succeeded. Their durations include the time in the queue. */
export function pullMetrics(metrics: MetricsRegistry): (tookMs: number, sizeBytes: number) => void {
  const durations = metrics.histogram({
    name: 'kubelet_image_pull_duration_seconds',
    help: 'Duration in seconds of image pulls that succeeded, with the time in the queue, by the size of the image.',
    labels: ['image_size_in_bytes'],
    buckets: PULL_BUCKETS,
  });
  return (tookMs, sizeBytes) => {
    const label = SIZES.find(([aboveBytes]) => sizeBytes > aboveBytes)?.[1] ?? UNKNOWN_SIZE;
    durations.with(label).observe(tookMs / 1000);
  };
}

/**
 * Registers a gauge that shows the hash of the credential provider configuration, and returns the observer of runs of its
 * plugins.
 */
export function credentialProviderMetrics(
  metrics: MetricsRegistry,
  configHash: string,
): (plugin: string, run: { readonly tookMs: number; readonly isFailed: boolean }) => void {
  metrics
    .gauge({
      name: 'kubelet_credential_provider_config_info',
      help: 'The hash of the configuration of credential providers. The value is always 1.',
      labels: ['hash'],
    })
    .with(configHash)
    .set(1);
  const durations = metrics.histogram({
    name: 'kubelet_credential_provider_plugin_duration',
    help: 'Duration in seconds of the runs of credential providers, by plugin.',
    labels: ['plugin_name'],
  });
  const errors = metrics.counter({
    name: 'kubelet_credential_provider_plugin_errors_total',
    help: 'Runs of credential providers that failed, by plugin.',
    labels: ['plugin_name'],
  });
  return (plugin, { tookMs, isFailed }) => {
    durations.with(plugin).observe(tookMs / 1000);
    if (isFailed) errors.with(plugin).inc();
  };
}
