/** Counts the pods of a job and decides whether it is finished. Pure. */
import type { V1JobCondition, V1JobStatus } from '@kubernetes/client-node';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Job, Pod, Wire } from '../../../api/kinds/kinds.ts';
import {
  DEFAULT_BACKOFF_LIMIT,
  completionIndexOf,
  exceedsRestarts,
  failuresByIndex,
  formatIndexes,
  hasValidIndex,
  isIndexed,
  isTracked,
  matchFailurePolicy,
  outcomeOf,
  parseIndexes,
  successPolicyMet,
} from './job-core.ts';

/** The status as it is stored. */
export type JobStatus = Wire<V1JobStatus>;
type JobCondition = Wire<V1JobCondition>;

/** What the pods of a job add up to, each counted once. */
export interface PodCounts {
  /** Finished pods that are not yet in the status. */
  readonly newlySucceeded: readonly Pod[];
  readonly newlyFailed: readonly Pod[];
  /** Failed pods that the job's failure policy ignores: only their finalizer is removed. */
  readonly newlyIgnored: readonly Pod[];
  readonly succeeded: number;
  /** Failures that count against the backoff limit. */
  readonly failed: number;
  readonly succeededIndexes: readonly number[];
  readonly failedIndexes: readonly number[];
  readonly completedIndexesText: string;
  readonly failedIndexesText: string;
  /** The message of the first pod failure for which the failure policy demands FailJob. */
  readonly fatal: string | undefined;
}

/** Counts the finished pods of a job: those that `status` has counted already, and the new ones. */
export function countPods(job: Job, pods: readonly Pod[], status: JobStatus): PodCounts {
  const written = new Set([
    ...(status.uncountedTerminatedPods?.succeeded ?? []),
    ...(status.uncountedTerminatedPods?.failed ?? []),
  ]);
  const isNew = (pod: Pod): boolean =>
    isTracked(pod) && !written.has(pod.metadata.uid ?? '') && hasValidIndex(pod, job);
  const completions = job.spec?.completions ?? 0;
  const succeededIndexes = new Set(parseIndexes(status.completedIndexes, completions));
  const failedIndexes = new Set(parseIndexes(status.failedIndexes, completions));
  const newlySucceeded: Pod[] = [];
  const newlyFailed: Pod[] = [];
  const newlyIgnored: Pod[] = [];
  let fatal: string | undefined;
  for (const pod of pods) {
    const outcome = outcomeOf(pod, job);
    const index = completionIndexOf(pod);
    if (outcome === 'succeeded') {
      if (isNew(pod)) newlySucceeded.push(pod);
      if (isIndexed(job) && index !== undefined && index < completions) succeededIndexes.add(index);
    } else if (outcome === 'failed') {
      const match = matchFailurePolicy(job, pod);
      if (match?.action === 'FailJob') fatal ??= match.message;
      if (match?.action === 'FailIndex' && index !== undefined) failedIndexes.add(index);
      if (isNew(pod)) (match?.action === 'Ignore' ? newlyIgnored : newlyFailed).push(pod);
    }
  }
  const perIndex = job.spec?.backoffLimitPerIndex;
  if (perIndex !== undefined)
    for (const [index, { counted }] of failuresByIndex(job, pods)) if (counted > perIndex) failedIndexes.add(index);
  const earlier = (status.succeeded ?? 0) + (status.uncountedTerminatedPods?.succeeded ?? []).length;
  return {
    newlySucceeded,
    newlyFailed,
    newlyIgnored,
    succeeded: isIndexed(job) ? succeededIndexes.size : earlier + newlySucceeded.length,
    failed: (status.failed ?? 0) + (status.uncountedTerminatedPods?.failed ?? []).length + newlyFailed.length,
    succeededIndexes: [...succeededIndexes],
    failedIndexes: [...failedIndexes].filter((index) => !succeededIndexes.has(index)),
    completedIndexesText: formatIndexes(succeededIndexes),
    failedIndexesText: formatIndexes([...failedIndexes].filter((index) => !succeededIndexes.has(index))),
    fatal,
  };
}

/** How a job ends: its condition before its pods have stopped, and its condition after that. */
export interface Verdict {
  readonly interim: 'SuccessCriteriaMet' | 'FailureTarget';
  readonly final: 'Complete' | 'Failed';
  readonly reason: string;
  readonly message: string;
}

const failed = (reason: string, message: string): Verdict => ({
  interim: 'FailureTarget',
  final: 'Failed',
  reason,
  message,
});
const complete = (reason: string, message: string): Verdict => ({
  interim: 'SuccessCriteriaMet',
  final: 'Complete',
  reason,
  message,
});

/** Returns how the job ends, or `undefined` if it continues. A result that the status of the job already shows stays. */
export function computeVerdict(
  job: Job,
  {
    jobPods,
    counts,
    status,
  }: { readonly jobPods: readonly Pod[]; readonly counts: PodCounts; readonly status: JobStatus },
  nowMs: number,
): Verdict | undefined {
  for (const { type, status: state, reason = '', message = '' } of status.conditions ?? []) {
    if (state !== 'True') continue;
    if (type === 'FailureTarget') return failed(reason, message);
    if (type === 'SuccessCriteriaMet') return complete(reason, message);
  }
  if (counts.fatal !== undefined) return failed('PodFailurePolicy', counts.fatal);
  if (counts.failed > (job.spec?.backoffLimit ?? DEFAULT_BACKOFF_LIMIT) || exceedsRestarts(job, jobPods)) {
    return failed('BackoffLimitExceeded', 'Job has reached the specified backoff limit');
  }
  const deadline = job.spec?.activeDeadlineSeconds;
  if (
    deadline !== undefined &&
    job.spec?.suspend !== true &&
    status.startTime !== undefined &&
    nowMs - Date.parse(status.startTime) >= deadline * 1000
  ) {
    return failed('DeadlineExceeded', 'Job was active longer than specified deadline');
  }
  const completions = job.spec?.completions;
  if (isIndexed(job)) {
    const limit = job.spec?.maxFailedIndexes;
    if (limit !== undefined && counts.failedIndexes.length > limit)
      return failed('MaxFailedIndexesExceeded', 'Job has exceeded the specified maximal number of failed indexes');
    if (
      completions !== undefined &&
      counts.failedIndexes.length > 0 &&
      counts.failedIndexes.length + counts.succeededIndexes.length >= completions
    ) {
      return failed('FailedIndexes', 'Job has failed indexes');
    }
    const met = successPolicyMet(job, counts.succeededIndexes);
    if (met !== undefined) return complete('SuccessPolicy', met);
  }
  // The active pods of a suspended job are deleted, so that it waits for none of them.
  const isWaiting = job.spec?.suspend !== true && jobPods.some((pod) => outcomeOf(pod, job) === 'active');
  const reached = completions === undefined ? counts.succeeded > 0 && !isWaiting : counts.succeeded >= completions;
  return reached ? complete('CompletionsReached', 'Reached expected number of succeeded pods') : undefined;
}

/** Sets a condition. One that changes keeps its place in the list; one that is the same already keeps its times. */
export function withJobCondition(
  conditions: readonly JobCondition[] | undefined,
  wanted: Record<'type' | 'status' | 'reason' | 'message', string>,
  nowMs: number,
): JobCondition[] {
  const { type, status, reason, message } = wanted;
  const present = conditions?.find((condition) => condition.type === type);
  if (present?.status === status && present.reason === reason && present.message === message)
    return [...(conditions ?? [])];
  const now = formatTime(nowMs);
  const next = { type, status, lastProbeTime: now, lastTransitionTime: now, reason, message };
  if (present === undefined) return [...(conditions ?? []), next];
  return (conditions ?? []).map((condition) => (condition === present ? next : condition));
}
