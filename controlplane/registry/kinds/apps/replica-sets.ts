/** Defines the strategies of replica sets and of replication controllers, their predecessors. */
import type { V1ReplicaSetSpec, V1ReplicationControllerSpec } from '@kubernetes/client-node';
import { applyPodTemplateDefaults } from '../../../../api/kinds/pod-defaults.ts';
import { type FieldError, invalid, required } from '../../../../api/meta/field-error.ts';
import { nameIsSubdomain } from '../../../../api/meta/names.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import { replicaSetColumns, replicationControllerColumns } from './columns.ts';
import { statusOnly } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { immutable, nonNegative, shownMap } from '../field-rules.ts';
import { LABEL_SELECTOR } from '../../../../api/schema/semantic-equality.ts';
import {
  controllerTemplateErrors,
  countErrors,
  isSameGeneration,
  selectedTemplateErrors,
  namedTemplateWarnings,
  notMoreThanReady,
  notMoreThanReplicas,
  selectorErrors,
  templateDefaults,
  templated,
  templateWarnings,
  type Templated,
} from './workload-rules.ts';

type ReplicaSet = Templated<V1ReplicaSetSpec>;
type ReplicationController = Templated<V1ReplicationControllerSpec>;

function replicaSetErrors(object: ReplicaSet): FieldError[] {
  const spec = object.spec ?? {};
  return [
    ...nonNegative('spec.replicas', spec.replicas),
    ...nonNegative('spec.minReadySeconds', spec.minReadySeconds),
    ...selectorErrors(spec.selector, 'empty selector is invalid for deployment'),
    ...(Object.keys(spec.template ?? {}).length === 0
      ? [required('spec.template')]
      : selectedTemplateErrors(spec, 'ReplicaSet')),
  ];
}

function replicaErrors(status: Readonly<Record<string, number | undefined>> | undefined): FieldError[] {
  const errors = countErrors(status, [
    'replicas',
    'fullyLabeledReplicas',
    'readyReplicas',
    'availableReplicas',
    'observedGeneration',
    'terminatingReplicas',
  ]);
  errors.push(...notMoreThanReplicas(status, ['fullyLabeledReplicas', 'readyReplicas', 'availableReplicas']));
  errors.push(...notMoreThanReady(status, 'readyReplicas'));
  return errors;
}

export const replicaSets: Strategy<ReplicaSet> = {
  metadataChecks: ['update'],
  ...templated,
  applyDefaults(object) {
    templateDefaults(object);
    (object.spec ??= {}).replicas ??= 1;
  },
  validateCreate: replicaSetErrors,
  validateUpdate: (object, old) => [
    ...replicaSetErrors(object),
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector, LABEL_SELECTOR),
  ],
  warningsOnCreate: namedTemplateWarnings,
  warningsOnUpdate: templateWarnings,
  columns: replicaSetColumns,
  status: {
    ...(statusOnly as UpdateStrategy<ReplicaSet>),
    validateUpdate: (object) => replicaErrors(object.status),
  },
};

function controllerErrors(object: ReplicationController): FieldError[] {
  const spec = object.spec ?? {};
  const selector = (spec.selector ?? {}) as Record<string, string>;
  const errors = nonNegative('spec.minReadySeconds', spec.minReadySeconds);
  if (Object.keys(selector).length === 0) errors.push(required('spec.selector'));
  errors.push(...nonNegative('spec.replicas', spec.replicas));
  if (spec.template === undefined) return [...errors, required('spec.template')];
  const labels = spec.template.metadata?.labels;
  if (
    Object.keys(selector).length > 0 &&
    !Object.entries(selector).every(([key, value]) => ownMember(labels ?? {}, key) === value)
  ) {
    errors.push(
      invalid('spec.template.metadata.labels', shownMap(labels), '`selector` does not match template `labels`'),
    );
  }
  errors.push(...controllerTemplateErrors(spec.template, 'ReplicationController'));
  return errors;
}

export const replicationControllers: Strategy<ReplicationController> = {
  generateName: 'unchecked',
  metadataChecks: ['update'],
  ...templated,
  applyDefaults(object) {
    const spec = (object.spec ??= {});
    applyPodTemplateDefaults(spec.template);
    const labels = spec.template?.metadata?.labels;
    if (labels !== undefined) {
      if (Object.keys(spec.selector ?? {}).length === 0) spec.selector = { ...labels };
      if (Object.keys(object.metadata.labels ?? {}).length === 0) object.metadata.labels = { ...labels };
    }
    spec.replicas ??= 1;
  },
  nameRule: nameIsSubdomain,
  validateCreate: controllerErrors,
  validateUpdate: controllerErrors,
  warningsOnCreate: namedTemplateWarnings,
  // kube-apiserver warns about the template that the object had before.
  warningsOnUpdate: (object, old) => (isSameGeneration(object, old) ? [] : templateWarnings(old)),
  defaultPropagation: 'Orphan',
  selectableFields: { 'status.replicas': (object) => String(object.status?.['replicas'] ?? 0) },
  columns: replicationControllerColumns,
  status: {
    ...(statusOnly as UpdateStrategy<ReplicationController>),
    validateUpdate: (object) => replicaErrors(object.status),
  },
};
