/** Registers the metrics of the process under the names of Prometheus' client libraries. Values are read at each scrape. */
import { readFileSync, readdirSync } from 'node:fs';
import type { MetricsRegistry } from './metrics.ts';

/** Registers the start of the process, by which scrapers notice that counters were reset. */
export function registerStart(metrics: MetricsRegistry, startedAtMs: number): void {
  const help = 'Start time of the process since unix epoch in seconds.';
  metrics
    .gauge({ name: 'process_start_time_seconds', help })
    .with()
    .set(startedAtMs / 1000);
}

/** Registers the metrics `process_*`. `startedAtMs` is the start of the program, in milliseconds since 1970. */
export function registerProcess(metrics: MetricsRegistry, startedAtMs: number): void {
  const gauge = (name: string, help: string) => metrics.gauge({ name, help }).with();
  registerStart(metrics, startedAtMs);
  const resident = gauge('process_resident_memory_bytes', 'Resident memory size in bytes.');
  const virtual = gauge('process_virtual_memory_bytes', 'Virtual memory size in bytes.');
  const openFiles = gauge('process_open_fds', 'Number of open file descriptors.');
  const mostVirtual = gauge('process_virtual_memory_max_bytes', 'Maximum amount of virtual memory available in bytes.');
  const mostFiles = gauge('process_max_fds', 'Maximum number of open file descriptors.');
  const cpu = metrics
    .counter({ name: 'process_cpu_seconds_total', help: 'Total user and system CPU time spent in seconds.' })
    .with();
  let counted = 0;
  metrics.collect(() => {
    const { user, system } = process.cpuUsage();
    const total = (user + system) / 1e6;
    cpu.inc(total - counted);
    counted = total;
    resident.set(process.memoryUsage.rss());
    try {
      virtual.set(Number(/^VmSize:\s+(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? 0) * 1024);
      openFiles.set(readdirSync('/proc/self/fd').length);
      const limits = readFileSync('/proc/self/limits', 'utf8');
      mostFiles.set(Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? 0));
      mostVirtual.set(Number(/^Max address space\s+(\d+)/m.exec(limits)?.[1] ?? 2 ** 64));
    } catch {
      // Without /proc these metrics stay 0.
    }
  });
}
