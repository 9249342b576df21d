/** Registers the metrics of the server's process, build, storage and TLS handshakes. */
import { join } from 'node:path';
import { type BuildInfo, registerBuildInfo } from '../../api/component/build-metrics.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { registerProcess } from '../../api/component/process-metrics.ts';
import type { Parts } from './parts.ts';
import { registerServiceMetrics } from './service-metrics.ts';
import { storageBackendOf } from '../options/storage.ts';
import { allStorages } from '../storage/storages.ts';
import { servicePortsOf } from './stores.ts';
import { registerStorageMetrics } from './storage-metrics.ts';

interface ServerMetrics {
  onHandshakeError(): void;
}

/** Registers the metrics of the process, the storage and the services. Returns those that other parts count. */
export function registerServerMetrics(
  { metrics, clock, storage, overrides, flags, directory, registry }: Parts,
  build: BuildInfo,
): ServerMetrics {
  registerProcess(metrics, clock.now());
  registerBuildInfo(metrics, build);
  registerVersionInfo(metrics, build);
  const handshakeErrors = metrics
    .counter({
      name: 'apiserver_tls_handshake_errors_total',
      help: "Number of requests dropped with 'TLS handshake error from' error",
    })
    .with();
  registerStorageMetrics(metrics, {
    storages: allStorages({ storage, overrides }),
    file: storageBackendOf(flags) === 'sqlite' ? join(directory, 'storage', 'orchlet.db') : '',
  });
  registerServiceMetrics(metrics, {
    serviceClusterCidrs: flags.serviceClusterIpRange,
    nodePorts: servicePortsOf(flags),
    stores: registry.stores,
  });
  return { onHandshakeError: () => handshakeErrors.inc() };
}

/** Registers the metric of the release whose behaviour the server emulates; there is only one. */
function registerVersionInfo(metrics: MetricsRegistry, { gitVersion }: BuildInfo): void {
  const release = gitVersion.replace(/^v(\d+\.\d+).*$/, '$1');
  metrics
    .gauge({
      name: 'version_info',
      help: 'Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.',
      labels: ['binary', 'component', 'emulation', 'min_compat'],
    })
    .with(release, 'kube', release, release)
    .set(1);
}
