/** Creates the metrics of the agent: its own on `/metrics`, and those of probes on `/metrics/probes`. */
import { registerBuildInfo } from '../../api/component/build-metrics.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import { queueMetrics } from '../../api/machinery/queue-metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { QueueObserver } from '../../api/machinery/work-queue.ts';
import { type CertificateObservers, certificateMetrics } from '../node/certificates/certificate-metrics.ts';
import { type AccessObserver, accessMetrics } from '../server/access-metrics.ts';
import { createProbeMetrics, type ProbeMetrics } from '../pods/metrics/probe-metrics.ts';

/** The registries and the observers that fill them, in the form in which the parts take them. */
export interface AgentRegistries {
  readonly agent: MetricsRegistry;
  readonly probes: ProbeMetrics;
  readonly certificates: CertificateObservers;
  readonly access: AccessObserver;
  readonly observeQueue: (name: string) => QueueObserver;
}

/** Creates the metrics registries of the agent. `version` is the kubelet's, such as `v1.36.2`. */
export function createRegistries(clock: Clock, version: string): AgentRegistries {
  const metrics = new MetricsRegistry();
  registerBuildInfo(metrics, {
    gitVersion: version,
    platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
  });
  return {
    agent: metrics,
    probes: createProbeMetrics(clock.now()),
    certificates: certificateMetrics(metrics, clock),
    access: accessMetrics(metrics),
    observeQueue: queueMetrics(metrics, clock),
  };
}
