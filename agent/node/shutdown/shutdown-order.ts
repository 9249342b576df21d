/** Computes the order in which pods terminate during a shutdown, and the time of each group. Pure. */
import type { Pod } from '../../base/model/pod.ts';
import { SYSTEM_CRITICAL_PRIORITY } from '../../base/model/pod-kinds.ts';

/** Pods with at least this priority, and below that of the next period, have this many seconds. */
export interface ShutdownPeriod {
  readonly priority: number;
  readonly seconds: number;
}

export interface ShutdownGroup extends ShutdownPeriod {
  readonly pods: readonly Pod[];
}

/** The grace periods of the configuration in milliseconds, except those by priority, which are in seconds. */
interface ShutdownFlags {
  readonly shutdownGracePeriod: number;
  readonly shutdownGracePeriodCriticalPods: number;
  readonly shutdownGracePeriodByPodPriority: Readonly<Record<string, string>>;
}

/**
 * Returns the periods, the lowest priority first. Periods by priority replace the two others. Returns an empty list if the
 * period for all pods is 0 or shorter than that for critical pods: then a shutdown of the host does not wait for pods.
 */
export function shutdownPeriods(flags: ShutdownFlags): readonly ShutdownPeriod[] {
  const byPriority = Object.entries(flags.shutdownGracePeriodByPodPriority);
  if (byPriority.length > 0)
    return byPriority
      .map(([priority, seconds]) => ({ priority: Number(priority), seconds: Number(seconds) }))
      .sort((a, b) => a.priority - b.priority);
  const { shutdownGracePeriod: all, shutdownGracePeriodCriticalPods: critical } = flags;
  if (all === 0 || critical > all) return [];
  return [
    { priority: 0, seconds: Math.floor((all - critical) / 1000) },
    { priority: SYSTEM_CRITICAL_PRIORITY, seconds: Math.floor(critical / 1000) },
  ];
}

/** Returns the sum of the periods in seconds. */
export function totalSeconds(periods: readonly ShutdownPeriod[]): number {
  return periods.reduce((sum, { seconds }) => sum + seconds, 0);
}

/**
 * Groups pods by period. A pod belongs to the period with the highest priority that is not above its own, and pods below all
 * periods belong to the lowest one. Periods without pods are omitted.
 */
export function groupByPriority(periods: readonly ShutdownPeriod[], pods: readonly Pod[]): readonly ShutdownGroup[] {
  const groups = periods.map((period) => ({ ...period, pods: [] as Pod[] }));
  for (const pod of pods) {
    const priority = pod.spec.priority ?? 0;
    const group = groups.findLast((candidate) => candidate.priority <= priority) ?? groups[0];
    group?.pods.push(pod);
  }
  return groups.filter((group) => group.pods.length > 0);
}

/** Returns the pod's own grace period if it is shorter than that of the group, else that of the group. */
export function graceSeconds(pod: Pod, group: ShutdownPeriod): number {
  return Math.min(pod.spec.terminationGracePeriodSeconds ?? group.seconds, group.seconds);
}
