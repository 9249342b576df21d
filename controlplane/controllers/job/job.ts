/** Implements jobs: runs as many pods as parallelism and completions require. */
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Job, Pod } from '../../../api/kinds/kinds.ts';
import { jobs, pods } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { claim, controllerOf, indexByController, ownerKey } from '../owner-references.ts';
import { PendingWrites } from '../pending-writes.ts';
import { inGrowingBatches, isNamespaceTerminating, PodControl } from '../pod-control.ts';
import { compareForDeletion, isPodFinished, isPodReady, isPodTerminating } from '../pod-state.ts';
import { backoffMs, JobBackOff, type JobFailures, waitAfter } from './job-back-off.ts';
import {
  completionIndexOf,
  failuresByIndex,
  isIndexed,
  missingIndexes,
  outcomeOf,
  unusablePods,
  replacesOnlyFailed,
  TRACKING_FINALIZER,
  wantedActive,
} from './job-core.ts';
import { podForJob } from './job-pods.ts';
import { computeVerdict, countPods, withJobCondition, type JobStatus, type PodCounts } from './job-status.ts';
import { countable, JobTracking } from './job-tracking.ts';
import { enqueueOwner } from '../pod-owners.ts';

const MANAGED_BY_US = 'kubernetes.io/job-controller';
/** The prefix of the keys of pods in the queue of jobs. */
const POD_KEY = 'pod:';
/** How long after its deadline a job is reconciled again, so that the deadline has certainly passed. */
const DEADLINE_SLACK_MS = 50;

/** What a sync did to the pods of a job. */
interface Changes {
  readonly error: unknown;
  readonly created: number;
  readonly deleted: readonly Pod[];
}

const NO_CHANGES: Changes = { error: undefined, created: 0, deleted: [] };

const SUSPENDED = { type: 'Suspended', status: 'True', reason: 'JobSuspended', message: 'Job suspended' };
const RESUMED = { type: 'Suspended', status: 'False', reason: 'JobResumed', message: 'Job resumed' };

/** Reconciles `concurrentJobSyncs` jobs at a time. */
export const runJobs: RunController = (environment, signal) => new JobController(environment).run(signal);

class JobController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #jobs: Informer<Job>;
  readonly #pods: Informer<Pod>;
  readonly #pending: PendingWrites<Pod>;
  readonly #podControl: PodControl<Job>;
  readonly #tracking: JobTracking;
  readonly #backOff = new JobBackOff();

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
    this.#tracking = new JobTracking(environment);
    indexByController(this.#pods);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#jobs);
    const enqueueJob = enqueueOwner(this.#loop, this.#jobs, jobs);
    const podChanged = (pod: Pod): void => {
      enqueueJob(pod);
      this.#enqueueOrphan(pod);
    };
    const podDeleted = (pod: Pod): void => {
      this.#tracking.forget(pod);
      podChanged(pod);
    };
    this.#pods.addHandler({ add: podChanged, update: (_, pod) => podChanged(pod), delete: podDeleted });
    return this.#loop.run(signal, this.#jobs, this.#pods);
  }

  /** Queues a pod whose job was deleted, because it would keep its finalizer for ever. */
  #enqueueOrphan(pod: Pod): void {
    if (!(pod.metadata.finalizers ?? []).includes(TRACKING_FINALIZER) || !this.#jobs.hasSynced) return;
    const key = ownerKey(pod, jobs);
    const { namespace, name } = splitKey(key ?? '/');
    const owner = key === undefined ? undefined : this.#jobs.get(namespace, name);
    if (owner?.metadata.uid === controllerOf(pod)?.uid && owner !== undefined) return;
    this.#loop.queue.add(`${POD_KEY}${pod.metadata.namespace}/${pod.metadata.name}`);
  }

  async #reconcile(key: string): Promise<void> {
    if (key.startsWith(POD_KEY)) return this.#releaseOrphan(key.slice(POD_KEY.length));
    const { namespace, name } = splitKey(key);
    const job = this.#jobs.get(namespace, name);
    if (job === undefined) {
      this.#pending.forget(key);
      this.#backOff.forget(key);
      return;
    }
    if ((job.spec?.managedBy ?? MANAGED_BY_US) !== MANAGED_BY_US) return;
    if (
      job.status?.conditions?.some(
        ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
      ) === true
    )
      return;
    const jobPods = await claim({
      client: this.#environment.client,
      owner: job,
      ownerResource: jobs,
      resource: pods,
      informer: this.#pods,
      selector: fromLabelSelector(job.spec?.selector),
      finalizers: [TRACKING_FINALIZER],
      onWritten: (pod) => this.#pending.wrote(key, pod),
    });
    await this.#sync(key, job, this.#tracking.view(jobPods));
  }

  async #releaseOrphan(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const pod = this.#pods.get(namespace, name);
    const owner = pod === undefined ? undefined : this.#jobs.get(namespace, controllerOf(pod)?.name ?? '');
    if (pod !== undefined && (owner === undefined || owner.metadata.uid !== controllerOf(pod)?.uid))
      await this.#tracking.release(pod);
  }

  async #sync(key: string, job: Job, jobPods: readonly Pod[]): Promise<void> {
    const { clock } = this.#environment;
    const nowMs = clock.now();
    const status: JobStatus = structuredClone(job.status ?? {});
    status.uncountedTerminatedPods ??= {};
    const suspended = job.spec?.suspend === true;
    if (!suspended) status.startTime ??= formatTime(nowMs);
    const counts = countPods(job, countable(jobPods), status);
    const failed = [...counts.newlyFailed, ...counts.newlyIgnored];
    const failures = this.#backOff.failuresWith(key, counts.newlySucceeded, failed);
    const verdict = computeVerdict(job, { jobPods, counts, status }, nowMs);
    const active = jobPods.filter((pod) => outcomeOf(pod, job) === 'active');
    const settled = this.#pending.settled(key);
    let changes = NO_CHANGES;
    if (verdict?.final === 'Failed') changes = await this.#deletePods(key, job, active);
    else if (verdict !== undefined || (suspended && active.length > 0))
      changes = await this.#deleteUncounted(key, job, active);
    else if (settled && job.metadata.deletionTimestamp === undefined)
      changes = await this.#manage(key, job, { jobPods, active, counts, failures });
    if (verdict === undefined) {
      this.#recordSuspension(job, status, suspended, nowMs);
      this.#planDeadline(key, job, status, nowMs);
    }
    const { error, created, deleted } = changes;
    // The counters stay as they were written until the informer shows the last creations and deletions.
    if (settled || verdict !== undefined || suspended) {
      const terminating = jobPods.filter((pod) => isPodTerminating(pod) && !isPodFinished(pod)).length;
      Object.assign(status, {
        active: active.length + created - deleted.length,
        ready: active.filter((pod) => isPodReady(pod) && !deleted.includes(pod)).length,
        terminating: terminating + deleted.length,
      });
    }
    // A job is not over while some of its pods could not be deleted.
    const finalVerdict = error === undefined ? verdict : undefined;
    await this.#tracking.count(job, jobPods, { status, counts, verdict: finalVerdict });
    this.#backOff.record(key, failures);
    if (error !== undefined && !isNamespaceTerminating(error)) throw error;
  }

  async #manage(
    key: string,
    job: Job,
    {
      jobPods,
      active,
      counts,
      failures,
    }: {
      readonly jobPods: readonly Pod[];
      readonly active: readonly Pod[];
      readonly counts: PodCounts;
      readonly failures: JobFailures;
    },
  ): Promise<Changes> {
    const { clock } = this.#environment;
    const wanted = wantedActive(job, {
      succeeded: counts.succeeded,
      finishedIndexes: counts.succeededIndexes.length + counts.failedIndexes.length,
    });
    const compare = (a: Pod, b: Pod): number => compareForDeletion(a, b, () => 0, clock.now());
    const unusable = new Set(unusablePods(job, active, compare));
    const useful = active.filter((pod) => !unusable.has(pod)).toSorted(compare);
    const surplus = [...unusable, ...useful.slice(0, wanted < 0 ? 0 : Math.max(0, useful.length - wanted))];
    if (surplus.length > 0) return this.#deleteUncounted(key, job, surplus);
    if (wanted < 0) return NO_CHANGES;
    const terminating = replacesOnlyFailed(job)
      ? jobPods.filter((pod) => outcomeOf(pod, job) === 'terminating').length
      : 0;
    const missing = wanted - active.length - terminating;
    if (missing <= 0) return NO_CHANGES;
    const free = isIndexed(job) ? this.#freeIndexes(job, jobPods, counts, missing) : undefined;
    if (free !== undefined && job.spec?.backoffLimitPerIndex !== undefined)
      return this.#createIndependently(key, job, jobPods, free);
    const waitMs = waitAfter(failures, clock.now());
    if (waitMs > 0) {
      this.#loop.queue.addAfter(key, waitMs);
      return NO_CHANGES;
    }
    return this.#create(key, job, free?.length ?? missing, (at) => podForJob(job, free?.[at]));
  }

  /**
   * Creates the missing pods of indexes that back off independently. The failures of an index delay only its own next pod.
   */
  async #createIndependently(
    key: string,
    job: Job,
    jobPods: readonly Pod[],
    free: readonly number[],
  ): Promise<Changes> {
    const nowMs = this.#environment.clock.now();
    const failures = failuresByIndex(job, countable(jobPods));
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

  async #create(key: string, job: Job, count: number, podOf: (at: number) => Pod): Promise<Changes> {
    const { error, succeeded } = await inGrowingBatches(count, async (at) => {
      this.#pending.wrote(key, await this.#podControl.create(job, podOf(at)));
    });
    return { error, created: succeeded, deleted: [] };
  }

  #freeIndexes(job: Job, jobPods: readonly Pod[], counts: PodCounts, missing: number): number[] {
    const taken = new Set([...counts.succeededIndexes, ...counts.failedIndexes]);
    for (const pod of jobPods) {
      const index = completionIndexOf(pod);
      const outcome = outcomeOf(pod, job);
      if (index !== undefined && (outcome === 'active' || outcome === 'terminating')) taken.add(index);
    }
    return missingIndexes(job.spec?.completions ?? 0, taken, missing);
  }

  /** Deletes pods that the job does not want now. Without their finalizer, they do not count as failures. */
  async #deleteUncounted(key: string, job: Job, surplus: readonly Pod[]): Promise<Changes> {
    const results = await Promise.allSettled(surplus.map((pod) => this.#tracking.release(pod)));
    const error = results.find((result) => result.status === 'rejected')?.reason as unknown;
    const released = surplus.filter((_, at) => results[at]?.status === 'fulfilled');
    const changes = await this.#deletePods(key, job, released);
    return { ...changes, error: changes.error ?? error };
  }

  async #deletePods(key: string, job: Job, surplus: readonly Pod[]): Promise<Changes> {
    const results = await Promise.allSettled(
      surplus.map(async (pod) => {
        await this.#podControl.delete(job, pod);
        this.#pending.deleted(key, pod);
      }),
    );
    const error = results.find((result) => result.status === 'rejected')?.reason as unknown;
    return { error, created: 0, deleted: surplus.filter((_, at) => results[at]?.status === 'fulfilled') };
  }

  /** Plans a reconciliation after the deadline of the job, if it has one and has started. */
  #planDeadline(key: string, job: Job, { startTime }: JobStatus, nowMs: number): void {
    const limit = job.spec?.activeDeadlineSeconds;
    if (limit === undefined || startTime === undefined) return;
    this.#loop.queue.addAfter(key, Date.parse(startTime) + limit * 1000 - nowMs + DEADLINE_SLACK_MS);
  }

  #recordSuspension(job: Job, status: JobStatus, suspended: boolean, nowMs: number): void {
    const before = status.conditions?.find(({ type }) => type === 'Suspended')?.status;
    if (suspended && before !== 'True') {
      status.conditions = withJobCondition(status.conditions, SUSPENDED, nowMs);
      delete status.startTime;
      this.#tracking.event(job, 'Normal', 'Suspended', SUSPENDED.message);
    } else if (!suspended && before === 'True') {
      status.conditions = withJobCondition(status.conditions, RESUMED, nowMs);
      status.startTime = formatTime(nowMs);
      this.#tracking.event(job, 'Normal', 'Resumed', RESUMED.message);
    }
  }
}
