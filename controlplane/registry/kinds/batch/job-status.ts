/**
 * Validates the status of a job: counts, indexes, and transitions of conditions. Most rules only apply to changed values, so
 * that a status that was stored before the rules does not block its controller.
 */
import { duplicate, type FieldError, invalid, OMITTED_VALUE, required } from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import type { Job, JobStatus } from './job-types.ts';
import { IMMUTABLE, nonNegative } from '../field-rules.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { countIndexes } from './job-policies.ts';

const CONDITIONS = 'status.conditions';

/** The state of a job, with the conditions that the rules read. */
interface View {
  readonly status: JobStatus;
  readonly complete: boolean;
  readonly failed: boolean;
  /** Whether the condition `FailureTarget` is true. */
  readonly failing: boolean;
  /** Whether the condition `SuccessCriteriaMet` is true. */
  readonly succeeded: boolean;
  /** Whether the job is complete or failed. */
  readonly finished: boolean;
}

function viewOf(job: Job): View {
  const status = job.status ?? {};
  const holds = (type: string): boolean =>
    (status.conditions ?? []).some((one) => one.type === type && one.status === 'True');
  const [complete, failed] = [holds('Complete'), holds('Failed')];
  return {
    status,
    complete,
    failed,
    failing: holds('FailureTarget'),
    succeeded: holds('SuccessCriteriaMet'),
    finished: complete || failed,
  };
}

const refuse = (text: string): FieldError => invalid(CONDITIONS, OMITTED_VALUE, text);

/** Returns the errors of a changed status. Some rules hold for each status, and others compare it with the stored one. */
export function jobStatusErrors(job: Job, old: Job): FieldError[] {
  const now = viewOf(job);
  const before = viewOf(old);
  const changed = (...fields: (keyof JobStatus)[]): boolean =>
    fields.some((field) => !semanticEqual(now.status[field], before.status[field]));
  return [
    ...countErrors(now.status),
    ...conditionErrors(now, before),
    ...timeErrors(now, before, changed),
    ...finishedErrors(job, now, before, changed),
    ...indexErrors(job, now, changed),
    ...endErrors(now, before, changed),
    ...criteriaErrors(job, now),
    ...transitionErrors(job, now, before),
  ];
}

type Changed = (...fields: (keyof JobStatus)[]) => boolean;

function countErrors(status: JobStatus): FieldError[] {
  const errors = (['active', 'succeeded', 'failed', 'ready', 'terminating'] as const).flatMap((field) =>
    nonNegative(`status.${field}`, status[field]),
  );
  const seen = new Set<string>();
  for (const list of ['succeeded', 'failed'] as const) {
    for (const [index, uid] of (status.uncountedTerminatedPods?.[list] ?? []).entries()) {
      const field = `status.uncountedTerminatedPods.${list}[${index}]`;
      if (uid === '') errors.push(invalid(field, uid, 'must not be empty'));
      else if (seen.has(uid)) errors.push(duplicate(field, uid));
      seen.add(uid);
    }
  }
  return errors;
}

/** Refuses conditions that contradict each other. */
function conditionErrors(now: View, before: View): FieldError[] {
  const errors: FieldError[] = [];
  const completes = now.complete !== before.complete;
  if ((completes || now.failed !== before.failed) && now.complete && now.failed)
    errors.push(refuse('cannot set Complete=True and Failed=true conditions'));
  if ((completes || now.failing !== before.failing) && now.complete && now.failing)
    errors.push(refuse('cannot set Complete=True and FailureTarget=true conditions'));
  return errors;
}

const timeOf = (text: string | Date | undefined): number => (text === undefined ? 0 : new Date(text).getTime());

function timeErrors(now: View, before: View, changed: Changed): FieldError[] {
  const errors: FieldError[] = [];
  const field = 'status.completionTime';
  const { completionTime: end, startTime: start } = now.status;
  if (now.complete !== before.complete || changed('completionTime')) {
    if (end !== undefined && !now.complete)
      errors.push(invalid(field, end, 'cannot set completionTime when there is no Complete=True condition'));
    if (end === undefined && now.complete) errors.push(required(field, 'completionTime is required for Complete jobs'));
  }
  const reversed = start !== undefined && end !== undefined && timeOf(end) < timeOf(start);
  if (changed('startTime', 'completionTime') && reversed)
    errors.push(invalid(field, end, 'must be equal to or after `startTime`'));
  if ((now.failed !== before.failed || changed('failedIndexes')) && now.failed && !now.failing)
    errors.push(refuse('cannot set Failed=True condition without the FailureTarget=true condition'));
  const settled = now.complete !== before.complete || now.succeeded !== before.succeeded;
  if (settled && now.complete && !now.succeeded)
    errors.push(refuse('cannot set Complete=True condition without the SuccessCriteriaMet=true condition'));
  return errors;
}

function finishedErrors(job: Job, now: View, before: View, changed: Changed): FieldError[] {
  if (!now.finished) return [];
  const errors: FieldError[] = [];
  const { active = 0, startTime, uncountedTerminatedPods: uncounted } = now.status;
  const ended = !before.finished;
  if ((ended || changed('active')) && active > 0)
    errors.push(invalid('status.active', active, 'active>0 is invalid for finished job'));
  const emptyAndSuspended = job.spec?.suspend === true && job.spec.completions === 0;
  if ((ended || changed('startTime')) && !emptyAndSuspended && startTime === undefined)
    errors.push(required('status.startTime', 'startTime is required for finished job'));
  const uncountedPods = (uncounted?.failed ?? []).length + (uncounted?.succeeded ?? []).length;
  if ((ended || changed('uncountedTerminatedPods')) && uncountedPods > 0) {
    const shown = internalForm('io.k8s.api.batch.v1.UncountedTerminatedPods', uncounted);
    errors.push(invalid('status.uncountedTerminatedPods', shown, 'must be empty for finished job'));
  }
  return errors;
}

const isIndexed = (job: Job): boolean => job.spec?.completionMode === 'Indexed';

function indexErrors(job: Job, now: View, changed: Changed): FieldError[] {
  const errors: FieldError[] = [];
  const { completions, backoffLimitPerIndex } = job.spec ?? {};
  const { completedIndexes: completed = '', failedIndexes: failed } = now.status;
  const malformed = (field: 'completedIndexes' | 'failedIndexes', text: string): FieldError[] => {
    const counted = countIndexes(text, completions ?? 0);
    return typeof counted === 'string' ? [invalid(`status.${field}`, text, `error parsing ${field}: ${counted}`)] : [];
  };
  if (changed('completedIndexes') && completions !== undefined)
    errors.push(...malformed('completedIndexes', completed));
  const limited = backoffLimitPerIndex !== undefined;
  if (changed('failedIndexes') && completions !== undefined && limited && failed !== undefined)
    errors.push(...malformed('failedIndexes', failed));
  if (changed('completedIndexes') && completed !== '' && !isIndexed(job)) {
    const text = 'cannot set non-empty completedIndexes when non-indexed completion mode';
    errors.push(invalid('status.completedIndexes', completed, text));
  }
  if (changed('failedIndexes') && !limited && failed !== undefined) {
    const text = 'cannot set non-null failedIndexes when backoffLimitPerIndex is null';
    errors.push(invalid('status.failedIndexes', failed, text));
  }
  if (changed('failedIndexes', 'completedIndexes') && completions !== undefined && failed !== undefined) {
    const overlap = firstOverlap(completed, failed);
    if (overlap !== undefined) {
      const text = `failedIndexes and completedIndexes overlap at index: ${overlap}`;
      errors.push(invalid('status.failedIndexes', failed, text));
    }
  }
  return errors;
}

type Interval = readonly [first: number, last: number];

function intervalsOf(text: string): Interval[] {
  if (text === '') return [];
  return text.split(',').map((part) => {
    const [first = '', last = first] = part.split('-');
    return [Number(first), Number(last)] as const;
  });
}

/** Returns the first index that both lists contain, or `undefined`. Both lists are sorted in ascending order. */
function firstOverlap(completed: string, failed: string): number | undefined {
  const [a, b] = [intervalsOf(completed), intervalsOf(failed)];
  let [i, j] = [0, 0];
  for (;;) {
    const [one, other] = [a[i], b[j]];
    if (one === undefined || other === undefined) return undefined;
    if (one[0] <= other[1] && other[0] <= one[1]) return Math.max(one[0], other[0]);
    if (one[1] < other[1]) i++;
    else j++;
  }
}

function endErrors(now: View, before: View, changed: Changed): FieldError[] {
  const errors: FieldError[] = [];
  const { terminating, ready, active = 0 } = now.status;
  const ended = now.finished !== before.finished;
  if ((ended || changed('terminating')) && now.finished && (terminating ?? 0) > 0)
    errors.push(invalid('status.terminating', terminating, 'terminating>0 is invalid for finished job'));
  if (changed('ready', 'active') && ready !== undefined && ready > active)
    errors.push(invalid('status.ready', ready, 'cannot set more ready pods than active'));
  return errors;
}

function criteriaErrors(job: Job, now: View): FieldError[] {
  const errors: FieldError[] = [];
  if (now.succeeded && now.failed) errors.push(refuse('cannot set SuccessCriteriaMet=True and Failed=true conditions'));
  if (now.succeeded && now.failing)
    errors.push(refuse('cannot set SuccessCriteriaMet=True and FailureTarget=true conditions'));
  if (job.spec?.successPolicy !== undefined && !now.succeeded && now.complete)
    errors.push(refuse('cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True'));
  return errors;
}

const isSuspended = ({ status }: View, value: string): boolean =>
  (status.conditions ?? []).some((condition) => condition.type === 'Suspended' && condition.status === value);

/** Refuses transitions that no job may make, such as revoking a terminal condition. */
function transitionErrors(job: Job, now: View, before: View): FieldError[] {
  const errors: FieldError[] = [];
  const terminal = [
    ['Failed', before.failed, now.failed],
    ['Complete', before.complete, now.complete],
    ['FailureTarget', before.failing, now.failing],
  ] as const;
  for (const [type, was, is] of terminal)
    if (was && !is) errors.push(refuse(`cannot disable the terminal ${type}=True condition`));
  const decreased = (field: 'failed' | 'succeeded'): void => {
    const count = now.status[field] ?? 0;
    if (count < (before.status[field] ?? 0))
      errors.push(invalid(`status.${field}`, count, `cannot decrease the ${field} counter`));
  };
  decreased('failed');
  // An indexed job whose completions equal its parallelism may be scaled down.
  const elastic = isIndexed(job) && job.spec?.completions === job.spec?.parallelism;
  if (!elastic) decreased('succeeded');
  const [end, ended] = [now.status.completionTime, before.status.completionTime];
  if (end !== undefined && ended !== undefined && end !== ended)
    errors.push(invalid('status.completionTime', end, IMMUTABLE));
  const [start, started] = [now.status.startTime, before.status.startTime];
  // A job that resumes gets a new start from the controller, after its spec is no longer suspended.
  const resumes = isSuspended(before, 'True') && isSuspended(now, 'False');
  if (started !== undefined && start !== started && job.spec?.suspend !== true && !resumes)
    errors.push(invalid('status.startTime', start ?? null, 'field is immutable for unsuspended job once set'));
  if (before.succeeded && !now.succeeded) errors.push(refuse('cannot disable the SuccessCriteriaMet=True condition'));
  if (before.complete && !before.succeeded && now.succeeded)
    errors.push(refuse('cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions'));
  return errors;
}
