/** Defines the strategies of disruption budgets and priority classes. */
import type {
  V1LabelSelector,
  V1PodDisruptionBudgetSpec,
  V1PodDisruptionBudgetStatus,
  V1PriorityClass,
} from '@kubernetes/client-node';
import { PREEMPTION_POLICIES } from '../../../../api/kinds/pod-validation.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { conditionErrors, type CommonCondition } from '../../../../api/meta/conditions.ts';
import {
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  unsupportedValue,
} from '../../../../api/meta/field-error.ts';
import { parsePercent } from '../../../../api/meta/intstr.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import { newForbidden } from '../../../../api/meta/status-error.ts';
import { nameIsPathSegment } from '../../../../api/meta/names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { budgetColumns, priorityClassColumns } from './columns.ts';
import { specAndStatus, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { countOrPercentErrors } from '../apps/workload-rules.ts';
import { immutable, nonNegative } from '../field-rules.ts';

type Budget = Kind<{ spec: V1PodDisruptionBudgetSpec; status: V1PodDisruptionBudgetStatus }>;

const EVICTION_POLICIES = ['AlwaysAllow', 'IfHealthyBudget'];

function shareErrors(path: string, value: string | number | undefined): FieldError[] {
  if (value === undefined) return [];
  const percent = typeof value === 'string' ? parsePercent(value) : undefined;
  return [
    ...countOrPercentErrors(path, value),
    ...(percent !== undefined && percent > 100 ? [invalid(path, value, 'must not be greater than 100%')] : []),
  ];
}

function budgetErrors(object: Budget): FieldError[] {
  const spec = object.spec ?? {};
  const {
    minAvailable,
    maxUnavailable,
    selector,
    unhealthyPodEvictionPolicy: policy,
  } = spec as {
    minAvailable?: string | number;
    maxUnavailable?: string | number;
    selector?: V1LabelSelector;
    unhealthyPodEvictionPolicy?: string;
  };
  const errors: FieldError[] = [];
  if (minAvailable !== undefined && maxUnavailable !== undefined)
    errors.push(
      invalid(
        'spec',
        internalForm('io.k8s.api.policy.v1.PodDisruptionBudgetSpec', spec),
        'minAvailable and maxUnavailable cannot be both set',
      ),
    );
  errors.push(...shareErrors('spec.minAvailable', minAvailable), ...shareErrors('spec.maxUnavailable', maxUnavailable));
  if (selector !== undefined) errors.push(...validateLabelSelector(selector, 'spec.selector'));
  if (policy !== undefined && !EVICTION_POLICIES.includes(policy))
    errors.push(notSupported('spec.unhealthyPodEvictionPolicy', policy, EVICTION_POLICIES));
  return errors;
}

const COUNTS = ['disruptionsAllowed', 'currentHealthy', 'desiredHealthy', 'expectedPods'] as const;

const budgets: Strategy<Budget> = {
  metadataChecks: [],
  ...specAndStatus,
  nameRule: nameIsPathSegment,
  requiresResourceVersion: true,
  prepareForCreate(object) {
    object.status = { disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0 };
  },
  validateCreate: budgetErrors,
  validateUpdate: budgetErrors,
  columns: budgetColumns,
  status: {
    ...(statusOnly as UpdateStrategy<Budget>),
    validateUpdate: (object) => [
      ...conditionErrors(object.status?.conditions as readonly CommonCondition[] | undefined, 'status.conditions'),
      ...COUNTS.flatMap((name) => nonNegative(`status.${name}`, object.status?.[name])),
    ],
  },
};

type PriorityClass = Kind<Pick<V1PriorityClass, 'value' | 'globalDefault' | 'description' | 'preemptionPolicy'>>;

/** The highest value of a class that is not one of the system (`HighestUserDefinablePriority`). */
const HIGHEST_OF_USERS = 1_000_000_000;

/** The priority classes that every cluster has. Pods that the cluster needs have one of them. */
export const SYSTEM_PRIORITY_CLASSES = [
  {
    name: 'system-node-critical',
    value: 2_000_001_000,
    description: 'Used for system critical pods that must not be moved from their current node.',
  },
  {
    name: 'system-cluster-critical',
    value: 2_000_000_000,
    description:
      'Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.',
  },
] as const;

function systemNameProblem(name: string, object: PriorityClass): string | undefined {
  const known = SYSTEM_PRIORITY_CLASSES.find((one) => one.name === name);
  if (known === undefined) return `${name} is not a known system priority class`;
  if (object.value !== known.value) return `value of ${name} PriorityClass must be ${known.value}`;
  return object.globalDefault === true ? `globalDefault of ${name} PriorityClass must be false` : undefined;
}

function priorityErrors(object: PriorityClass): FieldError[] {
  const errors: FieldError[] = [];
  const { name = '' } = object.metadata;
  if (name.startsWith('system-')) {
    const problem = systemNameProblem(name, object);
    if (problem !== undefined) {
      const text = "priority class names with 'system-' prefix are reserved for system use only. error: ";
      errors.push(forbidden('metadata.name', text + problem));
    }
  } else if ((object.value ?? 0) > HIGHEST_OF_USERS)
    errors.push(forbidden('value', `maximum allowed value of a user defined priority is ${HIGHEST_OF_USERS}`));
  const policy = object.preemptionPolicy;
  if (policy === '') errors.push(required('preemptionPolicy'));
  else if (policy !== undefined && !PREEMPTION_POLICIES.includes(policy))
    errors.push(unsupportedValue('preemptionPolicy', policy, PREEMPTION_POLICIES));
  return errors;
}

const priorityClasses: Strategy<PriorityClass> = {
  metadataChecks: ['update'],
  managesGeneration: true,
  applyDefaults(object) {
    object.preemptionPolicy ??= 'PreemptLowerPriority';
  },
  validateCreate: priorityErrors,
  validateUpdate: (object, old) => [
    ...(object.value === old.value ? [] : [forbidden('value', 'may not be changed in an update.')]),
    ...immutable('preemptionPolicy', object.preemptionPolicy, old.preemptionPolicy),
  ],
  checkDelete(object) {
    const { name = '' } = object.metadata;
    if (SYSTEM_PRIORITY_CLASSES.some((one) => one.name === name))
      throw newForbidden(
        { group: 'scheduling.k8s.io', resource: 'priorityclasses' },
        name,
        'this is a system priority class and cannot be deleted',
      );
  },
  columns: priorityClassColumns,
};

export const policyKinds = [
  kindRow('policy', 'poddisruptionbudgets', budgets),
  kindRow('scheduling.k8s.io', 'priorityclasses', priorityClasses),
];
