/** Defines the strategy of priority classes, and the classes that every cluster has. */
import type { V1PriorityClass } from '@kubernetes/client-node';
import { PREEMPTION_POLICIES } from '../../../../api/kinds/pod-validation.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { newForbidden } from '../../../../api/meta/status-error.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { immutable } from '../field-rules.ts';
import { priorityClassColumns } from './columns.ts';

type PriorityClass = Kind<Pick<V1PriorityClass, 'value' | 'globalDefault' | 'description' | 'preemptionPolicy'>>;

/** The highest value of a class that is not one of the system (`HighestUserDefinablePriority`). */
const HIGHEST_OF_USERS = 1_000_000_000;

/** The priority classes that every cluster has. */
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
  const systemClass = SYSTEM_PRIORITY_CLASSES.find((one) => one.name === name);
  if (systemClass === undefined) return `${name} is not a known system priority class`;
  if (object.value !== systemClass.value) return `value of ${name} PriorityClass must be ${systemClass.value}`;
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

export const schedulingKinds = [kindRow('scheduling.k8s.io', 'priorityclasses', priorityClasses)];
