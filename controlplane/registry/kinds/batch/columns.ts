/** Defines the table columns of jobs and cron jobs. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { formatLabelSelector } from '../../../../api/meta/selector.ts';
import type { Cell, TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf, since } from '../../columns/column.ts';
import { containerCells } from '../core/columns.ts';
import { humanDuration } from '../../columns/human-duration.ts';

interface Job extends KubeObject {
  spec?: {
    completions?: number;
    parallelism?: number;
    suspend?: boolean;
    selector?: V1LabelSelector;
    template?: PodTemplate;
  };
  status?: {
    active?: number;
    succeeded?: number;
    startTime?: string;
    completionTime?: string;
    conditions?: { type?: string; status?: string }[];
  };
}

function completions({ spec, status }: Job): string {
  const succeeded = status?.succeeded ?? 0;
  if (spec?.completions !== undefined) return `${succeeded}/${spec.completions}`;
  const parallelism = spec?.parallelism ?? 0;
  return parallelism > 1 ? `${succeeded}/1 of ${parallelism}` : `${succeeded}/1`;
}

function state({ metadata, status }: Job): string {
  const has = (type: string): boolean =>
    (status?.conditions ?? []).some((one) => one.type === type && one.status === 'True');
  if (has('Complete')) return 'Complete';
  if (has('Failed')) return 'Failed';
  if (metadata.deletionTimestamp !== undefined) return 'Terminating';
  if (has('Suspended')) return 'Suspended';
  if (has('FailureTarget')) return 'FailureTarget';
  return has('SuccessCriteriaMet') ? 'SuccessCriteriaMet' : 'Running';
}

function duration({ status }: Job): Cell {
  if (status?.startTime === undefined) return '';
  if (status.completionTime === undefined) return { sinceMs: Date.parse(status.startTime) };
  return humanDuration(Date.parse(status.completionTime) - Date.parse(status.startTime));
}

const wide = [
  column('Containers', 'Names of each container in the template.', { wide: true }),
  column('Images', 'Images referenced by each container in the template.', { wide: true }),
  column('Selector', field('batch.v1.JobSpec', 'selector'), { wide: true }),
];

export const jobColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Status', 'Status of the job.'),
    column('Completions', field('batch.v1.JobStatus', 'succeeded')),
    column('Duration', 'Time required to complete the job.'),
    ageColumn,
    ...wide,
  ],
  cells(object) {
    const job = object as Job;
    return [
      nameOf(object),
      state(job),
      completions(job),
      duration(job),
      age(object),
      ...containerCells(job.spec?.template),
      formatLabelSelector(job.spec?.selector),
    ];
  },
};

interface CronJob extends KubeObject {
  spec?: { schedule?: string; timeZone?: string; suspend?: boolean; jobTemplate?: { spec?: Job['spec'] } };
  status?: { active?: unknown[]; lastScheduleTime?: string };
}

export const cronJobColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Schedule', field('batch.v1.CronJobSpec', 'schedule')),
    column('Timezone', field('batch.v1.CronJobSpec', 'timeZone')),
    column('Suspend', field('batch.v1.CronJobSpec', 'suspend'), { type: 'boolean' }),
    column('Active', field('batch.v1.CronJobStatus', 'active'), { type: 'integer' }),
    column('Last Schedule', field('batch.v1.CronJobStatus', 'lastScheduleTime')),
    ageColumn,
    ...wide,
  ],
  cells(object) {
    const { spec, status } = object as CronJob;
    const template = spec?.jobTemplate?.spec;
    return [
      nameOf(object),
      spec?.schedule ?? '',
      spec?.timeZone ?? '<none>',
      spec?.suspend === true ? 'True' : 'False',
      (status?.active ?? []).length,
      status?.lastScheduleTime === undefined ? '<none>' : since(status.lastScheduleTime),
      age(object),
      ...containerCells(template?.template),
      formatLabelSelector(template?.selector),
    ];
  },
};
