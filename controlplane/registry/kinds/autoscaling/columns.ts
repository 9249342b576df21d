/** Defines the table columns of autoscalers. */
import type {
  V2HorizontalPodAutoscalerSpec,
  V2HorizontalPodAutoscalerStatus,
  V2MetricSpec,
  V2MetricStatus,
} from '@kubernetes/client-node';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

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
