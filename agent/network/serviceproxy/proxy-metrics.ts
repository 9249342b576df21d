/** The metrics of the service proxy, with the names and labels of kube-proxy. */
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Family } from './addresses.ts';
import type { ProxyMode } from './rule-writer.ts';

/** Counts transactions of the rule writers. */
export interface ProxyObserver {
  /** The rules of a family were written in this time. */
  synced(family: Family, seconds: number): void;
  /** The rules of a family could not be written. */
  failed(family: Family, mode: ProxyMode): void;
}

const BUCKETS = Array.from({ length: 15 }, (_, power) => 0.001 * 2 ** power);

/** Registers the metrics `kubeproxy_sync_proxy_rules_*`. */
export function proxyMetrics(metrics: MetricsRegistry, clock: Clock): ProxyObserver {
  const labels = ['ip_family'];
  const durations = metrics.histogram({
    name: 'kubeproxy_sync_proxy_rules_duration_seconds',
    help: 'SyncProxyRules latency in seconds',
    labels,
    buckets: BUCKETS,
  });
  const last = metrics.gauge({
    name: 'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
    help: 'The last time proxy rules were successfully synced',
    labels,
  });
  const failures = {
    nftables: metrics.counter({
      name: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total',
      help: 'Cumulative proxy nftables sync failures',
      labels,
    }),
    iptables: metrics.counter({
      name: 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
      help: 'Cumulative proxy iptables restore failures',
      labels,
    }),
  };
  return {
    synced(family, seconds) {
      durations.with(family).observe(seconds);
      last.with(family).set(clock.now() / 1000);
    },
    failed: (family, mode) => failures[mode].with(family).inc(),
  };
}
