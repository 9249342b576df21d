/**
 * In which order pods end when the host goes down, and how long each may take. Pure; used by `node-shutdown.ts`.
 */
import type { Pod } from '../../model/core-types.ts';
import { SYSTEM_CRITICAL_PRIORITY } from '../../runtime/kuberuntime/resources.ts';

/** Pods from this priority on, up to that of the next period, have so many seconds. */
export interface ShutdownPeriod {
  readonly priority: number;
  readonly seconds: number;
}

export interface ShutdownGroup extends ShutdownPeriod {
  readonly pods: readonly Pod[];
}

export interface ShutdownFlags {
  readonly shutdownGracePeriod: number;
  readonly shutdownGracePeriodCriticalPods: number;
  readonly shutdownGracePeriodByPodPriority: Readonly<Record<string, string>>;
}

/** Lowest priority first. Empty: a shutdown of the host waits for nobody. */
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

export function totalSeconds(periods: readonly ShutdownPeriod[]): number {
  return periods.reduce((sum, { seconds }) => sum + seconds, 0);
}

/** A pod belongs to the highest period that is not above it; those below all to the lowest. Periods without pods are left out. */
export function groupByPriority(periods: readonly ShutdownPeriod[], pods: readonly Pod[]): readonly ShutdownGroup[] {
  const groups = periods.map((period) => ({ ...period, pods: [] as Pod[] }));
  for (const pod of pods) {
    const priority = pod.spec.priority ?? 0;
    const group = groups.findLast((candidate) => candidate.priority <= priority) ?? groups[0];
    group?.pods.push(pod);
  }
  return groups.filter((group) => group.pods.length > 0);
}

/** The pod's own grace period where that is shorter. */
export function graceSeconds(pod: Pod, group: ShutdownPeriod): number {
  return Math.min(pod.spec.terminationGracePeriodSeconds ?? group.seconds, group.seconds);
}
