/**
 * Counts the pods of jobs, each exactly once, and writes the status. A finished pod is first recorded in the status
 * (`uncountedTerminatedPods`, or `completedIndexes` for a success of an indexed job), then its tracking finalizer is removed,
 * then it is counted. A crash in between repeats no count.
 */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventType } from '../../../api/client/event-report.ts';
import type { Job, Pod } from '../../../api/kinds/kinds.ts';
import { jobs, pods } from '../../../api/client/resources.ts';
import type { ControllerEnvironment } from '../controller.ts';
import { isPodFinished } from '../pod-state.ts';
import {
  hasValidIndex,
  isIndexed,
  isTracked,
  lastFailedPods,
  matchFailurePolicy,
  outcomeOf,
  parseIndexes,
  TRACKING_FINALIZER,
} from './job-core.ts';
import { withJobCondition, type JobStatus, type PodCounts, type Verdict } from './job-status.ts';

const TOO_MANY = 'Too many succeeded pods running after completion count reached';

/** The parts of the next status of a job. */
interface Progress {
  /** The next status, without what is counted now. `count` changes it. */
  readonly status: JobStatus;
  readonly counts: PodCounts;
  readonly verdict: Verdict | undefined;
}

/** Returns the pods with the tracking finalizer. The controller has decided on the others. */
export function countable(jobPods: readonly Pod[]): Pod[] {
  return jobPods.filter(isTracked);
}

/** Remembers removed finalizers because the informer may lag behind. A restart, which forgets them, loses nothing. */
export class JobTracking {
  readonly #environment: ControllerEnvironment;
  /** The uids of pods whose finalizer was removed. The informer may show it for a while. */
  readonly #released = new Set<string>();

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
  }

  /** Returns the pods as they are after the removals of finalizers so far. */
  view(jobPods: readonly Pod[]): Pod[] {
    return jobPods.map((pod) => {
      const { metadata } = pod;
      if (!this.#released.has(metadata.uid ?? '') || !isTracked(pod)) return pod;
      const finalizers = metadata.finalizers?.filter((name) => name !== TRACKING_FINALIZER) ?? [];
      return { ...pod, metadata: { ...metadata, finalizers } };
    });
  }

  /** Forgets a pod that is gone. */
  forget({ metadata }: Pod): void {
    this.#released.delete(metadata.uid ?? '');
  }

  /** Counts terminated pods, and finishes the job once its last pod is counted. */
  async count(job: Job, jobPods: readonly Pod[], { status, counts, verdict }: Progress): Promise<void> {
    const nowMs = this.#environment.clock.now();
    const setCondition = (type: string, { reason, message }: Verdict): void => {
      status.conditions = withJobCondition(status.conditions, { type, status: 'True', reason, message }, nowMs);
    };
    if (verdict !== undefined) setCondition(verdict.interim, verdict);
    if (isIndexed(job)) {
      status.completedIndexes = counts.completedIndexesText;
      if (job.spec?.backoffLimitPerIndex !== undefined) status.failedIndexes = counts.failedIndexesText;
    }
    const isOver = verdict !== undefined || job.metadata.deletionTimestamp !== undefined;
    const held = isOver ? new Set() : this.#heldPods(job, jobPods, counts);
    const newlyFailed = counts.newlyFailed.filter((pod) => !held.has(pod));
    // Pods that terminate because their job has failed are failures as well.
    if (verdict?.final === 'Failed') newlyFailed.push(...this.#unfinished(job, jobPods));
    const current = await this.#countTerminated(job, jobPods, status, { ...counts, newlyFailed });
    // Pods that the job's policy ignores, and pods that end because the job is over, lose their finalizers and do not count.
    for (const pod of isOver ? jobPods : counts.newlyIgnored.filter((each) => !held.has(each))) await this.release(pod);
    if (verdict === undefined || jobPods.some((pod) => !isPodFinished(pod))) {
      await this.#write(current, status);
      return;
    }
    setCondition(verdict.final, verdict);
    if (verdict.final === 'Complete') status.completionTime = formatTime(nowMs);
    Object.assign(status, { active: 0, ready: 0, terminating: 0 });
    await this.#write(current, status);
    if (verdict.final === 'Complete') {
      if ((status.succeeded ?? 0) > (job.spec?.completions ?? Number.POSITIVE_INFINITY))
        this.event(job, 'Warning', 'TooManySucceededPods', TOO_MANY);
      this.event(job, 'Normal', 'Completed', 'Job completed');
    } else this.event(job, 'Warning', verdict.reason, verdict.message);
  }

  #heldPods(job: Job, jobPods: readonly Pod[], counts: PodCounts): ReadonlySet<unknown> {
    const finished = new Set([...counts.succeededIndexes, ...counts.failedIndexes]);
    return new Set(lastFailedPods(job, countable(jobPods), finished).values());
  }

  #unfinished(job: Job, jobPods: readonly Pod[]): Pod[] {
    return countable(jobPods).filter((pod) => {
      const outcome = outcomeOf(pod, job);
      if ((outcome !== 'active' && outcome !== 'terminating') || !isTracked(pod) || !hasValidIndex(pod, job))
        return false;
      return matchFailurePolicy(job, pod)?.action !== 'Ignore';
    });
  }

  /**
   * Records the pods that terminated in the API, releases them, and adds them to the counters of `status`. Returns the job as
   * it is in the API.
   */
  async #countTerminated(job: Job, jobPods: readonly Pod[], status: JobStatus, counts: PodCounts): Promise<Job> {
    const { uncountedTerminatedPods: uncounted } = status;
    const uids = (written: readonly string[] | undefined, pods: readonly Pod[]): string[] => [
      ...new Set([...(written ?? []), ...pods.map(({ metadata }) => metadata.uid ?? '')]),
    ];
    // The indexes of an indexed job count its successes.
    const succeeded = isIndexed(job) ? [] : uids(uncounted?.succeeded, counts.newlySucceeded);
    const failed = uids(uncounted?.failed, counts.newlyFailed);
    const finished = isIndexed(job) ? counts.newlySucceeded : [];
    if (succeeded.length + failed.length + finished.length === 0) return job;
    status.uncountedTerminatedPods = {
      ...(succeeded.length === 0 ? {} : { succeeded }),
      ...(failed.length === 0 ? {} : { failed }),
    };
    const current = await this.#write(job, status);
    const written = new Set([...succeeded, ...failed, ...finished.map(({ metadata }) => metadata.uid ?? '')]);
    for (const pod of jobPods) if (written.has(pod.metadata.uid ?? '')) await this.release(pod);
    const succeededCount = isIndexed(job)
      ? parseIndexes(status.completedIndexes, job.spec?.completions ?? 0).length
      : (status.succeeded ?? 0) + succeeded.length;
    Object.assign(status, {
      succeeded: succeededCount,
      failed: (status.failed ?? 0) + failed.length,
      uncountedTerminatedPods: {},
    });
    return current;
  }

  async #write(job: Job, status: JobStatus): Promise<Job> {
    const written = Object.fromEntries(
      Object.entries(status).filter(
        ([field, value]) =>
          value !== undefined && !(value === 0 && (field === 'active' || field === 'succeeded' || field === 'failed')),
      ),
    ) as JobStatus;
    if (semanticEqual(written, job.status)) return job;
    return this.#environment.client.update(
      jobs,
      { ...job, status: structuredClone(written) },
      { subresource: 'status' },
    );
  }

  /** Removes the tracking finalizer. */
  async release(pod: Pod): Promise<void> {
    const { namespace = '', name = '', uid, finalizers = [] } = pod.metadata;
    if (!finalizers.includes(TRACKING_FINALIZER)) return;
    await tolerate(
      this.#environment.client.patch(pods, namespace, name, {
        type: 'strategic',
        body: {
          metadata: { uid, '$deleteFromPrimitiveList/finalizers': [TRACKING_FINALIZER] },
        },
      }),
      isNotFound,
    );
    this.#released.add(uid ?? '');
  }

  event(job: Job, type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(job, jobs), type, reason, message);
  }
}
