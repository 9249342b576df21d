/** Defines the strategy of disruption budgets. */
import type { V1LabelSelector, V1PodDisruptionBudgetSpec, V1PodDisruptionBudgetStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { conditionErrors, type CommonCondition } from '../../../../api/meta/conditions.ts';
import { type FieldError, invalid, notSupported } from '../../../../api/meta/field-error.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import { nameIsPathSegment } from '../../../../api/meta/names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { budgetColumns } from './columns.ts';
import { specAndStatus, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { countOrPercentErrors, notAbove100 } from '../apps/workload-rules.ts';
import { nonNegative } from '../field-rules.ts';

type Budget = Kind<{ spec: V1PodDisruptionBudgetSpec; status: V1PodDisruptionBudgetStatus }>;

const EVICTION_POLICIES = ['AlwaysAllow', 'IfHealthyBudget'];

function shareErrors(path: string, value: string | number | undefined): FieldError[] {
  return [...countOrPercentErrors(path, value), ...notAbove100(path, value)];
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

export const policyKinds = [kindRow('policy', 'poddisruptionbudgets', budgets)];
