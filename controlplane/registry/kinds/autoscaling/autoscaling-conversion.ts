/**
 * Converts autoscalers between `autoscaling/v1` and the stored version 2. Version 1 knows only the usage of CPU. Annotations
 * carry all other fields of version 2, so that a client that reads and writes an object through version 1 keeps them.
 */
import { parseExactJson, stringifyJson } from '../../../../api/codec/json.ts';
import type {
  V2HorizontalPodAutoscalerSpec,
  V2HorizontalPodAutoscalerStatus,
  V2HPAScalingRules,
  V2MetricSpec,
  V2MetricStatus,
} from '@kubernetes/client-node';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { sameQuantity } from '../../../../api/meta/quantity.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import type { Conversion } from '../../strategy.ts';

export type Autoscaler = Kind<{ spec: V2HorizontalPodAutoscalerSpec; status: V2HorizontalPodAutoscalerStatus }>;
export type Metric = Wire<V2MetricSpec>;
export type MetricStatus = Wire<V2MetricStatus>;
type Condition = NonNullable<NonNullable<Autoscaler['status']>['conditions']>[number];
export type ScalingRules = Wire<V2HPAScalingRules>;

const PREFIX = 'autoscaling.alpha.kubernetes.io/';
const METRICS = `${PREFIX}metrics`;
const CURRENT = `${PREFIX}current-metrics`;
const CONDITIONS = `${PREFIX}conditions`;
const BEHAVIOR = `${PREFIX}behavior`;
const CARRIED = [
  ...[METRICS, CURRENT, CONDITIONS, BEHAVIOR],
  ...[`${PREFIX}scale-down-tolerance`, `${PREFIX}scale-up-tolerance`],
];

/** Removes the annotations that carry fields of version 2, because a version 2 object has the fields themselves. */
export function dropCarried(object: KubeObject): void {
  const { annotations } = object.metadata;
  if (annotations === undefined) return;
  for (const name of CARRIED) delete annotations[name];
  if (Object.keys(annotations).length === 0) delete object.metadata.annotations;
}

const CPU_DEFAULT = 80;

/** Returns the metric of version 2 for the target that version 1 has: a usage of CPU in percent, 80 by default. */
export const cpuMetric = (averageUtilization = CPU_DEFAULT): Metric => ({
  type: 'Resource',
  resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization } },
});

type Loose = Record<string, unknown>;

/** Leaves out absent members, because Go's JSON omits them. The members keep the order of the older types. */
function members(entries: Loose): Loose {
  return Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== undefined));
}

interface Amount {
  value?: string | undefined;
  averageValue?: string | undefined;
  averageUtilization?: number | undefined;
}

interface Described {
  describedObject?: object | undefined;
  metric?: { name?: string | undefined; selector?: object | undefined } | undefined;
}

/** Selects the prefix of a name in the older form: `target` or `current`. */
type Side = 'target' | 'current';

/** Converts one metric, or the status of one, to the older form. */
function toOld(metric: Metric | MetricStatus, side: Side): Loose {
  const name = (suffix: string): string => `${side}${suffix}`;
  const sideOf = (source: object | undefined): Amount =>
    ((source as Record<Side, Amount> | undefined)?.[side] ?? {}) as Amount;
  const { object, pods, resource, containerResource, external } = metric;
  const described = object as Described | undefined;
  const amounts = { object: sideOf(object), pods: sideOf(pods), external: sideOf(external) };
  // In the older form, a status always has an amount, and a metric may lack it.
  const zero = side === 'current' ? '0' : undefined;
  const resourceMembers = (source: { name?: string | undefined } | undefined): Loose => ({
    name: source?.name,
    [name('AverageUtilization')]: sideOf(source).averageUtilization,
    [name('AverageValue')]: sideOf(source).averageValue ?? zero,
  });
  return members({
    type: metric.type,
    object:
      object === undefined
        ? undefined
        : members({
            target: referenceMembers(described?.describedObject),
            metricName: object.metric?.name ?? '',
            [name('Value')]: amounts.object.value ?? '0',
            selector: object.metric?.selector,
            averageValue: amounts.object.averageValue,
          }),
    pods:
      pods === undefined
        ? undefined
        : members({
            metricName: pods.metric?.name ?? '',
            [name('AverageValue')]: amounts.pods.averageValue ?? '0',
            selector: pods.metric?.selector,
          }),
    resource: resource === undefined ? undefined : members(resourceMembers(resource)),
    external:
      external === undefined
        ? undefined
        : members({
            metricName: external.metric?.name ?? '',
            metricSelector: external.metric?.selector,
            [name('Value')]: amounts.external.value ?? zero,
            [name('AverageValue')]: amounts.external.averageValue,
          }),
    containerResource:
      containerResource === undefined
        ? undefined
        : members({ ...resourceMembers(containerResource), container: containerResource.container }),
  });
}

function referenceMembers(reference: object | undefined): Loose {
  const { kind, name, apiVersion } = (reference ?? {}) as Record<string, unknown>;
  return members({ kind: kind ?? '', name: name ?? '', apiVersion });
}

function conditionMembers({ type, status, lastTransitionTime, reason, message }: Condition): Loose {
  return members({ type, status, lastTransitionTime: lastTransitionTime ?? null, reason, message });
}

const isObject = (value: unknown): value is Loose => typeof value === 'object' && value !== null;
const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : undefined;
const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** Converts one metric, or the status of one, from the older form. */
function fromOld(old: Loose, side: Side): Loose {
  const read = (source: Loose, suffix: string): unknown => source[`${side}${suffix}`];
  const typed = (type: string, amount: Loose): Loose => members(side === 'target' ? { type, ...amount } : amount);
  const identifier = (name: unknown, selector: unknown): Loose => members({ name: name ?? '', selector });
  const zero = side === 'current' ? '0' : undefined;
  const resource = (source: Loose): Loose => {
    const utilization = numberOf(read(source, 'AverageUtilization'));
    const averageValue = textOf(read(source, 'AverageValue')) ?? zero;
    const type = utilization === undefined ? 'AverageValue' : 'Utilization';
    return { name: source['name'] ?? '', [side]: typed(type, { averageUtilization: utilization, averageValue }) };
  };
  const { object, pods, external, containerResource } = old;
  const converted: Loose = { type: old['type'] ?? '' };
  if (isObject(object)) {
    const averageValue = textOf(object['averageValue']);
    const value = textOf(read(object, 'Value')) ?? '0';
    // The older type of a metric always has a value, also where the metric is an average.
    const isValue = averageValue === undefined || side === 'current' || !sameQuantity(value, '0');
    converted['object'] = {
      describedObject: object['target'] ?? {},
      metric: identifier(object['metricName'], object['selector']),
      [side]: typed(averageValue === undefined ? 'Value' : 'AverageValue', {
        value: isValue ? value : undefined,
        averageValue,
      }),
    };
  }
  if (isObject(pods)) {
    converted['pods'] = {
      metric: identifier(pods['metricName'], pods['selector']),
      [side]: typed('AverageValue', { averageValue: textOf(read(pods, 'AverageValue')) ?? '0' }),
    };
  }
  if (isObject(old['resource'])) converted['resource'] = resource(old['resource']);
  if (isObject(containerResource)) {
    converted['containerResource'] = {
      ...resource(containerResource),
      container: containerResource['container'] ?? '',
    };
  }
  if (isObject(external)) {
    const value = textOf(read(external, 'Value')) ?? zero;
    const averageValue = textOf(read(external, 'AverageValue'));
    converted['external'] = {
      metric: identifier(external['metricName'], external['metricSelector']),
      [side]: typed(value === undefined ? 'AverageValue' : 'Value', { value, averageValue }),
    };
  }
  return converted;
}

// The text of `behavior` has the field names of kube-apiserver's internal type.

const RULE_NAMES = ['StabilizationWindowSeconds', 'SelectPolicy', 'Policies', 'Tolerance'] as const;
const lowerFirst = (name: string): string => name.charAt(0).toLowerCase() + name.slice(1);

function rulesToText(rules: ScalingRules | undefined): Loose | null {
  if (rules === undefined) return null;
  return {
    StabilizationWindowSeconds: rules.stabilizationWindowSeconds ?? null,
    SelectPolicy: rules.selectPolicy ?? null,
    Policies:
      rules.policies?.map(({ type, value, periodSeconds }) => ({
        Type: type,
        Value: value,
        PeriodSeconds: periodSeconds,
      })) ?? null,
    Tolerance: rules.tolerance ?? null,
  };
}

function rulesFromText(rules: unknown): Loose | undefined {
  if (!isObject(rules)) return undefined;
  const found: Loose = {};
  for (const name of RULE_NAMES) {
    const value = rules[name];
    if (value === undefined || value === null) continue;
    found[lowerFirst(name)] = Array.isArray(value)
      ? value
          .filter(isObject)
          .map((policy) => Object.fromEntries(Object.entries(policy).map(([key, inner]) => [lowerFirst(key), inner])))
      : value;
  }
  return found;
}

interface VersionOne extends KubeObject {
  spec?: Loose & { targetCPUUtilizationPercentage?: number };
  status?: Loose;
}

const isCpuUse = ({ type, resource }: Metric): boolean =>
  type === 'Resource' && resource?.name === 'cpu' && resource.target?.averageUtilization !== undefined;

function fromStored(object: KubeObject): KubeObject {
  const { spec, status } = object as Autoscaler;
  const metrics = spec?.metrics ?? [];
  const carried: Record<string, string> = {};
  const others = metrics.filter((metric) => !isCpuUse(metric));
  if (others.length > 0) carried[METRICS] = stringifyJson(others.map((one) => toOld(one, 'target')));
  const current = status?.currentMetrics ?? [];
  if (current.length > 0) carried[CURRENT] = stringifyJson(current.map((one) => toOld(one, 'current')));
  if ((status?.conditions ?? []).length > 0)
    carried[CONDITIONS] = stringifyJson(status?.conditions?.map(conditionMembers));
  if (isObject(spec?.behavior)) {
    const { scaleUp, scaleDown } = spec?.behavior ?? {};
    carried[BEHAVIOR] = stringifyJson({ ScaleUp: rulesToText(scaleUp), ScaleDown: rulesToText(scaleDown) });
  }
  if (Object.keys(carried).length > 0) object.metadata.annotations = { ...object.metadata.annotations, ...carried };
  object.apiVersion = 'autoscaling/v1';
  const uses = current.map(({ type, resource }) => (type === 'Resource' && resource?.name === 'cpu' ? resource : {}));
  const currentUse = uses.findLast((use) => 'current' in use && use.current?.averageUtilization !== undefined);
  object['spec'] = members({
    scaleTargetRef: spec?.scaleTargetRef ?? {},
    minReplicas: spec?.minReplicas,
    maxReplicas: spec?.maxReplicas ?? 0,
    targetCPUUtilizationPercentage: metrics.find(isCpuUse)?.resource?.target?.averageUtilization,
  });
  object['status'] = members({
    observedGeneration: status?.observedGeneration,
    lastScaleTime: status?.lastScaleTime,
    currentReplicas: status?.currentReplicas ?? 0,
    desiredReplicas: status?.desiredReplicas ?? 0,
    currentCPUUtilizationPercentage: currentUse?.current?.averageUtilization,
  });
  return object;
}

/** Parses the value of an annotation. A value that is invalid JSON counts as missing. */
function carriedOf(object: KubeObject, name: string): unknown {
  const text = ownMember(object.metadata.annotations, name);
  if (text === undefined) return undefined;
  try {
    return parseExactJson(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function toStored(object: KubeObject): KubeObject {
  const one = object as VersionOne;
  const { targetCPUUtilizationPercentage: use, ...spec } = one.spec ?? {};
  const { currentCPUUtilizationPercentage: currentUse, ...status } = one.status ?? {};
  const carried = carriedOf(object, METRICS);
  const metrics: unknown[] = Array.isArray(carried)
    ? carried.filter(isObject).map((old) => fromOld(old, 'target'))
    : [];
  if (use !== undefined) metrics.push(cpuMetric(use));
  if (metrics.length === 0) metrics.push(cpuMetric());
  spec['metrics'] = metrics;
  const behavior = carriedOf(object, BEHAVIOR);
  if (isObject(behavior)) {
    const found = members({
      scaleUp: rulesFromText(behavior['ScaleUp']),
      scaleDown: rulesFromText(behavior['ScaleDown']),
    });
    if (Object.keys(found).length > 0) spec['behavior'] = found;
  }
  const current = carriedOf(object, CURRENT);
  if (Array.isArray(current)) status['currentMetrics'] = current.filter(isObject).map((old) => fromOld(old, 'current'));
  else if (currentUse !== undefined && currentUse !== null) {
    status['currentMetrics'] = [
      { type: 'Resource', resource: { name: 'cpu', current: { averageUtilization: currentUse } } },
    ];
  }
  const conditions = carriedOf(object, CONDITIONS);
  if (Array.isArray(conditions)) status['conditions'] = conditions;
  object.apiVersion = 'autoscaling/v2';
  object['spec'] = spec;
  object['status'] = status;
  dropCarried(object);
  return object;
}

/** Converts between `autoscaling/v1` and the stored version 2. */
export const versionOne: Conversion = {
  applyDefaults(object) {
    const spec = (object['spec'] ??= {}) as Loose;
    spec['minReplicas'] ??= 1;
  },
  isLossy: true,
  // Sets empty lists of policies, because version 1 does not default the policies of a rule and validation requires the field.
  withholdDefaults(stored) {
    const { scaleUp, scaleDown } = (stored as Autoscaler).spec?.behavior ?? {};
    for (const found of [scaleUp, scaleDown]) if (found !== undefined) found.policies ??= [];
  },
  toStored,
  fromStored,
};
