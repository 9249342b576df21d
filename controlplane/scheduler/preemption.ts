/**
 * Selects the node and the pods of lower priority to evict, so that a pod fits. It evicts as few and as unimportant pods as
 * possible, and respects disruption budgets if possible. It works in time slices and, like kube-scheduler, stops when a tenth
 * of the nodes (at least a hundred) would do and one of them violates no budget.
 */
import type { PodDisruptionBudget } from '../../api/kinds/kinds.ts';
import type { TimeSlice } from '../../api/machinery/time-slice.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import { fromLabelSelector, type Selector } from '../../api/meta/selector.ts';
import type { Cluster } from './cluster-state.ts';
import { unavailableText, type Fit, type Trials } from './fit.ts';
import type { NodeInfo } from './node-info.ts';
import type { PodInfo } from './pod-info.ts';

/** The evictions that make room on one node. */
export interface Preemption {
  readonly node: NodeInfo;
  /** The victims, the most important one first. There is at least one. */
  readonly victims: readonly PodInfo[];
  /** The number of victims whose disruption budgets do not allow the eviction. */
  readonly violations: number;
}

interface PreemptionContext {
  readonly cluster: Cluster;
  readonly budgets: readonly PodDisruptionBudget[];
  /** Returns a number from 0 to below 1. It selects the node with which to begin. */
  readonly random: () => number;
  readonly slice: TimeSlice;
}

/** The share and the least number of candidate nodes to find: defaults of kube-scheduler's DefaultPreemptionArgs. */
const CANDIDATES_SHARE = 0.1;
const FEWEST_CANDIDATES = 100;

/** Returns the best preemption, or a text with the reasons why nothing is preempted. */
export async function preempt(pod: PodInfo, fit: Fit, context: PreemptionContext): Promise<Preemption | string> {
  const { cluster, budgets, random, slice } = context;
  const ineligible = ineligibility(pod, fit, cluster);
  if (ineligible !== undefined) return ineligible;
  const reasons: string[] = [];
  const possible: NodeInfo[] = [];
  for (const { kind, node } of fit.rejections) {
    if (kind === 'unresolvable') reasons.push('Preemption is not helpful for scheduling');
    else possible.push(node);
  }
  const { trials } = fit;
  if (trials === undefined || possible.length === 0) return unavailableText(cluster.nodes.length, reasons);
  const wanted = Math.max(FEWEST_CANDIDATES, Math.floor(possible.length * CANDIDATES_SHARE));
  const allowances = allowancesOf(budgets);
  const offset = Math.floor(random() * possible.length);
  let best: Preemption | undefined;
  let found = 0;
  for (let at = 0; at < possible.length; at += 1) {
    const node = possible[(offset + at) % possible.length];
    const candidate = node === undefined ? [] : await victimsOn(node, pod, { trials, allowances, slice });
    if ('victims' in candidate) {
      found += 1;
      if (best === undefined || isBetter(candidate, best)) best = candidate;
      if (found >= wanted && best.violations === 0) break;
    } else reasons.push(...candidate);
    if (slice.isSpent) await slice.pause();
  }
  return best ?? unavailableText(cluster.nodes.length, reasons);
}

function ineligibility(pod: PodInfo, fit: Fit, cluster: Cluster): string | undefined {
  if (pod.pod.spec?.preemptionPolicy === 'Never') return 'not eligible due to preemptionPolicy=Never.';
  const nominated = cluster.node(pod.pod.status?.nominatedNodeName ?? '');
  if (nominated === undefined) return undefined;
  // The pod can no longer fit on that node, so another one may be preempted.
  if (fit.rejections.some(({ node, kind }) => node === nominated && kind === 'unresolvable')) return undefined;
  for (const other of nominated.pods.values()) {
    if (other.priority < pod.priority && isTerminatingByPreemption(other))
      return 'not eligible due to a terminating pod on the nominated node.';
  }
  return undefined;
}

function isTerminatingByPreemption({ pod }: PodInfo): boolean {
  if (pod.metadata.deletionTimestamp === undefined) return false;
  return (pod.status?.conditions ?? []).some(
    ({ type, status, reason }) =>
      type === 'DisruptionTarget' && status === 'True' && reason === 'PreemptionByScheduler',
  );
}

/** Returns the victims on a node, or the reasons why evicting pods does not help there. */
async function victimsOn(
  node: NodeInfo,
  pod: PodInfo,
  {
    trials,
    allowances,
    slice,
  }: { readonly trials: Trials; readonly allowances: Allowances; readonly slice: TimeSlice },
): Promise<Preemption | readonly string[]> {
  const lower = [...node.pods.values()].filter((other) => other.priority < pod.priority);
  if (lower.length === 0) return ['No preemption victims found for incoming pod'];
  const tried = node.clone();
  for (const other of lower) {
    trials.remove(other, tried);
    if (slice.isSpent) await slice.pause();
  }
  const evicted = new Set(lower);
  try {
    const rejected = trials.rejectionOn(tried);
    if (rejected !== undefined) return rejected.rejection.reasons;
    const { violating, others } = byBudget(lower.sort(moreImportantFirst), allowances);
    const violators = new Set(violating);
    // The pods that should be kept first are put back first.
    for (const other of [...violating, ...others]) {
      trials.add(other, tried);
      if (trials.rejectionOn(tried) === undefined) evicted.delete(other);
      else trials.remove(other, tried);
      if (slice.isSpent) await slice.pause();
    }
    const victims = [...evicted].sort(moreImportantFirst);
    if (victims.length === 0) return ['No preemption victims found for incoming pod'];
    return { node, victims, violations: victims.filter((victim) => violators.has(victim)).length };
  } finally {
    for (const other of evicted) trials.add(other, tried);
  }
}

/** The start of pods that have not started, which is later than any other. */
const NOT_STARTED = '9999';
const startOf = ({ pod }: PodInfo): string => pod.status?.startTime ?? NOT_STARTED;

function moreImportantFirst(a: PodInfo, b: PodInfo): number {
  if (a.priority !== b.priority) return b.priority - a.priority;
  const [startA, startB] = [startOf(a), startOf(b)];
  return startA === startB ? 0 : startA < startB ? -1 : 1;
}

interface Allowance {
  readonly budget: PodDisruptionBudget;
  readonly selector: Selector;
}

/** The disruption budgets by namespace. */
type Allowances = ReadonlyMap<string, readonly Allowance[]>;

function allowancesOf(budgets: readonly PodDisruptionBudget[]): Allowances {
  const allowances = new Map<string, Allowance[]>();
  for (const budget of budgets) {
    const selector = fromLabelSelector(budget.spec?.selector as Parameters<typeof fromLabelSelector>[0]);
    // In preemption, an empty selector matches nothing.
    if (selector.isEmpty) continue;
    const { namespace = '' } = budget.metadata;
    const ofNamespace = allowances.get(namespace);
    if (ofNamespace === undefined) allowances.set(namespace, [{ budget, selector }]);
    else ofNamespace.push({ budget, selector });
  }
  return allowances;
}

/** Splits the pods into those whose budgets allow no further disruption, and the others. */
function byBudget(pods: readonly PodInfo[], allowances: Allowances) {
  const remaining = new Map<Allowance, number>();
  const violating: PodInfo[] = [];
  const others: PodInfo[] = [];
  for (const pod of pods) {
    let violates = false;
    for (const allowance of allowances.get(pod.namespace) ?? []) {
      const { budget, selector } = allowance;
      if (!selector.matches(pod.labels)) continue;
      if (ownMember(budget.status?.disruptedPods, pod.pod.metadata.name ?? '') !== undefined) continue;
      const allowed = (remaining.get(allowance) ?? budget.status?.disruptionsAllowed ?? 0) - 1;
      remaining.set(allowance, allowed);
      violates ||= allowed < 0;
    }
    (violates ? violating : others).push(pod);
  }
  return { violating, others };
}

/** Prefers fewer violations, then a lower highest priority, a lower sum of priorities, fewer victims, and a later start. */
export function isBetter(a: Preemption, b: Preemption): boolean {
  const [rankA, rankB] = [rank(a), rank(b)];
  for (const [at, value] of rankA.entries()) {
    if (value !== rankB[at]) return value < (rankB[at] ?? 0);
  }
  return earliestStart(a) > earliestStart(b);
}

function rank({ violations, victims }: Preemption): number[] {
  // The offset makes every priority positive, so that a few pods of negative priority do not rank behind many.
  const offset = 2 ** 31;
  const sum = victims.reduce((total, { priority }) => total + priority + offset, 0);
  return [violations, victims[0]?.priority ?? 0, sum, victims.length];
}

/** Returns the earliest start of the victims with the highest priority. */
function earliestStart({ victims }: Preemption): string {
  let earliest = NOT_STARTED;
  for (const victim of victims) {
    if (victim.priority === victims[0]?.priority && startOf(victim) < earliest) earliest = startOf(victim);
  }
  return earliest;
}
