/** Implements cron jobs: creates jobs at the times of the schedule. */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { EventType } from '../../../api/client/event-report.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { CronJob, Job } from '../../../api/kinds/kinds.ts';
import { cronJobs, jobs } from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { controllerOf, controllerReference, indexByController, ownedBy, ownerKey } from '../owner-references.ts';
import { isNamespaceTerminating } from '../pod-control.ts';
import { dueTime, MAX_MISSED, parseSchedule, ScheduleError, type Schedule } from './schedule.ts';

/** Reconciles `concurrentCronJobSyncs` cron jobs at a time. */
export const runCronJobs: RunController = (environment, signal) => new CronJobController(environment).run(signal);

/** How long after a time of its schedule a cron job is reconciled. */
const SCHEDULE_SLACK_MS = 100;
/** The part of a cron job's name with which the names of its jobs begin. The API allows no longer names of cron jobs. */
const MAX_PREFIX_LENGTH = 52;

type CronJobStatus = NonNullable<CronJob['status']>;
type ActiveJob = NonNullable<CronJobStatus['active']>[number];

function withActive({ active: _before, ...status }: CronJobStatus, active: readonly ActiveJob[]): CronJobStatus {
  return active.length === 0 ? status : { ...status, active: [...active] };
}

function finishedAs(job: Job): string | undefined {
  return job.status?.conditions?.find(
    ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
  )?.type;
}

class CronJobController {
  readonly #environment: ControllerEnvironment;
  readonly #loop: ReconcileLoop;
  readonly #cronJobs: Informer<CronJob>;
  readonly #jobs: Informer<Job>;

  constructor(environment: ControllerEnvironment) {
    this.#environment = environment;
    this.#loop = new ReconcileLoop(environment, {
      workers: environment.options.concurrentCronJobSyncs,
      baseDelayMs: 1000,
      maxDelayMs: 60_000,
      reconcile: (key) => this.#reconcile(key),
    });
    this.#cronJobs = environment.informers.for(cronJobs);
    this.#jobs = environment.informers.for(jobs);
    indexByController(this.#jobs);
  }

  run(signal: AbortSignal): Promise<void> {
    this.#loop.follow(this.#cronJobs);
    const jobChanged = (job: Job): void => {
      const key = ownerKey(job, cronJobs);
      if (key !== undefined) this.#loop.queue.add(key);
    };
    this.#jobs.addHandler({ add: jobChanged, update: (_, job) => jobChanged(job), delete: jobChanged });
    return this.#loop.run(signal, this.#cronJobs, this.#jobs);
  }

  async #reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const cached = this.#cronJobs.get(namespace, name);
    if (cached === undefined) return;
    const { client } = this.#environment;
    const ownedJobs = ownedBy(this.#jobs, cached);
    const listed = new Set((cached.status?.active ?? []).map(({ uid }) => uid));
    // If the informer of jobs is ahead of the informer of cron jobs, the cached status does not list the newest job yet.
    const isBehind = ownedJobs.some((job) => finishedAs(job) === undefined && !listed.has(job.metadata.uid ?? ''));
    const cronJob = isBehind ? await tolerate(client.get(cronJobs, namespace, name), isNotFound) : cached;
    if (cronJob === undefined) return;
    let status = await this.#updateActiveJobs(cronJob, ownedJobs);
    await this.#removeOld(cronJob, ownedJobs);
    if (cronJob.metadata.deletionTimestamp === undefined && cronJob.spec?.suspend !== true)
      status = await this.#startDue(key, cronJob, status);
    if (!semanticEqual(status, cronJob.status))
      await client.update(cronJobs, { ...cronJob, status }, { subresource: 'status' });
  }

  /** Returns the status without active jobs that have finished or are missing, and with the time of the last success. */
  async #updateActiveJobs(cronJob: CronJob, ownedJobs: readonly Job[]): Promise<CronJobStatus> {
    const status = structuredClone(cronJob.status ?? {});
    const listed = new Set((status.active ?? []).map(({ uid }) => uid));
    const children = new Map(ownedJobs.map((job) => [job.metadata.uid, job]));
    for (const job of ownedJobs) {
      const { name = '', uid } = job.metadata;
      const finished = finishedAs(job);
      if (finished === undefined && !listed.has(uid)) {
        const message = `Saw a job that the controller did not create or forgot: ${name}`;
        this.#event(cronJob, 'Warning', 'UnexpectedJob', message);
      } else if (finished !== undefined && listed.has(uid))
        this.#event(cronJob, 'Normal', 'SawCompletedJob', `Saw completed job: ${name}, condition: ${finished}`);
      const completed = job.status?.completionTime;
      if (finished === 'Complete' && completed !== undefined && (status.lastSuccessfulTime ?? '') < completed)
        status.lastSuccessfulTime = completed;
    }
    const active: ActiveJob[] = [];
    for (const reference of status.active ?? []) {
      const job = children.get(reference.uid) ?? (await this.#newJob(reference));
      if (job === undefined)
        this.#event(cronJob, 'Normal', 'MissingJob', `Active job went missing: ${reference.name ?? ''}`);
      else if (finishedAs(job) === undefined) active.push(reference);
    }
    return withActive(status, active);
  }

  /** Reads a job that the informer does not show, because it was created a moment ago or because it is gone. */
  async #newJob({ namespace = '', name = '', uid }: ActiveJob): Promise<Job | undefined> {
    try {
      const job = await this.#environment.client.get(jobs, namespace, name);
      return job.metadata.uid === uid ? job : undefined;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  async #removeOld(cronJob: CronJob, ownedJobs: readonly Job[]): Promise<void> {
    const { successfulJobsHistoryLimit = 3, failedJobsHistoryLimit = 1 } = cronJob.spec ?? {};
    for (const [condition, limit] of [
      ['Complete', successfulJobsHistoryLimit],
      ['Failed', failedJobsHistoryLimit],
    ] as const) {
      const finished = ownedJobs.filter(
        (job) => finishedAs(job) === condition && job.metadata.deletionTimestamp === undefined,
      );
      finished.sort((a, b) => ((a.status?.startTime ?? '') < (b.status?.startTime ?? '') ? -1 : 1));
      for (const job of finished.slice(0, Math.max(0, finished.length - limit)))
        await this.#deleteJob(cronJob, job.metadata);
    }
  }

  /**
   * Starts the job that is due, and plans the reconciliation at the next time. Resolves to the status with the job, or to the
   * same status if no job was started.
   */
  async #startDue(key: string, cronJob: CronJob, status: CronJobStatus): Promise<CronJobStatus> {
    const { clock } = this.#environment;
    const nowMs = clock.now();
    let schedule: Schedule;
    try {
      schedule = parseSchedule(cronJob.spec?.schedule ?? '', cronJob.spec?.timeZone ?? 'UTC');
    } catch (error) {
      if (!(error instanceof ScheduleError) && !(error instanceof RangeError)) throw error;
      const invalidZone = error instanceof RangeError;
      this.#event(
        cronJob,
        'Warning',
        invalidZone ? 'UnknownTimeZone' : 'UnparseableSchedule',
        invalidZone
          ? `invalid timeZone: "${cronJob.spec?.timeZone}": ${error.message}`
          : `unparseable schedule: "${cronJob.spec?.schedule}" : ${error.message}`,
      );
      return status;
    }
    const upcoming = schedule.next(nowMs);
    if (upcoming !== undefined) this.#loop.queue.addAfter(key, upcoming - nowMs + SCHEDULE_SLACK_MS);
    const deadlineSeconds = cronJob.spec?.startingDeadlineSeconds;
    const last = Date.parse(status.lastScheduleTime ?? cronJob.metadata.creationTimestamp ?? '') || nowMs;
    const sinceMs = deadlineSeconds === undefined ? last : Math.max(last, nowMs - deadlineSeconds * 1000);
    const { due, missed } = dueTime(schedule, { sinceMs, nowMs });
    if (missed > MAX_MISSED)
      this.#event(
        cronJob,
        'Warning',
        'TooManyMissedTimes',
        'too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew',
      );
    if (due === undefined) return status;
    const active = status.active ?? [];
    if (cronJob.spec?.concurrencyPolicy === 'Forbid' && active.length > 0) {
      this.#event(
        cronJob,
        'Normal',
        'JobAlreadyActive',
        'Not starting job because prior execution is running and concurrency policy is Forbid',
      );
      return status;
    }
    const replaces = cronJob.spec?.concurrencyPolicy === 'Replace';
    if (replaces)
      for (const { namespace = '', name = '' } of active) await this.#deleteJob(cronJob, { namespace, name });
    const created = await this.#create(cronJob, due);
    if (created === undefined) return status;
    const { name = '', namespace = '', uid = '', resourceVersion = '' } = created.metadata;
    const stillActive = replaces ? [] : active.filter((reference) => reference.uid !== uid);
    const reference = { apiVersion: 'batch/v1', kind: 'Job', name, namespace, uid, resourceVersion };
    return withActive({ ...status, lastScheduleTime: formatTime(due) }, [...stillActive, reference]);
  }

  /**
   * Creates the job of a time. Resolves to the existing job if an earlier reconciliation created it and failed to record it.
   * Resolves to `undefined` if the name belongs to a job of another owner, or if the namespace is being deleted.
   */
  async #create(cronJob: CronJob, dueMs: number): Promise<Job | undefined> {
    const { client } = this.#environment;
    const template = cronJob.spec?.jobTemplate;
    const namespace = cronJob.metadata.namespace ?? '';
    const name = `${(cronJob.metadata.name ?? '').slice(0, MAX_PREFIX_LENGTH)}-${Math.floor(dueMs / 60_000)}`;
    const timestamp = { 'batch.kubernetes.io/cronjob-scheduled-timestamp': formatTime(dueMs) };
    const job: Job = {
      apiVersion: 'batch/v1',
      kind: 'Job',
      metadata: {
        name,
        namespace,
        ...(template?.metadata?.labels === undefined ? {} : { labels: { ...template.metadata.labels } }),
        annotations: { ...template?.metadata?.annotations, ...timestamp },
        creationTimestamp: formatTime(dueMs),
        ownerReferences: [controllerReference(cronJob, cronJobs)],
      },
      ...(template?.spec === undefined ? {} : { spec: structuredClone(template.spec) }),
    };
    try {
      const created = await client.create(jobs, namespace, job);
      this.#event(cronJob, 'Normal', 'SuccessfulCreate', `Created job ${name}`);
      return created;
    } catch (error) {
      if (isAlreadyExists(error)) {
        const existing = await client.get(jobs, namespace, name);
        return controllerOf(existing)?.uid === cronJob.metadata.uid ? existing : undefined;
      }
      if (isNamespaceTerminating(error)) return undefined;
      this.#event(cronJob, 'Warning', 'FailedCreate', `Error creating job: ${(error as Error).message}`);
      throw error;
    }
  }

  async #deleteJob(
    cronJob: CronJob,
    { namespace = '', name = '' }: { readonly namespace?: string | undefined; readonly name?: string | undefined },
  ): Promise<void> {
    try {
      await this.#environment.client.delete(jobs, namespace, name, { propagationPolicy: 'Background' });
      this.#event(cronJob, 'Normal', 'SuccessfulDelete', `Deleted job ${name}`);
    } catch (error) {
      if (isNotFound(error)) return;
      this.#event(cronJob, 'Warning', 'FailedDelete', `Deleted job: ${(error as Error).message}`);
      throw error;
    }
  }

  #event(cronJob: CronJob, type: EventType, reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(cronJob, cronJobs), type, reason, message);
  }
}
