/** Defines the strategy of deployments: defaults and validation. */
import type { V1DeploymentSpec } from '@kubernetes/client-node';
import { type FieldError, forbidden, invalid, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { deploymentColumns } from './columns.ts';
import { statusWithoutLabels, specChanged } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { immutable, nonNegative } from '../field-rules.ts';
import { LABEL_SELECTOR } from '../../../../api/schema/semantic-equality.ts';
import {
  collisionErrors,
  countErrors,
  countOrPercentErrors,
  isZero,
  selectedTemplateErrors,
  namedTemplateWarnings,
  notAbove100,
  notMoreThanReady,
  notMoreThanReplicas,
  selectorErrors,
  templateDefaults,
  templated,
  templateWarnings,
  type Templated,
} from './workload-rules.ts';

type Deployment = Templated<V1DeploymentSpec>;

function deploymentErrors(object: Deployment): FieldError[] {
  const spec = object.spec ?? {};
  const errors = nonNegative('spec.replicas', spec.replicas);
  errors.push(...selectorErrors(spec.selector, 'empty selector is invalid for deployment'));
  errors.push(...selectedTemplateErrors(spec, 'ReplicaSet'));
  errors.push(...deploymentStrategyErrors(spec), ...nonNegative('spec.minReadySeconds', spec.minReadySeconds));
  errors.push(...nonNegative('spec.revisionHistoryLimit', spec.revisionHistoryLimit));
  const { progressDeadlineSeconds: deadline } = spec;
  if (deadline !== undefined) {
    errors.push(...nonNegative('spec.progressDeadlineSeconds', deadline));
    if (deadline <= (spec.minReadySeconds ?? 0))
      errors.push(invalid('spec.progressDeadlineSeconds', deadline, 'must be greater than minReadySeconds'));
  }
  return errors;
}

function deploymentStrategyErrors(spec: NonNullable<Deployment['spec']>): FieldError[] {
  const { type, rollingUpdate } = spec.strategy ?? {};
  const path = 'spec.strategy';
  if (type === 'Recreate') {
    return rollingUpdate === undefined
      ? []
      : [forbidden(`${path}.rollingUpdate`, "may not be specified when strategy `type` is 'Recreate'")];
  }
  if (type !== 'RollingUpdate')
    return [
      unsupportedValue(path, internalForm('io.k8s.api.apps.v1.DeploymentStrategy', spec.strategy ?? {}), [
        'Recreate',
        'RollingUpdate',
      ]),
    ];
  if (rollingUpdate === undefined)
    return [required(`${path}.rollingUpdate`, 'this should be defaulted and never be nil')];
  const { maxSurge, maxUnavailable } = rollingUpdate as {
    maxSurge?: string | number;
    maxUnavailable?: string | number;
  };
  const at = `${path}.rollingUpdate`;
  const errors = [
    ...countOrPercentErrors(`${at}.maxUnavailable`, maxUnavailable),
    ...countOrPercentErrors(`${at}.maxSurge`, maxSurge),
  ];
  if (isZero(maxUnavailable) && isZero(maxSurge))
    errors.push(invalid(`${at}.maxUnavailable`, maxUnavailable, 'may not be 0 when `maxSurge` is 0'));
  errors.push(...notAbove100(`${at}.maxUnavailable`, maxUnavailable));
  return errors;
}

const deploymentStatus: UpdateStrategy<Deployment> = {
  ...(statusWithoutLabels as UpdateStrategy<Deployment>),
  validateUpdate(object, old) {
    const fields = [
      'observedGeneration',
      'replicas',
      'updatedReplicas',
      'readyReplicas',
      'availableReplicas',
      'unavailableReplicas',
      'terminatingReplicas',
      'collisionCount',
    ];
    const errors = countErrors(object.status, fields);
    errors.push(...notMoreThanReplicas(object.status, ['updatedReplicas', 'readyReplicas', 'availableReplicas']));
    errors.push(...notMoreThanReady(object.status, 'readyReplicas'));
    errors.push(...collisionErrors(object.status, old.status));
    return errors;
  },
};

export const deployments: Strategy<Deployment> = {
  metadataChecks: ['update'],
  ...templated,
  applyDefaults(object) {
    templateDefaults(object);
    const spec = (object.spec ??= {});
    spec.replicas ??= 1;
    spec.strategy ??= {};
    if ((spec.strategy.type ?? '') === '') spec.strategy.type = 'RollingUpdate';
    if (spec.strategy.type === 'RollingUpdate') {
      const rolling = (spec.strategy.rollingUpdate ??= {}) as {
        maxSurge?: string | number;
        maxUnavailable?: string | number;
      };
      rolling.maxUnavailable ??= '25%';
      rolling.maxSurge ??= '25%';
    }
    spec.revisionHistoryLimit ??= 10;
    spec.progressDeadlineSeconds ??= 600;
  },
  changesGeneration: (object, old) =>
    specChanged(object, old) || !jsonEqual(object.metadata.annotations ?? {}, old.metadata.annotations ?? {}),
  validateCreate: deploymentErrors,
  validateUpdate: (object, old) => [
    ...deploymentErrors(object),
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector, LABEL_SELECTOR),
  ],
  warningsOnCreate: namedTemplateWarnings,
  warningsOnUpdate: templateWarnings,
  columns: deploymentColumns,
  status: deploymentStatus,
};
