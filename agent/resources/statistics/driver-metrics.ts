/** Registers the metrics of calls to the drivers of volumes and devices, and of their sockets, under the kubelet's names. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { GrpcCallObserver } from '../../../api/grpc/grpc-client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { DRA_BUCKETS } from '../managers/manager-metrics.ts';

/** Returns the observer of calls to the driver of a name. */
type DriverCallObserver = (driver: string) => GrpcCallObserver;

/** The bounds of the buckets in seconds, which are those of other operations on volumes. */
const STORAGE_BUCKETS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600];
/** Programs of pods can create sockets. Those beyond this number are not shown. */
const MAX_SHOWN_SOCKETS = 256;

/** Measures calls to CSI drivers. The label `migrated` is always `false`. */
export function csiCallMetrics(metrics: MetricsRegistry, clock: Clock): DriverCallObserver {
  const durations = metrics.histogram({
    name: 'csi_operations_seconds',
    help: 'Duration in seconds of the calls to CSI drivers, by driver, method and status code of gRPC.',
    labels: ['driver_name', 'grpc_status_code', 'method_name', 'migrated'],
    buckets: STORAGE_BUCKETS,
  });
  return measured(clock, (driver, method, status, seconds) =>
    durations.with(driver, status, method, 'false').observe(seconds),
  );
}

/** Measures calls to DRA drivers. */
export function draCallMetrics(metrics: MetricsRegistry, clock: Clock): DriverCallObserver {
  const durations = metrics.histogram({
    name: 'dra_grpc_operations_duration_seconds',
    help: 'Duration in seconds of the calls to DRA drivers, by driver, method and status code of gRPC.',
    labels: ['driver_name', 'grpc_status_code', 'method_name'],
    buckets: DRA_BUCKETS,
  });
  return measured(clock, (driver, method, status, seconds) => durations.with(driver, status, method).observe(seconds));
}

function measured(
  clock: Clock,
  observe: (driver: string, method: string, status: string, seconds: number) => void,
): DriverCallObserver {
  return (driver) => (method) => {
    const startMs = clock.monotonic();
    return (status) => observe(driver, method, status, (clock.monotonic() - startMs) / 1000);
  };
}

/** Shows the sockets of plugins that exist (desired), and those whose plugin is registered (actual). */
export function pluginMetrics(
  metrics: MetricsRegistry,
  sockets: () => readonly { readonly path: string; readonly isRegistered: boolean }[],
): void {
  const plugins = metrics.gauge({
    name: 'plugin_manager_total_plugins',
    help: 'Sockets of plugins that exist (desired_state_of_world) or whose plugin is registered (actual_state_of_world).',
    labels: ['socket_path', 'state'],
  });
  let series: (readonly [path: string, state: string])[] = [];
  metrics.collect(() => {
    for (const labels of series) plugins.delete(...labels);
    series = sockets()
      .slice(0, MAX_SHOWN_SOCKETS)
      .flatMap(({ path, isRegistered }) =>
        ['desired_state_of_world', ...(isRegistered ? ['actual_state_of_world'] : [])].map(
          (state) => [path, state] as const,
        ),
      );
    for (const labels of series) plugins.with(...labels).set(1);
  });
}
