/** Writes `/metrics/resource`, which metrics-server and similar clients read. */
import { helpWithStability } from '../../../api/component/metric-stability.ts';
import { Exposition } from './exposition.ts';
import type { UsageSnapshot } from './usage.ts';

const gauge = (name: string, help: string) => ({ name, type: 'gauge', help: helpWithStability(name, help) }) as const;
const counter = (name: string, help: string) =>
  ({ name, type: 'counter', help: helpWithStability(name, help) }) as const;

const NODE_CPU = counter('node_cpu_usage_seconds_total', 'Cumulative cpu time consumed by the node in core-seconds');
const NODE_MEMORY = gauge('node_memory_working_set_bytes', 'Current working set of the node in bytes');
const NOT_ON_WINDOWS = 'Reported only on non-windows systems';
const NODE_SWAP = gauge('node_swap_usage_bytes', `Current swap usage of the node in bytes. ${NOT_ON_WINDOWS}`);
const POD_CPU = counter('pod_cpu_usage_seconds_total', 'Cumulative cpu time consumed by the pod in core-seconds');
const POD_MEMORY = gauge('pod_memory_working_set_bytes', 'Current working set of the pod in bytes');
const POD_SWAP = gauge('pod_swap_usage_bytes', `Current amount of the pod swap usage in bytes. ${NOT_ON_WINDOWS}`);
const CPU = counter(
  'container_cpu_usage_seconds_total',
  'Cumulative cpu time consumed by the container in core-seconds',
);
const MEMORY = gauge('container_memory_working_set_bytes', 'Current working set of the container in bytes');
const START = gauge('container_start_time_seconds', 'Start time of the container since unix epoch in seconds');
const SWAP = gauge(
  'container_swap_usage_bytes',
  `Current amount of the container swap usage in bytes. ${NOT_ON_WINDOWS}`,
);
const SWAP_LIMIT = gauge(
  'container_swap_limit_bytes',
  `Current amount of the container swap limit in bytes. ${NOT_ON_WINDOWS}`,
);
const ERROR = gauge('resource_scrape_error', '1 if there was an error while getting container metrics, 0 otherwise');

/** Returns the whole page. Without a snapshot, it has only `resource_scrape_error 1`. */
export function resourceMetrics(snapshot: UsageSnapshot | undefined): string {
  const page = new Exposition();
  page.add(ERROR, snapshot === undefined ? 1 : 0);
  if (snapshot === undefined) return page.text();
  page.add(NODE_CPU, snapshot.node.cpu.usageNs / 1e9, {}, snapshot.timeMs);
  page.add(NODE_MEMORY, snapshot.node.memory.workingSetBytes, {}, snapshot.timeMs);
  page.add(NODE_SWAP, snapshot.node.memory.swapBytes, {}, snapshot.timeMs);
  for (const { pod, usage, timeMs, containers } of snapshot.pods) {
    const names = { namespace: pod.metadata.namespace, pod: pod.metadata.name };
    page.add(POD_CPU, usage.cpu.usageNs / 1e9, names, timeMs);
    page.add(POD_MEMORY, usage.memory.workingSetBytes, names, timeMs);
    page.add(POD_SWAP, usage.memory.swapBytes, names, timeMs);
    for (const container of containers) {
      const labels = { container: container.name, ...names };
      page.add(CPU, container.usage.cpu.usageNs / 1e9, labels, container.timeMs);
      page.add(MEMORY, container.usage.memory.workingSetBytes, labels, container.timeMs);
      page.add(START, container.startedAtMs / 1000, labels);
      const { swapBytes, swapMaxBytes } = container.usage.memory;
      page.add(SWAP, swapBytes, labels, container.timeMs);
      // The kubelet adds the available swap and the usage. Without a swap limit, containerd reports 0 as the available swap.
      page.add(SWAP_LIMIT, Math.max(swapMaxBytes ?? 0, swapBytes), labels, container.timeMs);
    }
  }
  return page.text();
}
