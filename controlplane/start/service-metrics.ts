/**
 * Registers how many addresses and node ports of services are allocated and left. Both are counted from the stored objects at
 * each scrape.
 */
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { ServiceRanges, type ServiceRangesOptions } from '../registry/kinds/core/service-ranges.ts';
import { portsOf, type Service } from '../registry/kinds/core/service-types.ts';
import { selectionOf } from '../storage/selection.ts';

interface ServiceMetricsOptions extends ServiceRangesOptions {
  readonly nodePorts: { readonly from: number; readonly to: number };
}

/**
 * Registers the metrics of the allocation of addresses and node ports. The names and help texts are those of kube-apiserver.
 */
export function registerServiceMetrics(metrics: MetricsRegistry, options: ServiceMetricsOptions): void {
  const gauge = (name: string, help: string, labels: readonly string[] = []) => metrics.gauge({ name, help, labels });
  const allocatedIps = gauge(
    'kube_apiserver_clusterip_allocator_allocated_ips',
    'Gauge measuring the number of allocated IPs for Services',
    ['cidr'],
  );
  const availableIps = gauge(
    'kube_apiserver_clusterip_allocator_available_ips',
    'Gauge measuring the number of available IPs for Services',
    ['cidr'],
  );
  const allocatedPorts = gauge(
    'kube_apiserver_nodeport_allocator_allocated_ports',
    'Gauge measuring the number of allocated NodePorts for Services',
  );
  const availablePorts = gauge(
    'kube_apiserver_nodeport_allocator_available_ports',
    'Gauge measuring the number of available NodePorts for Services',
  );
  const ranges = new ServiceRanges(options);
  let shownCidrs = new Set<string>();
  metrics.collect(() => {
    const now = ranges.usage();
    for (const { cidr, allocated, available } of now) {
      allocatedIps.with(cidr).set(allocated);
      availableIps.with(cidr).set(available);
    }
    const cidrs = new Set(now.map(({ cidr }) => cidr));
    // A range that was deleted has no numbers.
    for (const gone of shownCidrs.difference(cidrs)) for (const each of [allocatedIps, availableIps]) each.delete(gone);
    shownCidrs = cidrs;
    const { entries } = options.stores.get('', 'services').cache.list({ selection: selectionOf('') });
    const ports = new Set(entries.flatMap(({ object }) => portsOf((object as Service).spec ?? {})));
    allocatedPorts.with().set(ports.size);
    availablePorts.with().set(options.nodePorts.to - options.nodePorts.from + 1 - ports.size);
  });
}
