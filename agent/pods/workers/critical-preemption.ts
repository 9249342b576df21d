/**
 * Chooses the pods to terminate so that a critical pod fits on this node. Pods of a better QoS class are chosen only if those
 * of the lower classes do not suffice; within a class, few pods with small requests are chosen. Pure.
 */
import type { Pod } from '../../base/model/pod.ts';
import { isCriticalPod } from '../../base/model/pod-kinds.ts';
import { qosClass } from '../../runtime/kuberuntime/resources.ts';
import { type LackingResource, requestOf } from './node-fit.ts';

interface Need {
  readonly resource: string;
  readonly amount: bigint;
}

type PreemptionChoice =
  | { readonly kind: 'victims'; readonly pods: readonly Pod[] }
  /** The resources that would still be missing without every pod that may be preempted. */
  | { readonly kind: 'impossible'; readonly missing: readonly Need[] };

/** Returns the pods to terminate, or the resources that remain short even without every pod that may be preempted. */
export function preemptionVictims(
  critical: Pod,
  others: readonly Pod[],
  lacking: readonly LackingResource[],
): PreemptionChoice {
  const needs = lacking.map(({ resource, requested, used, capacity }) => ({
    resource,
    amount: requested - (capacity - used),
  }));
  const preemptable = others.filter((other) => isPreemptable(critical, other));
  const missing = remaining(needs, preemptable);
  if (missing.length > 0) return { kind: 'impossible', missing };
  const ofClass = (wanted: ReturnType<typeof qosClass>): readonly Pod[] =>
    preemptable.filter((pod) => qosClass(pod) === wanted);
  const [bestEffort, burstable] = [ofClass('BestEffort'), ofClass('Burstable')];
  const guaranteedVictims = closest(ofClass('Guaranteed'), remaining(needs, [...bestEffort, ...burstable]));
  const burstableVictims = closest(burstable, remaining(needs, [...bestEffort, ...guaranteedVictims]));
  const bestEffortVictims = closest(bestEffort, remaining(needs, [...burstableVictims, ...guaranteedVictims]));
  return { kind: 'victims', pods: [...bestEffortVictims, ...burstableVictims, ...guaranteedVictims] };
}

/** Whether the critical pod may preempt the other: one that is not critical, or a critical one of lower priority. */
function isPreemptable(critical: Pod, other: Pod): boolean {
  if (!isCriticalPod(other)) return true;
  const [priority, otherPriority] = [critical.spec.priority, other.spec.priority];
  return priority !== undefined && otherPriority !== undefined && priority > otherPriority;
}

/** Chooses the pod that comes closest to the needs, again and again, until they are met or no pod is left. */
function closest(pods: readonly Pod[], needs: readonly Need[]): readonly Pod[] {
  const candidates = [...pods];
  const victims: Pod[] = [];
  for (let open = needs; open.length > 0 && candidates.length > 0;) {
    const measured = candidates.map((pod) => ({ pod, distance: distance(pod, open) }));
    const best = measured.reduce((a, b) =>
      b.distance < a.distance || (b.distance === a.distance && hasSmallerRequests(b.pod, a.pod)) ? b : a,
    );
    victims.push(best.pod);
    candidates.splice(candidates.indexOf(best.pod), 1);
    open = remaining(open, [best.pod]);
  }
  return victims;
}

/** Returns how far the pod is from meeting the needs. Each resource weighs the same, whatever its unit. */
function distance(pod: Pod, needs: readonly Need[]): number {
  return needs.reduce((total, { resource, amount }) => {
    const open = Number(amount - requestOf(pod, resource));
    return open > 0 ? total + (open / Number(amount)) ** 2 : total;
  }, 0);
}

function hasSmallerRequests(pod: Pod, other: Pod): boolean {
  for (const resource of ['memory', 'cpu']) {
    const [amount, otherAmount] = [requestOf(pod, resource), requestOf(other, resource)];
    if (amount !== otherAmount) return amount < otherAmount;
  }
  return true;
}

function remaining(needs: readonly Need[], victims: readonly Pod[]): readonly Need[] {
  return needs
    .map(({ resource, amount }) => ({
      resource,
      amount: victims.reduce((open, pod) => open - requestOf(pod, resource), amount),
    }))
    .filter(({ amount }) => amount > 0n);
}
