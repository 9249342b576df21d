/**
 * Defines the strategy of horizontal pod autoscalers. They are stored in version 2, and `autoscaling-conversion.ts` converts
 * version 1.
 */
import { containerResourceNameErrors } from '../../../../api/kinds/resource-validation.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { parseApiVersion } from '../../../../api/meta/object.ts';
import { pathSegmentErrors } from '../../../../api/meta/names.ts';
import { parseQuantity } from '../../../../api/meta/quantity.ts';
import { autoscalerColumns } from './columns.ts';
import { restore, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import {
  cpuMetric,
  dropCarried,
  versionOne,
  type Autoscaler,
  type Metric,
  type ScalingRules,
} from './autoscaling-conversion.ts';
import { dnsLabel, nonNegative } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const METRIC_TYPES = ['ContainerResource', 'External', 'Object', 'Pods', 'Resource'];
const MAX_WINDOW_SECONDS = 3600;
const MAX_PERIOD_SECONDS = 1800;

const UP_POLICIES = [
  { type: 'Pods', value: 4, periodSeconds: 15 },
  { type: 'Percent', value: 100, periodSeconds: 15 },
] as const;
const DOWN_POLICIES = [{ type: 'Percent', value: 100, periodSeconds: 15 }] as const;

function applyDefaults(object: Autoscaler): void {
  dropCarried(object);
  const spec = (object.spec ??= {});
  spec.minReplicas ??= 1;
  if ((spec.metrics ?? []).length === 0) spec.metrics = [cpuMetric()];
  if (spec.behavior === undefined) return;
  const up = (spec.behavior.scaleUp ??= {});
  up.stabilizationWindowSeconds ??= 0;
  up.selectPolicy ??= 'Max';
  up.policies ??= UP_POLICIES.map((policy) => ({ ...policy }));
  const down = (spec.behavior.scaleDown ??= {});
  down.selectPolicy ??= 'Max';
  down.policies ??= DOWN_POLICIES.map((policy) => ({ ...policy }));
}

interface Reference {
  apiVersion?: string | undefined;
  kind?: string | undefined;
  name?: string | undefined;
}

function segmentErrors(field: string, value: string | undefined): FieldError[] {
  return (value ?? '') === '' ? [required(field)] : invalidFor(field, value, pathSegmentErrors(value ?? ''));
}

function referenceErrors(reference: Reference, at: string, { needsGroup }: { needsGroup: boolean }): FieldError[] {
  const { kind, name, apiVersion = '' } = reference;
  const errors = [...segmentErrors(`${at}.kind`, kind), ...segmentErrors(`${at}.name`, name)];
  const gv = parseApiVersion(apiVersion);
  if (gv === undefined)
    errors.push(invalid(`${at}.apiVersion`, apiVersion, `unexpected GroupVersion string: ${apiVersion}`));
  else if (needsGroup && gv.group === '' && !(kind === 'ReplicationController' && gv.version === 'v1'))
    errors.push(invalid(`${at}.apiVersion`, apiVersion, 'apiVersion must specify API group'));
  return errors;
}

interface Target {
  type?: string | undefined;
  value?: string | undefined;
  averageValue?: string | undefined;
  averageUtilization?: number | undefined;
}

const isPositive = (quantity: string): boolean => parseQuantity(quantity).nano > 0n;

function targetErrors(target: Target, at: string): FieldError[] {
  const { type = '', value, averageValue, averageUtilization: use } = target;
  const errors: FieldError[] = [];
  if (type === '') errors.push(required(`${at}.type`, 'must specify a metric target type'));
  if (!['Utilization', 'Value', 'AverageValue'].includes(type))
    errors.push(invalid(`${at}.type`, type, 'must be either Utilization, Value, or AverageValue'));
  if (value !== undefined && !isPositive(value)) errors.push(invalid(`${at}.value`, value, 'must be positive'));
  if (averageValue !== undefined && !isPositive(averageValue))
    errors.push(invalid(`${at}.averageValue`, averageValue, 'must be positive'));
  if (use !== undefined && use < 1) errors.push(invalid(`${at}.averageUtilization`, use, 'must be greater than 0'));
  return errors;
}

function identifierErrors(metric: { name?: string | undefined } | undefined, at: string): FieldError[] {
  const name = metric?.name ?? '';
  if (name === '') return [required(`${at}.name`, 'must specify a metric name')];
  return invalidFor(`${at}.name`, name, pathSegmentErrors(name));
}

/** Validates the target of a resource metric: it is either a utilization or an average value. */
function resourceTargetErrors(target: Target, at: string): FieldError[] {
  const errors = targetErrors(target, at);
  const { averageUtilization: use, averageValue } = target;
  if (use === undefined && averageValue === undefined)
    errors.push(required(`${at}.averageUtilization`, 'must set either a target raw value or a target utilization'));
  if (use !== undefined && averageValue !== undefined)
    errors.push(forbidden(`${at}.averageValue`, 'may not set both a target raw value and a target utilization'));
  return errors;
}

const nameErrors = (name: string | undefined, at: string): FieldError[] =>
  (name ?? '') === '' ? [required(`${at}.name`, 'must specify a resource name')] : [];

/** Validates the resource name and the container name of a container resource metric. */
function containerErrors(name: string, container: string, at: string): FieldError[] {
  return [
    ...(name === ''
      ? [required(`${at}.name`, 'must specify a resource name')]
      : containerResourceNameErrors(`${at}.name`, name)),
    ...(container === ''
      ? [required(`${at}.container`, 'must specify a container')]
      : dnsLabel(`${at}.container`, container)),
  ];
}

/** The sources of a metric, in the order in which kube-apiserver validates them. */
const SOURCES: readonly (readonly [keyof Metric & string, string, (metric: Metric, at: string) => FieldError[]])[] = [
  [
    'object',
    'Object',
    ({ object }, at) => {
      const target = object?.target ?? {};
      return [
        ...referenceErrors(object?.describedObject ?? {}, `${at}.describedObject`, { needsGroup: false }),
        ...identifierErrors(object?.metric, `${at}.metric`),
        ...targetErrors(target, `${at}.target`),
        ...(target.value === undefined && target.averageValue === undefined
          ? [required(`${at}.target.averageValue`, 'must set either a target value or averageValue')]
          : []),
      ];
    },
  ],
  [
    'external',
    'External',
    ({ external }, at) => {
      const { value, averageValue } = external?.target ?? {};
      const errors = [
        ...identifierErrors(external?.metric, `${at}.metric`),
        ...targetErrors(external?.target ?? {}, `${at}.target`),
      ];
      if (value === undefined && averageValue === undefined)
        errors.push(
          required(`${at}.target.averageValue`, 'must set either a target value for metric or a per-pod target'),
        );
      if (value !== undefined && averageValue !== undefined)
        errors.push(forbidden(`${at}.target.value`, 'may not set both a target value for metric and a per-pod target'));
      return errors;
    },
  ],
  [
    'pods',
    'Pods',
    ({ pods }, at) => {
      return [
        ...identifierErrors(pods?.metric, `${at}.metric`),
        ...targetErrors(pods?.target ?? {}, `${at}.target`),
        ...(pods?.target?.averageValue === undefined
          ? [required(`${at}.target.averageValue`, 'must specify a positive target averageValue')]
          : []),
      ];
    },
  ],
  [
    'resource',
    'Resource',
    ({ resource }, at) => [
      ...nameErrors(resource?.name, at),
      ...resourceTargetErrors(resource?.target ?? {}, `${at}.target`),
    ],
  ],
  [
    'containerResource',
    'ContainerResource',
    ({ containerResource: source }, at) => [
      ...containerErrors(source?.name ?? '', source?.container ?? '', at),
      ...resourceTargetErrors(source?.target ?? {}, `${at}.target`),
    ],
  ],
];

function metricErrors(metric: Metric, at: string): FieldError[] {
  const { type = '' } = metric;
  const errors: FieldError[] = [];
  if (type === '') errors.push(required(`${at}.type`, 'must specify a metric source type'));
  if (!METRIC_TYPES.includes(type)) errors.push(notSupported(`${at}.type`, type, METRIC_TYPES));
  const present = SOURCES.filter(([name]) => metric[name] !== undefined);
  const [first] = present;
  if (first !== undefined) errors.push(...first[2](metric, `${at}.${first[0]}`));
  const expected = SOURCES.find(([, title]) => title === type)?.[0];
  // kube-apiserver checks the type a second time here, which repeats the cause.
  if (expected === undefined) errors.push(notSupported(`${at}.type`, type, METRIC_TYPES));
  if (expected !== undefined && metric[expected] === undefined)
    errors.push(required(`${at}.${expected}`, 'must populate information for the given metric source'));
  if (present.length > 1)
    for (const [name] of present)
      if (name !== expected) errors.push(forbidden(`${at}.${name}`, 'must populate the given metric source only'));
  return errors;
}

function rulesErrors(rules: ScalingRules | undefined, at: string): FieldError[] {
  if (rules === undefined) return [];
  const { stabilizationWindowSeconds: window, selectPolicy, policies = [], tolerance } = rules;
  const errors: FieldError[] = [];
  if (window !== undefined && window < 0)
    errors.push(invalid(`${at}.stabilizationWindowSeconds`, window, 'must be greater than or equal to zero'));
  if (window !== undefined && window > MAX_WINDOW_SECONDS)
    errors.push(
      invalid(`${at}.stabilizationWindowSeconds`, window, `must be less than or equal to ${MAX_WINDOW_SECONDS}`),
    );
  if (selectPolicy !== undefined && !['Max', 'Min', 'Disabled'].includes(selectPolicy))
    errors.push(notSupported(`${at}.selectPolicy`, selectPolicy, ['Max', 'Min', 'Disabled']));
  if (policies.length === 0) errors.push(required(`${at}.policies`, 'must specify at least one Policy'));
  for (const [index, policy] of policies.entries()) errors.push(...policyErrors(policy, `${at}.policies[${index}]`));
  if (tolerance !== undefined && parseQuantity(tolerance).nano < 0n)
    errors.push(invalid(`${at}.tolerance`, tolerance, 'must be greater than or equal to 0'));
  return errors;
}

function policyErrors(
  policy: { type?: string | undefined; value?: number | undefined; periodSeconds?: number | undefined },
  at: string,
): FieldError[] {
  const { type = '', value = 0, periodSeconds = 0 } = policy;
  const errors: FieldError[] = [];
  if (!['Pods', 'Percent'].includes(type)) errors.push(notSupported(`${at}.type`, type, ['Pods', 'Percent']));
  if (value <= 0) errors.push(invalid(`${at}.value`, value, 'must be greater than zero'));
  if (periodSeconds <= 0) errors.push(invalid(`${at}.periodSeconds`, periodSeconds, 'must be greater than zero'));
  if (periodSeconds > MAX_PERIOD_SECONDS)
    errors.push(invalid(`${at}.periodSeconds`, periodSeconds, `must be less than or equal to ${MAX_PERIOD_SECONDS}`));
  return errors;
}

/**
 * Validates an autoscaler. Its target may lack an API group only if it is a ReplicationController or the target of `old` has
 * none, and its minimum may be 0 only if that of `old` is 0.
 */
function autoscalerErrors(object: Autoscaler, old?: Autoscaler): FieldError[] {
  const { minReplicas, maxReplicas = 0, metrics = [], scaleTargetRef, behavior } = object.spec ?? {};
  const errors: FieldError[] = [];
  const lowest = old?.spec?.minReplicas === 0 ? 0 : 1;
  if (minReplicas !== undefined && minReplicas < lowest)
    errors.push(invalid('spec.minReplicas', minReplicas, `must be greater than or equal to ${lowest}`));
  if (maxReplicas === 0) errors.push(required('spec.maxReplicas', 'must be set and greater than 0'));
  if (maxReplicas < 0) errors.push(invalid('spec.maxReplicas', maxReplicas, 'must be greater than or equal to 1'));
  if (minReplicas !== undefined && maxReplicas < minReplicas)
    errors.push(invalid('spec.maxReplicas', maxReplicas, 'must be greater than or equal to `minReplicas`'));
  const before = old === undefined ? undefined : parseApiVersion(old.spec?.scaleTargetRef?.apiVersion ?? '');
  const needsGroup = old === undefined || (before !== undefined && before.group !== '');
  errors.push(...referenceErrors(scaleTargetRef ?? {}, 'spec.scaleTargetRef', { needsGroup }));
  for (const [index, metric] of metrics.entries()) errors.push(...metricErrors(metric, `spec.metrics[${index}]`));
  if (minReplicas === 0 && !metrics.some(({ type }) => type === 'Object' || type === 'External'))
    errors.push(
      forbidden(
        'spec.metrics',
        'must specify at least one Object or External metric to support scaling to zero replicas',
      ),
    );
  errors.push(...rulesErrors(behavior?.scaleUp, 'spec.behavior.scaleUp'));
  errors.push(...rulesErrors(behavior?.scaleDown, 'spec.behavior.scaleDown'));
  return errors;
}

const autoscalers: Strategy<Autoscaler> = {
  metadataChecks: ['update'],
  applyDefaults,
  prepareForCreate: (object) => void (object.status = { currentReplicas: 0, desiredReplicas: 0 }),
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: (object) => autoscalerErrors(object),
  validateUpdate: (object, old) => autoscalerErrors(object, old),
  resetFields: [['status']],
  columns: autoscalerColumns,
  status: {
    ...(statusOnly as UpdateStrategy<Autoscaler>),
    validateUpdate: ({ status }) => [
      ...nonNegative('status.currentReplicas', status?.currentReplicas),
      ...nonNegative('status.desiredReplicas', status?.desiredReplicas),
    ],
  },
};

export const autoscalingKinds = [kindRow('autoscaling', 'horizontalpodautoscalers', autoscalers, { v1: versionOne })];
