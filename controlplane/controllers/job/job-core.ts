/** Decides which pods of a job count, whether and why the job is finished, and how many pods it needs. Pure. */
import type { V1PodFailurePolicyRule } from '@kubernetes/client-node';
import type { Job, Pod, Wire } from '../../../api/kinds/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { isPodTerminating, podCondition } from '../pod-state.ts';
import { finishTime } from './job-back-off.ts';

/** The `backoffLimit` of a job that states none, as the API sets it. */
export const DEFAULT_BACKOFF_LIMIT = 6;

/** The annotation and label of a pod with its index. */
export const COMPLETION_INDEX = 'batch.kubernetes.io/job-completion-index';
/** The finalizer that keeps a pod until its job has counted it. */
export const TRACKING_FINALIZER = 'batch.kubernetes.io/job-tracking';

/** What a rule of the pod failure policy does. */
type FailureAction = 'FailJob' | 'FailIndex' | 'Ignore' | 'Count';

/** The action of the first rule that matches a failed pod. */
interface PolicyMatch {
  readonly action: FailureAction;
  readonly message: string;
}

/** The annotation with how many failures of the index were counted before the pod was created. */
export const INDEX_FAILURES = 'batch.kubernetes.io/job-index-failure-count';
/** The annotation with how many failures of the index the failure policy had ignored before the pod was created. */
export const INDEX_IGNORED_FAILURES = 'batch.kubernetes.io/job-index-ignored-failure-count';

/** Whether each pod has an index and each index must succeed once. */
export function isIndexed(job: Job): boolean {
  return job.spec?.completionMode === 'Indexed';
}

/** Returns the index in the annotation of the pod; `undefined` if it is missing or not a number. */
export function completionIndexOf(pod: Pod): number | undefined {
  const text = pod.metadata.annotations?.[COMPLETION_INDEX] ?? '';
  return /^[0-9]+$/.test(text) ? Number(text) : undefined;
}

/** Whether the pod has the tracking finalizer: its job has not counted it yet. */
export function isTracked(pod: Pod): boolean {
  return (pod.metadata.finalizers ?? []).includes(TRACKING_FINALIZER);
}

/** Whether the pod's index is one of the job's, be it completed or not. True for jobs without indexes. */
export function hasValidIndex(pod: Pod, job: Job): boolean {
  if (!isIndexed(job)) return true;
  const index = completionIndexOf(pod);
  return index !== undefined && index < (job.spec?.completions ?? 0);
}

/** Returns the state of a pod for its job. A `terminating` pod is replaced only once it has failed. */
export function outcomeOf(pod: Pod, job: Job): 'active' | 'terminating' | 'succeeded' | 'failed' {
  if (pod.status?.phase === 'Succeeded') return 'succeeded';
  if (pod.status?.phase === 'Failed') return 'failed';
  if (!isPodTerminating(pod)) return 'active';
  return replacesOnlyFailed(job) ? 'terminating' : 'failed';
}

/** Whether a terminating pod is replaced only once it has failed. */
export function replacesOnlyFailed(job: Job): boolean {
  return job.spec?.podReplacementPolicy === 'Failed' || job.spec?.podFailurePolicy !== undefined;
}

/** Returns the action of the first rule of the job's failure policy that matches a failed pod, or `undefined` if none does. */
export function matchFailurePolicy(job: Job, pod: Pod): PolicyMatch | undefined {
  const rules = job.spec?.podFailurePolicy?.rules ?? [];
  for (const [at, rule] of rules.entries()) {
    const text = onExitCodes(rule, pod, at) ?? onConditions(rule, pod, at);
    if (text !== undefined) return { action: rule.action as FailureAction, message: text };
  }
  return undefined;
}

function onExitCodes(rule: Wire<V1PodFailurePolicyRule>, pod: Pod, index: number): string | undefined {
  const { onExitCodes: wanted } = rule;
  if (wanted === undefined) return undefined;
  const statuses = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])];
  for (const { name, state } of statuses) {
    const code = state?.terminated?.exitCode;
    if (code === undefined || code === 0 || (wanted.containerName !== undefined && wanted.containerName !== name))
      continue;
    if (wanted.values.includes(code) !== (wanted.operator === 'In')) continue;
    return `Container ${name} for pod ${pod.metadata.namespace}/${pod.metadata.name} failed with exit code ${code} matching ${rule.action} rule at index ${index}`;
  }
  return undefined;
}

function onConditions(rule: Wire<V1PodFailurePolicyRule>, pod: Pod, index: number): string | undefined {
  for (const { type, status = 'True' } of rule.onPodConditions ?? []) {
    if (podCondition(pod, type)?.status !== status) continue;
    return `Pod ${pod.metadata.namespace}/${pod.metadata.name} has condition ${type} matching ${rule.action} rule at index ${index}`;
  }
  return undefined;
}

/** The failures of one index so far. */
export interface IndexFailures {
  readonly counted: number;
  readonly ignored: number;
  /** The time of the last failure; 0 if there is none. */
  readonly lastMs: number;
}

/**
 * Returns the failures of each index of a job with a back-off limit per index. A pod carries the number of failures before it,
 * so that failed pods that are gone still count.
 */
export function failuresByIndex(job: Job, pods: readonly Pod[]): ReadonlyMap<number, IndexFailures> {
  const failures = new Map<number, IndexFailures>();
  const failedPods = new Map<number, number>();
  for (const pod of pods) {
    const index = completionIndexOf(pod);
    if (index === undefined) continue;
    const hasFailed = outcomeOf(pod, job) === 'failed';
    const isIgnored = hasFailed && matchFailurePolicy(job, pod)?.action === 'Ignore';
    const before = failures.get(index) ?? { counted: 0, ignored: 0, lastMs: 0 };
    const existing = (failedPods.get(index) ?? 0) + (hasFailed && !isIgnored ? 1 : 0);
    failedPods.set(index, existing);
    const counted = failuresBefore(pod, INDEX_FAILURES) + (hasFailed && !isIgnored ? 1 : 0);
    const ignored = failuresBefore(pod, INDEX_IGNORED_FAILURES) + (isIgnored ? 1 : 0);
    failures.set(index, {
      counted: Math.max(before.counted, counted, existing),
      ignored: Math.max(before.ignored, ignored),
      lastMs: Math.max(before.lastMs, hasFailed ? finishTime(pod) : 0),
    });
  }
  return failures;
}

/**
 * For a job with a back-off limit per index, returns the last tracked failed pod of each unfinished index without active pods.
 */
export function lastFailedPods(
  job: Job,
  pods: readonly Pod[],
  finished: ReadonlySet<number>,
): ReadonlyMap<number, Pod> {
  const last = new Map<number, Pod>();
  if (job.spec?.backoffLimitPerIndex === undefined) return last;
  const settled = new Set(finished);
  for (const pod of pods) if (outcomeOf(pod, job) === 'active') settled.add(completionIndexOf(pod) ?? -1);
  const failures = (pod: Pod): number =>
    failuresBefore(pod, INDEX_FAILURES) + failuresBefore(pod, INDEX_IGNORED_FAILURES);
  for (const pod of pods) {
    const index = completionIndexOf(pod);
    if (index === undefined || !hasValidIndex(pod, job) || settled.has(index)) continue;
    if (outcomeOf(pod, job) !== 'failed' || !isTracked(pod)) continue;
    const other = last.get(index);
    if (other === undefined || (failures(other) <= failures(pod) && finishTime(other) <= finishTime(pod)))
      last.set(index, pod);
  }
  return last;
}

function failuresBefore(pod: Pod, annotation: string): number {
  const text = ownMember(pod.metadata.annotations, annotation) ?? '';
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : 0;
}

/** Parses indexes such as `0,2-4`. Those at or beyond `completions` are omitted. */
export function parseIndexes(text: string | undefined, completions: number): number[] {
  const indexes: number[] = [];
  for (const part of (text ?? '').split(',')) {
    const match = /^([0-9]+)(?:-([0-9]+))?$/.exec(part.trim());
    if (match === null) continue;
    const first = Number(match[1]);
    for (let index = first; index <= Number(match[2] ?? first) && index < completions; index++) indexes.push(index);
  }
  return indexes;
}

/** Returns the sorted form of the status, such as `1,3-5,7`. */
export function formatIndexes(indexes: Iterable<number>): string {
  const sorted = [...new Set(indexes)].toSorted((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length; at++) {
    const first = sorted[at] ?? 0;
    let last = first;
    while (sorted[at + 1] === last + 1) last = sorted[++at] ?? last;
    parts.push(first === last ? String(first) : last === first + 1 ? `${first},${last}` : `${first}-${last}`);
  }
  return parts.join(',');
}

/** Returns at most `count` indexes that are not taken, the lowest first. */
export function missingIndexes(completions: number, taken: ReadonlySet<number>, count: number): number[] {
  const missing: number[] = [];
  for (let index = 0; index < completions && missing.length < count; index++)
    if (!taken.has(index)) missing.push(index);
  return missing;
}

/**
 * Returns the active pods that an indexed job cannot use: pods without an index of the job, and all pods of an index except the
 * last one in the order of `compare`, which is the one to keep longest.
 */
export function unusablePods(job: Job, active: readonly Pod[], compare: (a: Pod, b: Pod) => number): Pod[] {
  if (!isIndexed(job)) return [];
  const occupied = new Set<number | undefined>();
  return active
    .toSorted((a, b) => compare(b, a))
    .filter((pod) => {
      const index = completionIndexOf(pod);
      const isUnusable = !hasValidIndex(pod, job) || occupied.has(index);
      occupied.add(index);
      return isUnusable;
    });
}

/**
 * Returns the number of pods that should run at the same time. -1 means that the running pods may finish and no pod is created,
 * after the first success of a job without `completions`.
 */
export function wantedActive(
  job: Job,
  counts: { readonly succeeded: number; readonly finishedIndexes: number },
): number {
  const parallelism = job.spec?.parallelism ?? 1;
  if (job.spec?.suspend === true) return 0;
  const completions = job.spec?.completions;
  if (completions === undefined) return counts.succeeded > 0 ? -1 : parallelism;
  const done = isIndexed(job) ? counts.finishedIndexes : counts.succeeded;
  return Math.max(0, Math.min(parallelism, completions - done));
}

/**
 * Whether the containers of a job with restartPolicy OnFailure have used up its backoff limit: they have restarted that many
 * times, or once with a limit of 0. Only pods that are pending or running count.
 */
export function exceedsRestarts(job: Job, pods: readonly Pod[]): boolean {
  if (job.spec?.template.spec?.restartPolicy !== 'OnFailure') return false;
  let restarts = 0;
  for (const pod of pods) {
    if (pod.status?.phase !== 'Running' && pod.status?.phase !== 'Pending') continue;
    for (const { restartCount } of [
      ...(pod.status.initContainerStatuses ?? []),
      ...(pod.status.containerStatuses ?? []),
    ])
      restarts += restartCount;
  }
  const limit = job.spec.backoffLimit ?? DEFAULT_BACKOFF_LIMIT;
  return limit === 0 ? restarts > 0 : restarts >= limit;
}

/** Returns the message of the first rule of the success policy that the succeeded indexes fulfil, or `undefined`. */
export function successPolicyMet(job: Job, succeeded: readonly number[]): string | undefined {
  const done = new Set(succeeded);
  for (const [at, rule] of (job.spec?.successPolicy?.rules ?? []).entries()) {
    const indexes =
      rule.succeededIndexes === undefined ? undefined : parseIndexes(rule.succeededIndexes, job.spec?.completions ?? 0);
    const matching = indexes === undefined ? done.size : indexes.filter((index) => done.has(index)).length;
    const needed = rule.succeededCount ?? indexes?.length ?? Number.POSITIVE_INFINITY;
    if (matching >= needed) return `Matched rules at index ${at}`;
  }
  return undefined;
}
