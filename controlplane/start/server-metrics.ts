/** Registers the metrics of the server's process, versions, storage, services and TLS handshakes. */
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

/** The build, and the oldest release with which the server is compatible. */
interface ServedVersion extends BuildInfo {
  readonly minCompatibilityMajor: string;
  readonly minCompatibilityMinor: string;
}

interface ServerMetrics {
  onHandshakeError(): void;
}

/** Registers the metrics. Returns the observer of failed TLS handshakes. */
export function registerServerMetrics(
  { metrics, clock, storage, overrides, flags, directory, registry }: Parts,
  build: ServedVersion,
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

/** Registers the metric of the release whose behaviour the server emulates, which is always its own release. */
function registerVersionInfo(metrics: MetricsRegistry, version: ServedVersion): void {
  const { gitVersion, minCompatibilityMajor, minCompatibilityMinor } = version;
  const release = gitVersion.replace(/^v(\d+\.\d+).*$/, '$1');
  metrics
    .gauge({
      name: 'version_info',
      help: 'Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.',
      labels: ['binary', 'component', 'emulation', 'min_compat'],
    })
    .with(release, 'kube', release, `${minCompatibilityMajor}.${minCompatibilityMinor}`)
    .set(1);
}
