/** Defines the table columns of autoscalers, disruption budgets, priority classes and quotas. */
import type {
  V1PodDisruptionBudgetSpec,
  V1PodDisruptionBudgetStatus,
  V1PriorityClass,
  V1ResourceQuotaStatus,
  V2HorizontalPodAutoscalerSpec,
  V2HorizontalPodAutoscalerStatus,
  V2MetricSpec,
  V2MetricStatus,
} from '@kubernetes/client-node';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

const integer = { type: 'integer' } as const;

type Metric = Wire<V2MetricSpec>;
type Current = Wire<V2MetricStatus>;
interface Amount {
  value?: string | undefined;
  averageValue?: string | undefined;
  averageUtilization?: number | undefined;
}

const UNKNOWN = '<unknown>';

function resourceText(name: string, target: Amount | undefined, current: Amount | undefined): string {
  if (target?.averageValue !== undefined) return `${name}: ${current?.averageValue ?? UNKNOWN}/${target.averageValue}`;
  const now = current?.averageUtilization;
  const wanted = target?.averageUtilization === undefined ? '<auto>' : `${target.averageUtilization}%`;
  return `${name}: ${now === undefined ? UNKNOWN : `${now}%`}/${wanted}`;
}

function valueText(target: Amount | undefined, current: Amount | undefined): string {
  if (target?.averageValue !== undefined) return `${current?.averageValue ?? UNKNOWN}/${target.averageValue} (avg)`;
  return `${current?.value ?? UNKNOWN}/${target?.value ?? ''}`;
}

function metricText(metric: Metric, current: Current | undefined): string {
  switch (metric.type) {
    case 'External':
      return valueText(metric.external?.target, current?.external?.current);
    case 'Object':
      return valueText(metric.object?.target, current?.object?.current);
    case 'Pods':
      return `${current?.pods?.current?.averageValue ?? UNKNOWN}/${metric.pods?.target?.averageValue ?? ''}`;
    case 'Resource':
      return resourceText(metric.resource?.name ?? '', metric.resource?.target, current?.resource?.current);
    case 'ContainerResource':
      return resourceText(
        metric.containerResource?.name ?? '',
        metric.containerResource?.target,
        current?.containerResource?.current,
      );
    default:
      return '<unknown type>';
  }
}

const SHOWN_METRICS = 2;

function metricTexts(metrics: readonly Metric[], current: readonly Current[]): string {
  if (metrics.length === 0) return '<none>';
  const texts = metrics.map((metric, index) => metricText(metric, current[index]));
  const shown = texts.slice(0, SHOWN_METRICS).join(', ');
  return texts.length > SHOWN_METRICS ? `${shown} + ${texts.length - SHOWN_METRICS} more...` : shown;
}

export const autoscalerColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Reference', field('autoscaling.v2.HorizontalPodAutoscalerSpec', 'scaleTargetRef')),
    column('Targets', field('autoscaling.v2.HorizontalPodAutoscalerSpec', 'metrics')),
    column('MinPods', field('autoscaling.v2.HorizontalPodAutoscalerSpec', 'minReplicas')),
    column('MaxPods', field('autoscaling.v2.HorizontalPodAutoscalerSpec', 'maxReplicas')),
    column('Replicas', field('autoscaling.v2.HorizontalPodAutoscalerStatus', 'currentReplicas')),
    ageColumn,
  ],
  cells(object) {
    const { spec, status } = object as Kind<{
      spec: V2HorizontalPodAutoscalerSpec;
      status: V2HorizontalPodAutoscalerStatus;
    }>;
    const target = spec?.scaleTargetRef;
    return [
      nameOf(object),
      `${target?.kind ?? ''}/${target?.name ?? ''}`,
      metricTexts(spec?.metrics ?? [], status?.currentMetrics ?? []),
      String(spec?.minReplicas ?? '<unset>'),
      spec?.maxReplicas ?? 0,
      status?.currentReplicas ?? 0,
      age(object),
    ];
  },
};

export const budgetColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Min Available', 'The minimum number of pods that must be available.'),
    column('Max Unavailable', 'The maximum number of pods that may be unavailable.'),
    column('Allowed Disruptions', 'Calculated number of pods that may be disrupted at this time.', integer),
    ageColumn,
  ],
  cells(object) {
    const { spec, status } = object as Kind<{ spec: V1PodDisruptionBudgetSpec; status: V1PodDisruptionBudgetStatus }>;
    return [
      nameOf(object),
      String(spec?.minAvailable ?? 'N/A'),
      String(spec?.maxUnavailable ?? 'N/A'),
      status?.disruptionsAllowed ?? 0,
      age(object),
    ];
  },
};

export const priorityClassColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Value', field('scheduling.v1.PriorityClass', 'value'), integer),
    column('Global-Default', field('scheduling.v1.PriorityClass', 'globalDefault'), { type: 'boolean' }),
    ageColumn,
    column('PreemptionPolicy', field('scheduling.v1.PriorityClass', 'preemptionPolicy')),
  ],
  cells(object) {
    const { value, globalDefault, preemptionPolicy } = object as Kind<
      Pick<V1PriorityClass, 'value' | 'globalDefault' | 'preemptionPolicy'>
    >;
    return [nameOf(object), value ?? 0, globalDefault === true, age(object), preemptionPolicy ?? '<unset>'];
  },
};

export const quotaColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Request', 'Request represents a minimum amount of cpu/memory that a container may consume.'),
    column(
      'Limit',
      'Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.',
    ),
    ageColumn,
  ],
  cells(object) {
    const { status } = object as Kind<{ status: V1ResourceQuotaStatus }>;
    const hard = (status?.hard ?? {}) as Record<string, string>;
    const used = (status?.used ?? {}) as Record<string, string>;
    const requests: string[] = [];
    const limits: string[] = [];
    for (const name of Object.keys(hard).sort()) {
      (name.startsWith('limits.') ? limits : requests).push(
        `${name}: ${ownMember(used, name) ?? '0'}/${ownMember(hard, name) ?? '0'}`,
      );
    }
    return [nameOf(object), requests.join(', '), limits.join(', '), age(object)];
  },
};
