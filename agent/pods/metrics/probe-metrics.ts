/**
 * Registers the metrics of `/metrics/probes`: how often and how long each probe of a container ran. The series of a pod are
 * removed with the pod.
 */
import { MetricsRegistry } from '../../../api/component/metrics.ts';
import { registerStart } from '../../../api/component/process-metrics.ts';
import { capitalized } from '../../../api/meta/capitalized.ts';
import type { FinishedProbe } from '../prober/probe-worker.ts';

/** The registry of probes and the observer that fills it. */
export interface ProbeMetrics {
  readonly registry: MetricsRegistry;
  /** Counts a run of a probe. */
  observe(probe: FinishedProbe): void;
  /** Removes the series of pods that are not in the set. */
  retain(podUids: ReadonlySet<string>): void;
}

/**
 * Creates the metrics of probes. `startedAtMs` is the start of the process, by which scrapers notice that the counters were
 * reset.
 */
export function createProbeMetrics(startedAtMs: number): ProbeMetrics {
  const registry = new MetricsRegistry();
  registerStart(registry, startedAtMs);
  const total = registry.counter({
    name: 'prober_probe_total',
    help: 'Cumulative number of a liveness, readiness or startup probe for a container by result.',
    labels: ['container', 'namespace', 'pod', 'pod_uid', 'probe_type', 'result'],
  });
  const durations = registry.histogram({
    name: 'prober_probe_duration_seconds',
    help: 'Duration in seconds for a probe response.',
    labels: ['container', 'namespace', 'pod', 'probe_type'],
  });
  /** The labels of each series by pod uid, so that they can be removed with the pod. */
  const counted = new Map<string, Map<string, readonly string[]>>();
  return {
    registry,
    observe({ pod, container, kind, result, tookMs }) {
      const { name, namespace, uid } = pod.metadata;
      const type = capitalized(kind);
      total.with(container, namespace, name, uid, type, result).inc();
      // As in the kubelet, only successful probes have a duration.
      if (result === 'successful') durations.with(container, namespace, name, type).observe(tookMs / 1000);
      const series = counted.get(uid) ?? new Map<string, readonly string[]>();
      counted.set(uid, series.set(`${container}/${type}/${result}`, [container, namespace, name, uid, type, result]));
    },
    retain(podUids) {
      for (const [uid, series] of counted) {
        if (podUids.has(uid)) continue;
        counted.delete(uid);
        for (const labels of series.values()) {
          total.delete(...labels);
          const [container = '', namespace = '', name = '', , type = ''] = labels;
          durations.delete(container, namespace, name, type);
        }
      }
    },
  };
}
