/**
 * Jobs: runs as many pods as parallelism and completions require, and counts each exactly once. A finished pod is first
 * recorded in the status (`uncountedTerminatedPods`), then its tracking finalizer is removed, then it is counted. A crash in
 * between repeats no count.
 */
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/machinery/event-recorder.ts';
import type { EventType } from '../../../api/machinery/event-report.ts';
import type { Informer } from '../../../api/machinery/informer.ts';
import type { Job, Pod } from '../../../api/machinery/kinds.ts';
import { jobs, pods } from '../../../api/machinery/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, controllerOf, indexByController, ownerKey } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { inGrowingBatches, isNamespaceTerminating, PodControl } from '../pod-control.ts';
import { compareForDeletion, isPodReady } from '../pod-state.ts';
import {
  backoffMs,
  completionIndexOf,
  failuresByIndex,
  finishTime,
  isIndexed,
  missingIndexes,
  outcomeOf,
  parseIndexes,
  replacesOnlyFailed,
  TRACKING_FINALIZER,
  wantedActive,
} from './job-core.ts';
import { podForJob } from './job-pods.ts';
import {
  computeVerdict,
  countPods,
  withJobCondition,
  type JobStatus,
  type PodCounts,
  type Verdict,
} from './job-status.ts';

const MANAGED_BY_US = 'kubernetes.io/job-controller';

export const runJobs: RunController = (environment, signal) => new JobController(environment).run(signal);

class JobController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #jobs: Informer<Job>;
  readonly #pods: Informer<Pod>;
  readonly #pending: PendingWrites<Pod>;
  readonly #podControl: PodControl<Job>;
  /** The uids of pods that were deleted because their job did not want them: they are no failures of their index. */
  readonly #uncounted = new Set<string>();
  /** The number of failures since the last success, and the time of the last failure. */
  readonly #failures = new Map<string, { readonly count: number; readonly lastMs: number }>();

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentJobSyncs,
      baseDelayMs: 1000,
      maxDelayMs: 60_000,
      reconcile: (key) => this.#reconcile(key),
    });
    this.#jobs = environment.informers.for(jobs);
    this.#pods = environment.informers.for(pods);
    this.#pending = new PendingWrites(this.#pods, environment.clock);
    this.#podControl = new PodControl(environment, jobs);
    indexByController(this.#pods);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#jobs);
    const podChanged = (pod: Pod): void => {
      const key = ownerKey(pod, jobs);
      if (key !== undefined) this.#loop.queue.add(key);
      else if (controllerOf(pod) === undefined) {
        for (const job of this.#jobs.list(pod.metadata.namespace ?? '')) {
          if (fromLabelSelector(job.spec?.selector).matches(pod.metadata.labels)) this.#loop.enqueue(job);
        }
      }
      this.#freeOrphan(pod);
    };
    const podDeleted = (pod: Pod): void => {
      this.#uncounted.delete(pod.metadata.uid ?? '');
      podChanged(pod);
    };
    this.#pods.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podDeleted });
    return this.#loop.run(signal, this.#jobs, this.#pods);
  }

  /** Pods that finish after their job was deleted would keep their finalizer for ever. */
  #freeOrphan(pod: Pod): void {
    if (!(pod.metadata.finalizers ?? []).includes(TRACKING_FINALIZER) || !this.#jobs.hasSynced) return;
    const key = ownerKey(pod, jobs);
    const { namespace, name } = splitKey(key ?? '/');
    const owner = key === undefined ? undefined : this.#jobs.get(namespace, name);
    if (owner?.metadata.uid === controllerOf(pod)?.uid && owner !== undefined) return;
    this.#loop.queue.add(`pod:${pod.metadata.namespace}/${pod.metadata.name}`);
  }

  async #reconcile(key: string): Promise<void> {
    if (key.startsWith('pod:')) return this.#freePod(key.slice(4));
    const { namespace, name } = splitKey(key);
    const job = this.#jobs.get(namespace, name);
    if (job === undefined) {
      this.#pending.forget(key);
      this.#failures.delete(key);
      return;
    }
    if ((job.spec?.managedBy ?? MANAGED_BY_US) !== MANAGED_BY_US) return;
    if (
      job.status?.conditions?.some(
        ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
      ) === true
    )
      return;
    const own = await claim({
      client: this.#environment.client,
      owner: job,
      ownerResource: jobs,
      resource: pods,
      informer: this.#pods,
      selector: fromLabelSelector(job.spec?.selector),
      finalizers: [TRACKING_FINALIZER],
      onWritten: (pod) => this.#pending.wrote(key, pod),
    });
    await this.#sync(key, job, own);
  }

  async #freePod(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const pod = this.#pods.get(namespace, name);
    const owner = pod === undefined ? undefined : this.#jobs.get(namespace, controllerOf(pod)?.name ?? '');
    if (pod !== undefined && (owner === undefined || owner.metadata.uid !== controllerOf(pod)?.uid))
      await this.#removeFinalizer(pod);
  }

  async #sync(key: string, job: Job, own: readonly Pod[]): Promise<void> {
    const { clock } = this.#environment;
    const nowMs = clock.now();
    const status: JobStatus = structuredClone(job.status ?? {});
    status.uncountedTerminatedPods ??= {};
    const suspended = job.spec?.suspend === true;
    if (status.startTime === undefined && !suspended) {
      status.startTime = formatTime(nowMs);
      const limit = job.spec?.activeDeadlineSeconds;
      if (limit !== undefined) this.#loop.queue.addAfter(key, limit * 1000 + 50);
    }
    const counts = countPods(job, this.#countable(own), status);
    this.#noteFailures(key, own, counts, nowMs);
    const verdict = computeVerdict(job, own, counts, status, nowMs);
    const active = own.filter((pod) => outcomeOf(pod, job) === 'active');
    let failure: unknown;
    if (verdict !== undefined) failure = await this.#deletePods(key, job, active);
    else if (suspended && active.length > 0) failure = await this.#deleteUncounted(key, job, active);
    else if (this.#pending.settled(key) && job.metadata.deletionTimestamp === undefined)
      failure = await this.#manage(key, job, own, active, counts);
    if (verdict === undefined) this.#noteSuspension(job, status, suspended, nowMs);
    const left = verdict === undefined && !suspended ? own.filter((pod) => outcomeOf(pod, job) === 'active') : [];
    Object.assign(status, { active: left.length, ready: left.filter(isPodReady).length });
    status.terminating = own.filter(
      (pod) =>
        pod.metadata.deletionTimestamp !== undefined &&
        pod.status?.phase !== 'Succeeded' &&
        pod.status?.phase !== 'Failed',
    ).length;
    await this.#count(job, own, status, counts, verdict);
    if (failure !== undefined && !isNamespaceTerminating(failure)) throw failure;
  }

  #noteFailures(key: string, own: readonly Pod[], counts: PodCounts, nowMs: number): void {
    if (counts.newlyFailed.length === 0 && counts.newlySucceeded.length === 0) return;
    const before = this.#failures.get(key)?.count ?? 0;
    const lastMs = Math.max(0, ...counts.newlyFailed.map((pod) => finishTime(pod, nowMs)));
    const seen = counts.newlyFailed.length;
    if (counts.newlySucceeded.length > 0 && seen === 0) this.#failures.delete(key);
    else if (own.length > 0) this.#failures.set(key, { count: before + seen, lastMs });
  }

  async #manage(
    key: string,
    job: Job,
    own: readonly Pod[],
    active: readonly Pod[],
    counts: PodCounts,
  ): Promise<unknown> {
    const { clock } = this.#environment;
    const wanted = wantedActive(job, {
      succeeded: counts.succeeded,
      finishedIndexes: counts.succeededIndexes.length + counts.failedIndexes.length,
    });
    if (wanted < 0) return undefined;
    if (active.length > wanted) {
      const surplus = active
        .toSorted((a, b) => compareForDeletion(a, b, () => 0, clock.now()))
        .slice(0, active.length - wanted);
      return this.#deleteUncounted(key, job, surplus);
    }
    const terminating = replacesOnlyFailed(job) ? own.filter((pod) => outcomeOf(pod, job) === 'terminating').length : 0;
    const missing = wanted - active.length - terminating;
    if (missing <= 0) return undefined;
    const free = isIndexed(job) ? this.#freeIndexes(job, own, counts, missing) : undefined;
    if (free !== undefined && job.spec?.backoffLimitPerIndex !== undefined)
      return this.#createIndependently(key, job, own, free);
    const failures = this.#failures.get(key);
    if (failures !== undefined && job.spec?.template.spec?.restartPolicy !== 'OnFailure') {
      const waitMs = failures.lastMs + backoffMs(failures.count) - clock.now();
      if (waitMs > 0) {
        this.#loop.queue.addAfter(key, waitMs);
        return undefined;
      }
    }
    return this.#create(key, job, free?.length ?? missing, (at) => podForJob(job, free?.[at]));
  }

  /** The failures of an index delay its own next pod, and not those of other indexes. */
  async #createIndependently(key: string, job: Job, own: readonly Pod[], free: readonly number[]): Promise<unknown> {
    const nowMs = this.#environment.clock.now();
    const failures = failuresByIndex(job, this.#countable(own), nowMs);
    const waitMs = (index: number): number => {
      const { counted, ignored, lastMs } = failures.get(index) ?? { counted: 0, ignored: 0, lastMs: 0 };
      return lastMs + backoffMs(counted + ignored) - nowMs;
    };
    const due = free.filter((index) => waitMs(index) <= 0);
    const nextMs = Math.min(...free.map(waitMs).filter((ms) => ms > 0));
    if (Number.isFinite(nextMs)) this.#loop.queue.addAfter(key, nextMs);
    return this.#create(key, job, due.length, (at) => {
      const index = due[at];
      return podForJob(job, index, failures.get(index ?? -1) ?? { counted: 0, ignored: 0 });
    });
  }

  async #create(key: string, job: Job, count: number, podOf: (at: number) => Pod): Promise<unknown> {
    const { error } = await inGrowingBatches(count, async (at) => {
      this.#pending.wrote(key, await this.#podControl.create(job, podOf(at)));
    });
    return error;
  }

  #freeIndexes(job: Job, own: readonly Pod[], counts: PodCounts, missing: number): number[] {
    const taken = new Set([...counts.succeededIndexes, ...counts.failedIndexes]);
    for (const pod of own) {
      const index = completionIndexOf(pod);
      const outcome = outcomeOf(pod, job);
      if (index !== undefined && (outcome === 'active' || outcome === 'terminating')) taken.add(index);
    }
    return missingIndexes(job.spec?.completions ?? 0, taken, missing);
  }

  #countable(own: readonly Pod[]): Pod[] {
    return own.filter(({ metadata }) => !this.#uncounted.has(metadata.uid ?? ''));
  }

  /** Deletes pods that the job does not want now. Without their finalizer, they do not count as failures. */
  async #deleteUncounted(key: string, job: Job, surplus: readonly Pod[]): Promise<unknown> {
    const results = await Promise.allSettled(surplus.map((pod) => this.#removeFinalizer(pod)));
    const error = results.find((result) => result.status === 'rejected')?.reason as unknown;
    const released = surplus.filter((_, at) => results[at]?.status === 'fulfilled');
    for (const { metadata } of released) this.#uncounted.add(metadata.uid ?? '');
    return (await this.#deletePods(key, job, released)) ?? error;
  }

  async #deletePods(key: string, job: Job, surplus: readonly Pod[]): Promise<unknown> {
    const results = await Promise.allSettled(
      surplus.map(async (pod) => {
        await this.#podControl.delete(job, pod);
        this.#pending.deleted(key, pod);
      }),
    );
    return results.find((result) => result.status === 'rejected')?.reason as unknown;
  }

  #noteSuspension(job: Job, status: JobStatus, suspended: boolean, nowMs: number): void {
    const before = status.conditions?.find(({ type }) => type === 'Suspended')?.status;
    if (suspended && before !== 'True') {
      status.conditions = withJobCondition(
        status.conditions,
        'Suspended',
        'True',
        'JobSuspended',
        'Job suspended',
        nowMs,
      );
      delete status.startTime;
      this.#event(job, 'Normal', 'Suspended', 'Job suspended');
    } else if (!suspended && before === 'True') {
      status.conditions = withJobCondition(status.conditions, 'Suspended', 'False', 'JobResumed', 'Job resumed', nowMs);
      status.startTime = formatTime(nowMs);
      this.#event(job, 'Normal', 'Resumed', 'Job resumed');
    }
  }

  /**
   * Counts terminated pods in three steps, so that none is counted twice or lost: writes their uids to the status, removes
   * their finalizers, adds them to the counters. Finishes the job once its last pod is counted.
   */
  async #count(
    job: Job,
    own: readonly Pod[],
    status: JobStatus,
    counts: PodCounts,
    verdict: Verdict | undefined,
  ): Promise<void> {
    const nowMs = this.#environment.clock.now();
    const setCondition = (type: string, { reason, message }: Verdict): void => {
      status.conditions = withJobCondition(status.conditions, type, 'True', reason, message, nowMs);
    };
    if (verdict !== undefined) setCondition(verdict.interim, verdict);
    if (isIndexed(job)) {
      status.completedIndexes = counts.completedIndexesText;
      if (job.spec?.backoffLimitPerIndex !== undefined) status.failedIndexes = counts.failedIndexesText;
    }
    const current = await this.#countTerminated(job, own, status, counts);
    // Pods that the job's policy ignores, and pods that end because the job is over, are not counted; their finalizers go.
    for (const pod of counts.newlyIgnored) await this.#removeFinalizer(pod);
    if (verdict === undefined) {
      await this.#write(current, status);
      return;
    }
    for (const pod of own) if (outcomeOf(pod, job) === 'terminating') await this.#removeFinalizer(pod);
    const isRunning = (pod: Pod): boolean =>
      outcomeOf(pod, job) === 'active' ||
      (pod.metadata.deletionTimestamp !== undefined && pod.status?.phase === 'Running');
    if (own.some(isRunning)) {
      await this.#write(current, status);
      return;
    }
    setCondition(verdict.final, verdict);
    if (verdict.final === 'Complete') status.completionTime = formatTime(nowMs);
    Object.assign(status, { active: 0, ready: 0, terminating: 0 });
    await this.#write(current, status);
    if (verdict.final === 'Complete') this.#event(job, 'Normal', 'Completed', 'Job completed');
    else this.#event(job, 'Warning', verdict.reason, verdict.message);
  }

  /** Adds pods that terminated to the counters of `status`. Returns the job as it is after the first of the writes. */
  async #countTerminated(job: Job, own: readonly Pod[], status: JobStatus, counts: PodCounts): Promise<Job> {
    const { uncountedTerminatedPods: uncounted } = status;
    const uids = (written: readonly string[] | undefined, pods: readonly Pod[]): string[] => [
      ...new Set([...(written ?? []), ...pods.map(({ metadata }) => metadata.uid ?? '')]),
    ];
    const succeeded = uids(uncounted?.succeeded, counts.newlySucceeded);
    const failed = uids(uncounted?.failed, counts.newlyFailed);
    if (succeeded.length + failed.length === 0) return job;
    status.uncountedTerminatedPods = {
      ...(succeeded.length === 0 ? {} : { succeeded }),
      ...(failed.length === 0 ? {} : { failed }),
    };
    const current = await this.#write(job, status);
    const written = new Set([...succeeded, ...failed]);
    for (const pod of own) if (written.has(pod.metadata.uid ?? '')) await this.#removeFinalizer(pod);
    const distinct = isIndexed(job)
      ? parseIndexes(status.completedIndexes, job.spec?.completions ?? 0).length
      : (status.succeeded ?? 0) + succeeded.length;
    Object.assign(status, {
      succeeded: distinct,
      failed: (status.failed ?? 0) + failed.length,
      uncountedTerminatedPods: {},
    });
    return current;
  }

  async #write(job: Job, status: JobStatus): Promise<Job> {
    const shown = Object.fromEntries(
      Object.entries(status).filter(
        ([field, value]) =>
          value !== undefined && !(value === 0 && (field === 'active' || field === 'succeeded' || field === 'failed')),
      ),
    ) as JobStatus;
    if (semanticEqual(shown, job.status)) return job;
    return this.#environment.client.update(jobs, { ...job, status: structuredClone(shown) }, { subresource: 'status' });
  }

  async #removeFinalizer(pod: Pod): Promise<void> {
    const { namespace = '', name = '', uid, finalizers = [] } = pod.metadata;
    if (!finalizers.includes(TRACKING_FINALIZER)) return;
    await tolerate(
      this.#environment.client.patch(pods, namespace, name, 'strategic', {
        metadata: { uid, '$deleteFromPrimitiveList/finalizers': [TRACKING_FINALIZER] },
      }),
      isNotFound,
    );
  }

  #event(job: Job, type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(job, jobs), type, reason, message);
  }
}
