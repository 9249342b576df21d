/** Evicts pods: counts the disruption in the budget of the pod, sets a condition on the pod, and deletes it. */
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { V1Eviction, V1PodDisruptionBudget } from '@kubernetes/client-node';
import type { Pod } from '../../../../api/kinds/pod-types.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import { invalid } from '../../../../api/meta/field-error.ts';
import { everything, fromLabelSelector } from '../../../../api/meta/selector.ts';
import { everyField } from '../../../../api/meta/field-selector.ts';
import {
  isConflict,
  newBadRequest,
  newErrorWithoutReason,
  newInvalid,
  newStatusError,
} from '../../../../api/meta/status-error.ts';
import type { SubresourceInfo, ResourceInfo } from '../../../../api/schema/schema.ts';
import { matchNamespace, wipeSystemFields } from '../../object-identity.ts';
import type { Body, DeleteOptions, RequestContext, Rest, WriteOptions } from '../../../model/rest.ts';
import { deleteOptionsErrors } from '../../../model/delete-options.ts';
import { atOnce } from '../../../../api/machinery/pausing.ts';
import { deleteEntry } from '../../store-delete.ts';
import { currentEntry, listEntries } from '../../store-read.ts';
import { changeEntry } from '../../store-write.ts';
import type { Store } from '../../store.ts';
import type { FieldManagement } from '../../field-management.ts';
import { type ActionParts, type Target, done, expectedOf, endpointOf, admit } from './pod-actions.ts';

type Eviction = Kind<Pick<V1Eviction, 'deleteOptions'>>;
type Budget = Kind<Pick<V1PodDisruptionBudget, 'spec' | 'status'>>;
type BudgetStatus = NonNullable<Budget['status']>;

const DONE: ReadonlySet<string> = new Set(['Succeeded', 'Failed']);
/** The number of disruptions in progress above which a budget allows no other, as in kube-apiserver (`MaxDisruptedPodSize`). */
const MAX_DISRUPTED = 2000;

/** What an eviction needs beyond what all actions on pods need. */
interface EvictionParts extends ActionParts {
  readonly budgets: Store;
  /** The managed fields of budgets in version v1. */
  readonly budgetFields: FieldManagement;
}

/**
 * The options of writes to a budget's status. kube-apiserver writes it through a client of its own, which owns the fields, and
 * not the client that evicts.
 */
const BUDGET_WRITE = {
  manager: 'kube-apiserver',
  apiVersion: 'policy/v1',
  subresource: 'status',
  resetFields: [],
} as const;

/** Creates the subresource that evicts a pod. A create rejects with a 429 if the budget of the pod allows no disruption now. */
export function createEvictionRest(parts: EvictionParts, info: ResourceInfo, subresource: SubresourceInfo): Rest {
  const expected = { ...expectedOf(parts.schema, 'policy', 'v1', 'Eviction'), alsoVersions: ['v1beta1'] };
  const endpoint = endpointOf(info, 'eviction', { group: 'policy', version: 'v1', kind: 'Eviction' });
  return {
    info,
    subresource,
    async create(context, namespace, name, body: Body, options) {
      const eviction = atOnce(parts.decoder.decodeBody(context, body, expected, options.fieldValidation)) as Eviction;
      matchNamespace(eviction, info, namespace);
      wipeSystemFields(eviction);
      await admit(parts.pods, context, { endpoint, namespace, name, object: eviction, options }, () => {
        if (eviction.metadata.name !== name) throw newBadRequest('name in URL does not match name in Eviction object');
        if (eviction.deleteOptions?.ignoreStoreReadErrorWithClusterBreakingPotential === true) {
          const field = 'deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential';
          const why = 'can not be set for pod eviction, try after removing the option';
          throw newInvalid({ group: 'policy', resource: 'Eviction' }, name, [invalid(field, true, why)]);
        }
      });
      await evict(parts, context, { namespace, name }, eviction, deleteOptionsOf(eviction, options));
      return { status: 201, entry: done() };
    },
  };
}

function deleteOptionsOf(eviction: Eviction, options: WriteOptions): DeleteOptions {
  const given = eviction.deleteOptions ?? {};
  const { dryRun = [] } = given;
  if (options.dryRun && dryRun.length > 0 && !(dryRun.length === 1 && dryRun[0] === 'All'))
    throw newErrorWithoutReason(`Non-matching dry-run options in request and content: [All] and [${dryRun.join(' ')}]`);
  const { uid, resourceVersion } = given.preconditions ?? {};
  return {
    dryRun: options.dryRun || dryRun.length > 0,
    gracePeriodSeconds: given.gracePeriodSeconds,
    propagationPolicy: (given.propagationPolicy ?? '') as DeleteOptions['propagationPolicy'],
    orphanDependents: given.orphanDependents,
    preconditions: {
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    },
  };
}

async function evict(
  parts: EvictionParts,
  context: RequestContext,
  target: Target,
  { deleteOptions = {} }: Eviction,
  options: DeleteOptions,
): Promise<void> {
  const { pods } = parts;
  const entry = currentEntry(pods, target.namespace, target.name);
  const pod: Pod = entry.object;
  const needsNoBudget =
    DONE.has(pod.status?.phase ?? '') ||
    pod.status?.phase === 'Pending' ||
    pod.metadata.deletionTimestamp !== undefined;
  const budget = needsNoBudget ? undefined : await budgetOf(parts, context, pod);
  const isCounted = budget !== undefined && !isUncounted(budget, pod);
  if (isCounted) await takeDisruption(parts, context, { budget, pod, dryRun: options.dryRun });
  const endpoint = endpointOf(pods.info, '', { group: '', version: 'v1', kind: 'Pod' });
  // As in kube-apiserver, the options are validated after the disruption is counted.
  const { dryRun = [], propagationPolicy, orphanDependents } = deleteOptions;
  const errors = deleteOptionsErrors({ dryRun, propagationPolicy, orphanDependents });
  if (errors.length > 0) throw newInvalid({ group: 'meta.k8s.io', resource: 'DeleteOptions' }, '', errors);
  const marked = DONE.has(pod.status?.phase ?? '') ? '' : await markDisrupted(pods, context, target, options);
  await deleteEntry(pods, context, {
    endpoint,
    ...target,
    options:
      marked === '' ? options : { ...options, preconditions: { ...options.preconditions, resourceVersion: marked } },
    optionsObject: { kind: 'DeleteOptions', apiVersion: 'meta.k8s.io/v1' },
    isAdmitted: true,
  });
}

/**
 * Sets the condition `DisruptionTarget` on the pod before the deletion, unless the pod does not meet the preconditions of the
 * client, which the deletion then refuses. Resolves to the resource version that the precondition must now name, or to an empty
 * string if the precondition does not change.
 */
async function markDisrupted(
  store: Store,
  context: RequestContext,
  target: Target,
  { dryRun, preconditions = {} }: DeleteOptions,
): Promise<string> {
  const { uid, resourceVersion } = preconditions;
  let isRefused = false;
  const { entry } = await changeEntry(
    store,
    context,
    {
      endpoint: endpointOf(store.info, 'status', { group: '', version: 'v1', kind: 'Pod' }),
      ...target,
      options: { dryRun, fieldValidation: 'Ignore' },
      optionsObject: {},
      skipAdmission: true,
    },
    {
      creates: false,
      compute(current) {
        const pod: Pod = cloneJson(current ?? { metadata: {} });
        isRefused =
          (uid !== undefined && uid !== pod.metadata.uid) ||
          (resourceVersion !== undefined && resourceVersion !== pod.metadata.resourceVersion);
        if (!isRefused) setDisrupted(pod, store.clock.now());
        return pod;
      },
    },
  );
  return isRefused || resourceVersion === undefined || dryRun ? '' : (entry.object.metadata.resourceVersion ?? '');
}

function setDisrupted(pod: Pod, nowMs: number): void {
  const conditions = pod.status?.conditions ?? [];
  const before = conditions.find(({ type }) => type === 'DisruptionTarget');
  if (before?.status === 'True' && before.reason === 'EvictionByEvictionAPI') return;
  const condition = {
    type: 'DisruptionTarget',
    status: 'True',
    lastProbeTime: null as unknown as string,
    lastTransitionTime: formatTime(nowMs),
    reason: 'EvictionByEvictionAPI',
    message: 'Eviction API: evicting',
  };
  pod.status = { ...pod.status, conditions: [...conditions.filter((one) => one !== before), condition] };
}

/** Resolves to the budget that selects the pod, or to `undefined` if none does. Rejects with a 500 if several do. */
async function budgetOf(parts: EvictionParts, context: RequestContext, pod: Pod): Promise<Budget | undefined> {
  const { entries } = await listEntries(
    parts.budgets,
    context,
    { namespace: pod.metadata.namespace ?? '' },
    {
      labelSelector: everything,
      fieldSelector: everyField,
      resourceVersion: '',
      resourceVersionMatch: '',
      limit: 0,
      continue: '',
    },
  );
  const labels = pod.metadata.labels ?? {};
  const budgets = entries
    .map(({ object }) => object as Budget)
    .filter(({ spec }) => spec?.selector !== undefined && fromLabelSelector(spec.selector as never).matches(labels));
  if (budgets.length > 1) {
    throw newErrorWithoutReason(
      'This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.',
    );
  }
  return budgets[0];
}

const isReady = (pod: Pod): boolean =>
  (pod.status?.conditions ?? []).some(({ type, status }) => type === 'Ready' && status === 'True');

/**
 * Returns whether the pod may be evicted without being counted in the budget. That is so for an unready pod if the policy
 * allows it always, or if enough other pods are healthy.
 */
function isUncounted(budget: Budget, pod: Pod): boolean {
  if (isReady(pod)) return false;
  if (budget.spec?.unhealthyPodEvictionPolicy === 'AlwaysAllow') return true;
  const { currentHealthy = 0, desiredHealthy = 0 } = budget.status ?? {};
  return currentHealthy >= desiredHealthy && desiredHealthy > 0;
}

/**
 * Counts the eviction of the pod in the status of the stored budget. Rejects with the errors of `countDisruption`, and with a
 * 429 instead of a conflict.
 */
async function takeDisruption(
  parts: EvictionParts,
  context: RequestContext,
  { budget, pod, dryRun }: { readonly budget: Budget; readonly pod: Pod; readonly dryRun: boolean },
): Promise<void> {
  const { budgets, budgetFields } = parts;
  const { name = '', namespace = '' } = budget.metadata;
  const options: WriteOptions = { dryRun, fieldValidation: 'Ignore' };
  try {
    await changeEntry(
      budgets,
      context,
      {
        endpoint: endpointOf(budgets.info, 'status', { group: 'policy', version: 'v1', kind: 'PodDisruptionBudget' }),
        namespace,
        name,
        options,
        optionsObject: {},
        skipAdmission: true,
      },
      {
        creates: false,
        compute(current) {
          const object = cloneJson(current ?? { metadata: {} }) as Budget;
          countDisruption(object, pod, budgets.clock.now());
          return budgetFields.update(current, object, BUDGET_WRITE);
        },
      },
    );
  } catch (error) {
    if (!isConflict(error)) throw error;
    throw newStatusError(429, 'TooManyRequests', 'too many concurrent updates of the disruption budget', {
      details: { retryAfterSeconds: 10 },
    });
  }
}

const ALLOWED = 'DisruptionAllowed';

/** Returns why a budget that allows no disruption refuses an eviction. */
function whyRefused(name: string, { conditions, currentHealthy = 0, desiredHealthy = 0 }: BudgetStatus): string {
  const condition = conditions?.find(({ type }) => type === ALLOWED);
  const hasReason = condition?.status === 'False' && condition.message !== '';
  const refusal = `The disruption budget ${name} does not allow evicting pods currently`;
  // The numbers of a failed sync cannot be trusted.
  if (hasReason && condition.reason === 'SyncFailed') return `${refusal} because it failed sync: ${condition.message}`;
  if (currentHealthy <= desiredHealthy)
    return `The disruption budget ${name} needs ${desiredHealthy} healthy pods and has ${currentHealthy} currently`;
  return hasReason ? `${refusal} (${condition.reason}): ${condition.message}` : refusal;
}

/** Sets the condition that the budget allows no more disruptions. */
function setExhausted(status: BudgetStatus, nowMs: number): void {
  const { conditions = [], observedGeneration } = status;
  const before = conditions.find(({ type }) => type === ALLOWED);
  const condition = {
    type: ALLOWED,
    status: 'False',
    ...(observedGeneration === undefined ? {} : { observedGeneration }),
    lastTransitionTime:
      before?.status === 'False' && before.lastTransitionTime !== undefined
        ? before.lastTransitionTime
        : formatTime(nowMs),
    reason: 'InsufficientPods',
    message: '',
  };
  status.conditions =
    before === undefined ? [...conditions, condition] : conditions.map((one) => (one === before ? condition : one));
}

/**
 * Counts the eviction in `budget`. Throws a 429 if the budget allows none, or its controller has not processed its spec, and a
 * 403 if the number of allowed disruptions is negative or too many evictions are in progress.
 */
function countDisruption(budget: Budget, pod: Pod, nowMs: number): void {
  const status = (budget.status ??= {});
  const { name = '' } = budget.metadata;
  const refuse = (message: string, retryAfterSeconds = 0): Error =>
    newStatusError(429, 'TooManyRequests', "Cannot evict pod as it would violate the pod's disruption budget.", {
      details: {
        causes: [{ reason: 'DisruptionBudget', message }],
        ...(retryAfterSeconds === 0 ? {} : { retryAfterSeconds }),
      },
    });
  if ((status.observedGeneration ?? 0) < (budget.metadata.generation ?? 0)) {
    throw refuse(`The disruption budget ${name} is still being processed by the server.`, 10);
  }
  if ((status.disruptionsAllowed ?? 0) < 0)
    throw newStatusError(403, 'Forbidden', 'pdb disruptions allowed is negative');
  if (Object.keys(status.disruptedPods ?? {}).length > MAX_DISRUPTED)
    throw newStatusError(
      403,
      'Forbidden',
      'DisruptedPods map too big - too many evictions not confirmed by PDB controller',
    );
  if ((status.disruptionsAllowed ?? 0) === 0) throw refuse(whyRefused(name, status));
  status.disruptionsAllowed = (status.disruptionsAllowed ?? 0) - 1;
  if (status.disruptionsAllowed === 0) setExhausted(status, nowMs);
  status.disruptedPods = { ...status.disruptedPods, [pod.metadata.name ?? '']: formatTime(nowMs) as never };
}
