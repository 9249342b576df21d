/**
 * Preemption: which pods of lower priority would have to go, and from which node, so that a pod fits. As few and as
 * unimportant as possible, disruption budgets kept where possible. Pure; `scheduler.ts` carries it out.
 */
import { fromLabelSelector } from '../../api/meta/selector.ts';
import type { PodDisruptionBudget } from '../../api/machinery/kinds.ts';
import type { Cluster, NodeInfo, PodInfo } from './cluster-state.ts';
import { fitsChanged, unavailableText, type Fit } from './fit.ts';

export interface Preemption {
  readonly node: NodeInfo;
  readonly victims: readonly PodInfo[];
  /** How many of them their disruption budget would have kept. */
  readonly violations: number;
}

/** A text says why nothing is preempted. */
export function preempt(
  pod: PodInfo,
  fit: Fit,
  cluster: Cluster,
  budgets: readonly PodDisruptionBudget[],
): Preemption | string {
  const ineligible = ineligibility(pod, cluster);
  if (ineligible !== undefined) return ineligible;
  const reasons: string[] = [];
  let best: Preemption | undefined;
  for (const { kind, node } of fit.rejections) {
    if (kind === 'unresolvable') {
      reasons.push('Preemption is not helpful for scheduling');
      continue;
    }
    const candidate = victimsOn(node, pod, cluster, budgets);
    if (candidate === undefined) reasons.push('No preemption victims found for incoming pod');
    else if (best === undefined || isBetter(candidate, best)) best = candidate;
  }
  return best ?? unavailableText(cluster.nodes.length, reasons);
}

function ineligibility(pod: PodInfo, cluster: Cluster): string | undefined {
  if (pod.pod.spec?.preemptionPolicy === 'Never') return 'not eligible due to preemptionPolicy=Never.';
  const nominated = cluster.nodes.find((node) => node.name === pod.pod.status?.nominatedNodeName);
  for (const other of nominated?.pods.values() ?? []) {
    if (other.pod.metadata.deletionTimestamp !== undefined && other.priority < pod.priority) {
      return 'not eligible due to a terminating pod on the nominated node.';
    }
  }
  return undefined;
}

function victimsOn(
  node: NodeInfo,
  pod: PodInfo,
  cluster: Cluster,
  budgets: readonly PodDisruptionBudget[],
): Preemption | undefined {
  const lower = [...node.pods.values()].filter((other) => other.priority < pod.priority);
  if (lower.length === 0) return undefined;
  const tried = node.clone();
  for (const other of lower) tried.remove(other.uid);
  if (fitsChanged(pod, tried, cluster) !== undefined) return undefined;
  const { violating, others } = byBudget([...lower].sort(moreImportantFirst), budgets);
  const victims: PodInfo[] = [];
  let violations = 0;
  // Those that should stay most are put back first.
  for (const other of [...violating, ...others]) {
    tried.add(other);
    if (fitsChanged(pod, tried, cluster) === undefined) continue;
    tried.remove(other.uid);
    victims.push(other);
    if (violating.includes(other)) violations += 1;
  }
  return victims.length === 0 ? undefined : { node, victims: victims.sort(moreImportantFirst), violations };
}

const startOf = (pod: PodInfo): string => pod.pod.status?.startTime ?? pod.pod.metadata.creationTimestamp ?? '';

function moreImportantFirst(a: PodInfo, b: PodInfo): number {
  if (a.priority !== b.priority) return b.priority - a.priority;
  return startOf(a) < startOf(b) ? -1 : 1;
}

/** Pods whose budgets allow no further disruption, and the rest. */
function byBudget(pods: readonly PodInfo[], budgets: readonly PodDisruptionBudget[]) {
  const allowed = budgets.map((budget) => ({
    budget,
    selector: fromLabelSelector(budget.spec?.selector as Parameters<typeof fromLabelSelector>[0]),
    left: budget.status?.disruptionsAllowed ?? 0,
  }));
  const violating: PodInfo[] = [];
  const others: PodInfo[] = [];
  for (const pod of pods) {
    let violates = false;
    for (const one of allowed) {
      if (one.budget.metadata.namespace !== pod.namespace || !one.selector.matches(pod.labels)) continue;
      if (one.budget.status?.disruptedPods?.[pod.pod.metadata.name ?? ''] !== undefined) continue;
      one.left -= 1;
      violates ||= one.left < 0;
    }
    (violates ? violating : others).push(pod);
  }
  return { violating, others };
}

function isBetter(a: Preemption, b: Preemption): boolean {
  const [rankA, rankB] = [rank(a), rank(b)];
  for (const [at, value] of rankA.entries()) {
    if (value !== rankB[at]) return value < (rankB[at] ?? 0);
  }
  const [startA, startB] = [earliestStart(a), earliestStart(b)];
  return startA > startB;
}

function rank({ violations, victims }: Preemption): number[] {
  const priorities = victims.map((victim) => victim.priority);
  const offset = 2 ** 31;
  return [violations, Math.max(...priorities), priorities.reduce((sum, one) => sum + one + offset, 0), victims.length];
}

function earliestStart({ victims }: Preemption): string {
  const highest = Math.max(...victims.map((victim) => victim.priority));
  return (
    victims
      .filter((victim) => victim.priority === highest)
      .map(startOf)
      .sort()[0] ?? ''
  );
}
