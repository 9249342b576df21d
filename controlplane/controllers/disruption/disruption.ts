/** Keeps the status of disruption budgets: how many pods are healthy, how many must be, and how many may be evicted now. */
import type { V1PodDisruptionBudgetStatus } from '@kubernetes/client-node';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { scaledValue } from '../../../api/meta/intstr.ts';
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Pod, PodDisruptionBudget, Wire } from '../../../api/kinds/kinds.ts';
import { podDisruptionBudgets, pods } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { controllerOf } from '../owner-references.ts';
import { isPodReady, isPodTerminating } from '../pod-state.ts';
import { controllerScales, scaledOwners, totalScale } from './controller-scales.ts';
import { runStaleDisruptions } from './stale-disruptions.ts';

type BudgetStatus = Wire<V1PodDisruptionBudgetStatus>;

/** The time after which an eviction counts as failed if its pod still exists. */
const EVICTION_TIMEOUT_MS = 120_000;

interface Expectation {
  readonly expected: number;
  readonly desired: number;
}

/**
 * Computes how many pods a budget expects, and how many of them must be healthy. `scale` returns the number of replicas that
 * the controllers of the pods want in total. Rejects if that is unknown or the budget's percentage is invalid.
 */
export async function computeExpectation(
  budget: PodDisruptionBudget,
  podCount: number,
  scale: () => number | Promise<number>,
): Promise<Expectation> {
  const { maxUnavailable, minAvailable } = budget.spec ?? {};
  if (maxUnavailable !== undefined) {
    const expected = await scale();
    return { expected, desired: Math.max(0, expected - scaledValue(maxUnavailable, expected, { roundUp: true })) };
  }
  if (typeof minAvailable === 'number') return { expected: podCount, desired: minAvailable };
  if (minAvailable === undefined) return { expected: 0, desired: 0 };
  const expected = await scale();
  return { expected, desired: scaledValue(minAvailable, expected, { roundUp: true }) };
}

/** Computes the status of a budget. Evictions that did not happen within two minutes no longer count. */
export function computeBudgetStatus(
  budget: PodDisruptionBudget,
  members: readonly Pod[],
  expectation: Expectation,
  nowMs: number,
): BudgetStatus {
  const disrupted: Record<string, string> = {};
  for (const [name, at] of Object.entries(budget.status?.disruptedPods ?? {})) {
    const pod = members.find((other) => other.metadata.name === name);
    if (pod !== undefined && !isPodTerminating(pod) && Date.parse(at) + EVICTION_TIMEOUT_MS > nowMs)
      disrupted[name] = at;
  }
  const healthy = members.filter(
    (pod) => isPodReady(pod) && !isPodTerminating(pod) && ownMember(disrupted, pod.metadata.name ?? '') === undefined,
  ).length;
  const allowed = expectation.expected > 0 ? Math.max(0, healthy - expectation.desired) : 0;
  const reason = allowed > 0 ? 'SufficientPods' : 'InsufficientPods';
  return withAllowedCondition(
    budget,
    nowMs,
    { status: allowed > 0 ? 'True' : 'False', reason, message: '' },
    {
      ...(Object.keys(disrupted).length === 0 ? {} : { disruptedPods: disrupted }),
      disruptionsAllowed: allowed,
      currentHealthy: healthy,
      desiredHealthy: expectation.desired,
      expectedPods: expectation.expected,
      observedGeneration: budget.metadata.generation ?? 0,
    },
  );
}

/** Returns the pods that were evicted so long ago that the eviction counts as failed. */
function notDeleted(budget: PodDisruptionBudget, members: readonly Pod[], nowMs: number): Pod[] {
  const evicted = budget.status?.disruptedPods;
  return members.filter((pod) => {
    const at = ownMember(evicted, pod.metadata.name ?? '');
    return at !== undefined && !isPodTerminating(pod) && Date.parse(at) + EVICTION_TIMEOUT_MS <= nowMs;
  });
}

const unmanagedText = (selector: NonNullable<PodDisruptionBudget['spec']>['selector']): string =>
  `Pods selected by this PodDisruptionBudget (selector: ${goText(selector)}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.`;

/** Returns the form in which kube-controller-manager prints a selector. */
function goText(selector: NonNullable<PodDisruptionBudget['spec']>['selector']): string {
  if (selector === undefined) return 'nil';
  const labels = Object.entries(selector.matchLabels ?? {})
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}: ${value},`);
  const expressions = (selector.matchExpressions ?? []).map(
    ({ key, operator, values = [] }) =>
      `LabelSelectorRequirement{Key:${key},Operator:${operator},Values:[${values.join(' ')}],},`,
  );
  return `&LabelSelector{MatchLabels:map[string]string{${labels.join('')}},MatchExpressions:[]LabelSelectorRequirement{${expressions.join('')}},}`;
}

/** Returns the status with the condition DisruptionAllowed, which keeps its time while its status is the same. */
function withAllowedCondition(
  budget: PodDisruptionBudget,
  nowMs: number,
  condition: { status: string; reason: string; message: string },
  status: BudgetStatus,
): BudgetStatus {
  const former = budget.status?.conditions?.find(({ type }) => type === 'DisruptionAllowed');
  const lastTransitionTime = former?.status === condition.status ? former.lastTransitionTime : formatTime(nowMs);
  const others = (budget.status?.conditions ?? []).filter(({ type }) => type !== 'DisruptionAllowed');
  return {
    ...status,
    conditions: [
      ...others,
      {
        type: 'DisruptionAllowed',
        ...condition,
        lastTransitionTime,
        observedGeneration: budget.metadata.generation ?? 0,
      },
    ],
  };
}

/** Returns the status of a budget; it allows no disruption, with an event, if the expectation cannot be computed. */
async function budgetStatus(
  { clock, recorder }: ControllerEnvironment,
  budget: PodDisruptionBudget,
  members: readonly Pod[],
  scale: () => Promise<number>,
): Promise<BudgetStatus> {
  try {
    const expectation = await computeExpectation(budget, members.length, scale);
    return computeBudgetStatus(budget, members, expectation, clock.now());
  } catch (error) {
    const message = (error as Error).message;
    recorder.event(
      referenceTo(budget, podDisruptionBudgets),
      'Warning',
      'CalculateExpectedPodCountFailed',
      `Failed to calculate the number of expected pods: ${message}`,
    );
    const none: BudgetStatus = {
      currentHealthy: 0,
      desiredHealthy: 0,
      expectedPods: 0,
      ...budget.status,
      disruptionsAllowed: 0,
      observedGeneration: budget.metadata.generation ?? 0,
    };
    return withAllowedCondition(budget, clock.now(), { status: 'False', reason: 'SyncFailed', message }, none);
  }
}

/** Keeps the status of all budgets, and takes back conditions of disruptions that did not happen. */
export const runDisruption: RunController = async (environment, signal) => {
  await Promise.all([runBudgets(environment, signal), runStaleDisruptions(environment, signal)]);
};

const runBudgets: RunController = (environment, signal) => {
  const { client, clock, informers, recorder } = environment;
  const budgets = informers.for(podDisruptionBudgets);
  const podCache = informers.for(pods);
  const owners = scaledOwners(informers);
  const scaleOf = controllerScales(environment, owners);
  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const budget = budgets.get(namespace, name);
      if (budget === undefined) return;
      const selector = fromLabelSelector(budget.spec?.selector);
      const members = podCache.list(namespace).filter((pod) => selector.matches(pod.metadata.labels));
      const reference = referenceTo(budget, podDisruptionBudgets);
      if (members.length === 0) recorder.event(reference, 'Normal', 'NoPods', 'No matching pods found');
      const scale = async (): Promise<number> => {
        const total = await totalScale(members, scaleOf);
        if (members.some((pod) => controllerOf(pod) === undefined))
          recorder.event(reference, 'Warning', 'UnmanagedPods', unmanagedText(budget.spec?.selector));
        return total;
      };
      const status = await budgetStatus(environment, budget, members, scale);
      for (const pod of notDeleted(budget, members, clock.now())) {
        // As in kube-controller-manager, the message names the namespace in place of the budget.
        const message = `Pod was expected by PDB ${namespace}/${namespace} to be deleted but it wasn't`;
        recorder.event(referenceTo(pod, pods), 'Warning', 'NotDeleted', message);
      }
      for (const at of Object.values(status.disruptedPods ?? {}))
        loop.queue.addAfter(key, Math.max(1000, Date.parse(at) + EVICTION_TIMEOUT_MS - clock.now()));
      if (!semanticEqual(status, budget.status))
        await client.update(podDisruptionBudgets, { ...budget, status }, { subresource: 'status' });
    },
  });
  const podChanged = (pod: Pod): void => {
    const { namespace = '', name = '', labels } = pod.metadata;
    const matching = budgets.list(namespace).filter(({ spec }) => fromLabelSelector(spec?.selector).matches(labels));
    matching.forEach(loop.enqueue);
    const [chosen] = matching;
    if (chosen === undefined || matching.length === 1) return;
    const message = `Pod "${namespace}"/"${name}" matches multiple PodDisruptionBudgets.  Chose "${chosen.metadata.name}" arbitrarily.`;
    recorder.event(referenceTo(pod, pods), 'Warning', 'MultiplePodDisruptionBudgets', message);
  };
  loop.follow(budgets);
  podCache.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podChanged });
  const scaled = (namespace: string): void => budgets.list(namespace).forEach(loop.enqueue);
  for (const cache of owners) {
    cache.addHandler({
      update: (previous, owner) =>
        previous.spec?.replicas === owner.spec?.replicas ? undefined : scaled(owner.metadata.namespace ?? ''),
    });
  }
  return loop.run(signal, budgets, podCache, ...owners);
};
