/** Defines the strategies of jobs and cron jobs: generated selectors, defaults and validation. */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1CronJobSpec, V1LabelSelector } from '@kubernetes/client-node';
import { dropDisabledPodFields } from '../../../../api/kinds/disabled-fields.ts';
import { applyPodTemplateDefaults } from '../../../../api/kinds/pod-defaults.ts';
import type { PodSpec, PodTemplate } from '../../../../api/kinds/pod-types.ts';
import { ownerNameWarnings, podWarnings } from '../../../../api/kinds/pod-warnings.ts';
import type { Wire } from '../../../../api/kinds/wire.ts';
import { type FieldError, invalid, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { cloneJson, semanticEqual } from '../../../../api/meta/json-equality.ts';
import { dnsLabelErrors, nameIsSubdomain } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import { fromLabelSelector, validateLabelSelector } from '../../../../api/meta/selector.ts';
import { cronJobColumns, jobColumns } from './columns.ts';
import { specAndStatus, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { immutable, nonNegative, shownMap } from '../field-rules.ts';
import { isSameGeneration, shownSelector, templated } from '../apps/workload-rules.ts';
import { LABEL_SELECTOR, POD_SPEC, POD_TEMPLATE } from '../../../../api/schema/semantic-equality.ts';
import { scheduleErrors, timeZoneErrors } from './cron-schedule.ts';
import { isIdle, ORPHANED_PODS } from './job-policies.ts';
import { jobSpecErrors } from './job-spec-validation.ts';
import { jobStatusErrors } from './job-status.ts';
import type { Job, JobSpec } from './job-types.ts';
import { INT32_MAX } from '../../../../api/meta/integers.ts';

type CronJob = KubeObject & {
  spec?: Omit<Wire<V1CronJobSpec>, 'jobTemplate'> & {
    jobTemplate?: { metadata?: KubeObject['metadata']; spec?: JobSpec };
  };
};

const UID_LABEL = 'batch.kubernetes.io/controller-uid';
const NAME_LABEL = 'batch.kubernetes.io/job-name';
const OLD_UID_LABEL = 'controller-uid';
const OLD_NAME_LABEL = 'job-name';

function jobDefaults(job: Job): void {
  const spec = (job.spec ??= {});
  spec.template ??= {};
  applyPodTemplateDefaults(spec.template);
  if (spec.completions === undefined && spec.parallelism === undefined) spec.completions = 1;
  spec.parallelism ??= 1;
  spec.backoffLimit ??= spec.backoffLimitPerIndex === undefined ? 6 : INT32_MAX;
  spec.completionMode ??= 'NonIndexed';
  spec.suspend ??= false;
  spec.manualSelector ??= false;
  spec.podReplacementPolicy ??= spec.podFailurePolicy === undefined ? 'TerminatingOrFailed' : 'Failed';
  for (const rule of spec.podFailurePolicy?.rules ?? []) {
    for (const condition of rule.onPodConditions ?? []) if ((condition.status ?? '') === '') condition.status = 'True';
  }
  const labels = spec.template.metadata?.labels;
  // The job and its template share one object, as in kube-apiserver, so that the job also gets the labels that
  // `generateSelector` adds to the template.
  if (labels !== undefined && Object.keys(job.metadata.labels ?? {}).length === 0) job.metadata.labels = labels;
}

/** Generates a selector that matches the pods of a job by the job's uid, unless the client sets the selector itself. */
function generateSelector(job: Job): void {
  const spec = (job.spec ??= {});
  if (spec.manualSelector === true) return;
  const { uid = '', name = '' } = job.metadata;
  const template = (spec.template ??= {});
  const labels = template.metadata?.labels ?? {};
  for (const [key, value] of [
    [OLD_NAME_LABEL, name],
    [OLD_UID_LABEL, uid],
    [NAME_LABEL, name],
    [UID_LABEL, uid],
  ] as const)
    labels[key] ??= value;
  template.metadata = { ...template.metadata, labels };
  spec.selector = { ...spec.selector, matchLabels: { [UID_LABEL]: uid, ...spec.selector?.matchLabels } };
}

function generatedErrors(job: Job): FieldError[] {
  const spec = job.spec ?? {};
  if (spec.manualSelector === true || spec.selector === undefined) return [];
  const { uid = '', name = '' } = job.metadata;
  const labels = spec.template?.metadata?.labels ?? {};
  const expected: Readonly<Record<string, string>> = {
    [OLD_UID_LABEL]: uid,
    [OLD_NAME_LABEL]: name,
    [UID_LABEL]: uid,
    [NAME_LABEL]: name,
  };
  const errors: FieldError[] = [];
  for (const [key, value] of Object.entries(expected)) {
    if (labels[key] === undefined) errors.push(required(`spec.template.metadata.labels[${key}]`, `must be '${value}'`));
    else if (ownMember(labels, key) !== value)
      errors.push(invalid(`spec.template.metadata.labels[${key}]`, shownMap(labels), `must be '${value}'`));
  }
  const selector = spec.selector as V1LabelSelector;
  if (validateLabelSelector(selector, '').length === 0 && !fromLabelSelector(selector).matches(expected))
    errors.push(invalid('spec.selector', shownSelector(spec.selector), '`selector` not auto-generated'));
  return errors;
}

function jobErrors(job: Job): FieldError[] {
  return [...generatedErrors(job), ...selectedErrors(job), ...indexedNameErrors(job)];
}

/** Validates the rules that hold on create and on update. */
function selectedErrors(job: Job): FieldError[] {
  const spec = job.spec ?? {};
  const selector = spec.selector as V1LabelSelector | undefined;
  const errors = jobSpecErrors(spec, 'spec');
  const malformed = selector === undefined ? [] : validateLabelSelector(selector, 'spec.selector');
  errors.push(...(selector === undefined ? [required('spec.selector')] : malformed));
  const labels = spec.template?.metadata?.labels;
  if (malformed.length === 0 && !fromLabelSelector(selector).matches(labels ?? {}))
    errors.push(
      invalid('spec.template.metadata.labels', shownMap(labels), '`selector` does not match template `labels`'),
    );
  return errors;
}

/** Validates the host names of an indexed job's pods, which consist of the job's name and an index. */
function indexedNameErrors({ metadata: { name = '' }, spec = {} }: Job): FieldError[] {
  const { completionMode, completions = 0 } = spec;
  if (completionMode !== 'Indexed' || completions <= 0) return [];
  const longest = `${name}-${completions - 1}`;
  if (dnsLabelErrors(longest).length === 0) return [];
  return [invalid('metadata.name', name, `will not able to create pod with invalid DNS label: ${longest}`)];
}

type Affinity = PodSpec['affinity'];

const SCHEDULING = ['nodeSelector', 'tolerations', 'schedulingGates'] as const;

/** Returns the errors of a changed job. kube-apiserver validates its spec twice, which repeats the causes. */
function jobUpdateErrors(job: Job, old: Job): FieldError[] {
  const spec = job.spec ?? {};
  const before = old.spec ?? {};
  const errors = [...jobErrors(job), ...selectedErrors(job)];
  const fixed = (field: keyof JobSpec, typeName?: string): void => {
    errors.push(...immutable(`spec.${field}`, spec[field], before[field], typeName));
  };
  if (!semanticEqual(spec.completions, before.completions)) {
    if (spec.completionMode !== 'Indexed') fixed('completions');
    else if (spec.completions !== undefined && spec.completions !== spec.parallelism) {
      errors.push(
        invalid('spec.completions', spec.completions, 'can only be modified in tandem with spec.parallelism'),
      );
    }
  }
  fixed('selector', LABEL_SELECTOR);
  errors.push(...templateUpdateErrors(job, old));
  fixed('completionMode');
  fixed('podFailurePolicy', 'io.k8s.api.batch.v1.PodFailurePolicy');
  fixed('backoffLimitPerIndex');
  fixed('managedBy');
  fixed('successPolicy', 'io.k8s.api.batch.v1.SuccessPolicy');
  return errors;
}

/** Returns the old affinity with the new affinity to nodes, which may change. The affinities to pods may not. */
function comparableAffinity(now: Affinity, old: Affinity): Affinity {
  if (now === undefined && old === undefined) return undefined;
  const { nodeAffinity: _, ...podAffinities } = old ?? {};
  if (now === undefined) return Object.keys(podAffinities).length === 0 ? undefined : podAffinities;
  return now.nodeAffinity === undefined ? podAffinities : { ...podAffinities, nodeAffinity: now.nodeAffinity };
}

/** Returns the old spec with the parts of the new one that may change: scheduling directives and resources of containers. */
function comparableSpec(now: PodSpec, old: PodSpec): object {
  const comparable: Record<string, unknown> = {
    ...cloneJson(old),
    affinity: comparableAffinity(now.affinity, old.affinity),
  };
  for (const field of SCHEDULING) comparable[field] = now[field];
  for (const list of ['containers', 'initContainers'] as const) {
    const after = now[list] ?? [];
    const before = old[list] ?? [];
    if (after.length !== before.length) continue;
    comparable[list] = before.map((container, index) =>
      container.name === after[index]?.name ? { ...container, resources: after[index]?.resources } : container,
    );
  }
  return comparable;
}

/**
 * Validates changes of the template, which is immutable. In a suspended job without active pods, its metadata may change, and
 * so may the parts of its spec that `comparableSpec` names.
 */
function templateUpdateErrors(job: Job, old: Job): FieldError[] {
  const template = job.spec?.template ?? {};
  const before = old.spec?.template ?? {};
  if (!isIdle(old)) return immutable('spec.template', template, before, POD_TEMPLATE);
  const spec = template.spec ?? {};
  return immutable('spec.template.spec', spec, comparableSpec(spec, before.spec ?? {}), POD_SPEC);
}

const templateTexts = (template: PodTemplate | undefined, path: string): string[] =>
  podWarnings(template?.metadata, template?.spec ?? {}, path);

const jobs: Strategy<Job> = {
  metadataChecks: ['whole', 'update'],
  ...templated,
  applyDefaults: jobDefaults,
  prepareForCreate(job) {
    templated.prepareForCreate(job);
    generateSelector(job);
  },
  /**
   * Copies the labels of the template to a job without labels. Generated labels are thus also on the job, but are validated
   * only on its template.
   */
  canonicalise(job) {
    if (Object.keys(job.metadata.labels ?? {}).length === 0 && job.spec?.template?.metadata?.labels !== undefined) {
      job.metadata.labels = { ...job.spec.template.metadata.labels };
    }
  },
  validateCreate: jobErrors,
  validateUpdate: jobUpdateErrors,
  warningsOnCreate: (job) => [
    ...ownerNameWarnings(job.metadata.name ?? ''),
    ...templateTexts(job.spec?.template, 'spec.template'),
  ],
  warningsOnUpdate: (job, old) =>
    isSameGeneration(job, old) ? [] : templateTexts(job.spec?.template, 'spec.template'),
  defaultPropagation: 'Orphan',
  defaultPropagationWarning: ORPHANED_PODS,
  selectableFields: { 'status.successful': (job) => String(job.status?.succeeded ?? 0) },
  unsupportedField: (field) => `field label ${quoteText(field)} not supported for Job`,
  columns: jobColumns,
  status: { ...(statusOnly as UpdateStrategy<Job>), validateUpdate: jobStatusErrors },
};

const CONCURRENCY = ['Allow', 'Forbid', 'Replace'];
/** The longest name of a cron job: the names of its jobs have 11 characters more, and 63 at most. */
const MAX_NAME_LENGTH = 52;

function cronJobErrors(cronJob: CronJob, old?: CronJob): FieldError[] {
  const spec = cronJob.spec ?? {};
  const errors = [
    ...scheduleErrors('spec.schedule', spec, old?.spec),
    ...nonNegative('spec.startingDeadlineSeconds', spec.startingDeadlineSeconds),
  ];
  if (old === undefined || spec.timeZone !== old.spec?.timeZone)
    errors.push(...timeZoneErrors('spec.timeZone', spec.timeZone));
  const { concurrencyPolicy = '' } = spec;
  if (concurrencyPolicy === '') errors.push(required('spec.concurrencyPolicy'));
  else if (!CONCURRENCY.includes(concurrencyPolicy))
    errors.push(unsupportedValue('spec.concurrencyPolicy', concurrencyPolicy, CONCURRENCY));
  errors.push(
    ...jobTemplateErrors(spec.jobTemplate?.spec ?? {}, 'spec.jobTemplate.spec'),
    ...nonNegative('spec.successfulJobsHistoryLimit', spec.successfulJobsHistoryLimit),
    ...nonNegative('spec.failedJobsHistoryLimit', spec.failedJobsHistoryLimit),
  );
  const { name = '' } = cronJob.metadata;
  if (name.length > MAX_NAME_LENGTH && old === undefined)
    errors.push(invalid('metadata.name', name, `must be no more than ${MAX_NAME_LENGTH} characters`));
  return errors;
}

function jobTemplateErrors(spec: JobSpec, path: string): FieldError[] {
  const errors = jobSpecErrors(spec, path);
  if (spec.selector !== undefined)
    errors.push(invalid(`${path}.selector`, shownSelector(spec.selector), '`selector` will be auto-generated'));
  if (spec.manualSelector === true) errors.push(unsupportedValue(`${path}.manualSelector`, true, ['nil', 'false']));
  return errors;
}

function cronJobWarnings(cronJob: CronJob, old?: CronJob): string[] {
  const { spec, metadata } = cronJob;
  const template = spec?.jobTemplate?.spec?.template;
  const texts = old === undefined ? ownerNameWarnings(metadata.name ?? '') : [];
  if (old === undefined || !isSameGeneration(cronJob, old))
    texts.push(...templateTexts(template, 'spec.jobTemplate.spec.template'));
  if (old !== undefined && (spec?.schedule ?? '').includes('TZ'))
    texts.push(
      'cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details',
    );
  return texts;
}

const cronJobs: Strategy<CronJob> = {
  metadataChecks: ['update'],
  ...specAndStatus,
  prepareForCreate(cronJob) {
    specAndStatus.prepareForCreate(cronJob);
    dropDisabledPodFields(cronJob.spec?.jobTemplate?.spec?.template?.spec, undefined);
  },
  prepareForUpdate(cronJob, old) {
    specAndStatus.prepareForUpdate(cronJob, old);
    dropDisabledPodFields(cronJob.spec?.jobTemplate?.spec?.template?.spec, old.spec?.jobTemplate?.spec?.template?.spec);
  },
  nameRule: nameIsSubdomain,
  applyDefaults(cronJob) {
    const spec = (cronJob.spec ??= {});
    if ((spec.concurrencyPolicy ?? '') === '') spec.concurrencyPolicy = 'Allow';
    spec.suspend ??= false;
    spec.successfulJobsHistoryLimit ??= 3;
    spec.failedJobsHistoryLimit ??= 1;
    const template = (spec.jobTemplate ??= {});
    template.spec ??= {};
    template.spec.template ??= {};
    applyPodTemplateDefaults(template.spec.template);
  },
  validateCreate: (cronJob) => cronJobErrors(cronJob),
  validateUpdate: cronJobErrors,
  warningsOnCreate: (cronJob) => cronJobWarnings(cronJob),
  warningsOnUpdate: cronJobWarnings,
  columns: cronJobColumns,
  status: statusOnly as UpdateStrategy<CronJob>,
};

export const batchKinds = [kindRow('batch', 'jobs', jobs), kindRow('batch', 'cronjobs', cronJobs)];
