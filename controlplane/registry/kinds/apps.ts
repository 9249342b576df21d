/** Deployments, replica sets, stateful sets, daemon sets, controller revisions and replication controllers. */
import type {
  V1DaemonSetSpec,
  V1DeploymentSpec,
  V1LabelSelector,
  V1ReplicaSetSpec,
  V1ReplicationControllerSpec,
  V1StatefulSetSpec,
} from '@kubernetes/client-node';
import { applyPodTemplateDefaults } from '../../../api/kinds/pod-defaults.ts';
import { podTemplateErrors } from '../../../api/kinds/pod-validation.ts';
import type { PodTemplate } from '../../../api/kinds/pod-types.ts';
import { podWarnings } from '../../../api/kinds/pod-warnings.ts';
import type { Wire } from '../../../api/kinds/wire.ts';
import { unsupportedValue, type FieldError } from '../../../api/meta/field-error.ts';
import { parsePercent } from '../../../api/meta/intstr.ts';
import { jsonEqual, semanticEqual, cloneJson } from '../../../api/meta/json-equality.ts';
import { nameIsSubdomain } from '../../../api/meta/names.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { fromLabelSelector, validateLabelSelector } from '../../../api/meta/selector.ts';
import {
  daemonSetColumns,
  deploymentColumns,
  replicaSetColumns,
  replicationControllerColumns,
  revisionColumns,
  statefulSetColumns,
} from '../columns/apps.ts';
import { specAndStatus, statusOnly, statusWithoutLabels } from '../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../strategy.ts';
import { forbidden, immutable, invalid, nonNegative, required } from './field-rules.ts';

type Templated<Spec> = KubeObject & {
  spec?: Omit<Wire<Spec>, 'template'> & { template?: PodTemplate };
  status?: Record<string, number | undefined>;
};
type Deployment = Templated<V1DeploymentSpec>;
type ReplicaSet = Templated<V1ReplicaSetSpec>;
type StatefulSet = Templated<V1StatefulSetSpec>;
type DaemonSet = Templated<V1DaemonSetSpec>;
type ReplicationController = Templated<V1ReplicationControllerSpec>;

/** Warnings of a template, as pods have them; on update only for a changed one. */
export function templateWarnings(
  object: { spec?: { template?: PodTemplate } },
  old?: { spec?: { template?: PodTemplate } },
): string[] {
  const template = object.spec?.template;
  if (old !== undefined && semanticEqual(template, old.spec?.template)) return [];
  return podWarnings(template?.metadata, template?.spec ?? {}, 'spec.template');
}

function templateDefaults(object: { spec?: { template?: PodTemplate } }): void {
  object.spec ??= {};
  object.spec.template ??= {};
  applyPodTemplateDefaults(object.spec.template);
}

/** A selector that selects something, and what the template makes. */
export function selectorErrors(selector: Wire<V1LabelSelector> | undefined, emptyText: string): FieldError[] {
  if (selector === undefined) return [required('spec.selector')];
  const errors = validateLabelSelector(selector as V1LabelSelector, 'spec.selector');
  const empty = Object.keys(selector.matchLabels ?? {}).length === 0 && (selector.matchExpressions ?? []).length === 0;
  if (empty) errors.push(invalid('spec.selector', selector, emptyText));
  return errors;
}

function templateMatchErrors(
  selector: Wire<V1LabelSelector> | undefined,
  template: PodTemplate | undefined,
): FieldError[] {
  if (selector === undefined || validateLabelSelector(selector as V1LabelSelector, '').length > 0) return [];
  const labels = template?.metadata?.labels;
  if (fromLabelSelector(selector as V1LabelSelector).matches(labels ?? {})) return [];
  return [invalid('spec.template.metadata.labels', labels, '`selector` does not match template `labels`')];
}

/** Pods of a controller are restarted, and do not end by themselves. */
function controllerTemplateErrors(template: PodTemplate | undefined, kind: string): FieldError[] {
  const errors = podTemplateErrors(template, 'spec.template');
  const policy = template?.spec?.restartPolicy;
  if (policy !== 'Always') errors.push(unsupportedValue('spec.template.spec.restartPolicy', policy ?? '', ['Always']));
  if (template?.spec?.activeDeadlineSeconds !== undefined) {
    errors.push(
      forbidden('spec.template.spec.activeDeadlineSeconds', `activeDeadlineSeconds in ${kind} is not Supported`),
    );
  }
  return errors;
}

export function countOrPercentErrors(field: string, value: string | number | undefined): FieldError[] {
  if (typeof value === 'string') {
    if (parsePercent(value) !== undefined) return [];
    return [
      invalid(
        field,
        value,
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
      ),
    ];
  }
  return nonNegative(field, value);
}

function notAbove100(field: string, value: string | number | undefined): FieldError[] {
  const percent = typeof value === 'string' ? parsePercent(value) : undefined;
  return percent !== undefined && percent > 100 ? [invalid(field, value, 'must not be greater than 100%')] : [];
}

const isZero = (value: string | number | undefined): boolean =>
  value === 0 || (typeof value === 'string' && parsePercent(value) === 0);

// --- deployments

function deploymentErrors(object: Deployment): FieldError[] {
  const spec = object.spec ?? {};
  const errors = nonNegative('spec.replicas', spec.replicas);
  errors.push(...selectorErrors(spec.selector, 'empty selector is invalid for deployment'));
  errors.push(
    ...templateMatchErrors(spec.selector, spec.template),
    ...controllerTemplateErrors(spec.template, 'ReplicaSet'),
  );
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
      unsupportedValue(path, { Type: type ?? '', RollingUpdate: rollingUpdate ?? null }, ['Recreate', 'RollingUpdate']),
    ];
  if (rollingUpdate === undefined)
    return [required(`${path}.rollingUpdate`, 'this should be defaulted and never be nil')];
  const { maxSurge, maxUnavailable } = rollingUpdate as {
    maxSurge?: string | number;
    maxUnavailable?: string | number;
  };
  const own = `${path}.rollingUpdate`;
  const errors = [
    ...countOrPercentErrors(`${own}.maxUnavailable`, maxUnavailable),
    ...countOrPercentErrors(`${own}.maxSurge`, maxSurge),
  ];
  if (isZero(maxUnavailable) && isZero(maxSurge))
    errors.push(invalid(`${own}.maxUnavailable`, maxUnavailable, 'may not be 0 when `maxSurge` is 0'));
  errors.push(...notAbove100(`${own}.maxUnavailable`, maxUnavailable));
  return errors;
}

function countErrors(status: Readonly<Record<string, unknown>> | undefined, fields: readonly string[]): FieldError[] {
  return fields.flatMap((field) => nonNegative(`status.${field}`, status?.[field] as number | undefined));
}

function notMoreThanReplicas(
  status: Readonly<Record<string, number | undefined>> | undefined,
  fields: readonly string[],
): FieldError[] {
  const total = status?.['replicas'] ?? 0;
  return fields.flatMap((field) =>
    (status?.[field] ?? 0) > total
      ? [invalid(`status.${field}`, status?.[field], 'cannot be greater than status.replicas')]
      : [],
  );
}

const deploymentStatus: UpdateStrategy<Deployment> = {
  ...(statusWithoutLabels as UpdateStrategy<Deployment>),
  validateUpdate(object) {
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
    if ((object.status?.['availableReplicas'] ?? 0) > (object.status?.['readyReplicas'] ?? 0)) {
      errors.push(
        invalid(
          'status.availableReplicas',
          object.status?.['availableReplicas'],
          'cannot be greater than readyReplicas',
        ),
      );
    }
    return errors;
  },
};

const deployments: Strategy<Deployment> = {
  ...specAndStatus,
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
    !semanticEqual(object.spec, old.spec) ||
    !jsonEqual(object.metadata.annotations ?? {}, old.metadata.annotations ?? {}),
  validateCreate: deploymentErrors,
  validateUpdate: (object, old) => [
    ...deploymentErrors(object),
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector),
  ],
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: templateWarnings,
  columns: deploymentColumns,
  status: deploymentStatus,
};

// --- replica sets

function replicaSetErrors(object: ReplicaSet): FieldError[] {
  const spec = object.spec ?? {};
  return [
    ...nonNegative('spec.replicas', spec.replicas),
    ...nonNegative('spec.minReadySeconds', spec.minReadySeconds),
    ...selectorErrors(spec.selector, 'empty selector is invalid for deployment'),
    ...(Object.keys(spec.template ?? {}).length === 0
      ? [required('spec.template')]
      : [
          ...templateMatchErrors(spec.selector, spec.template),
          ...controllerTemplateErrors(spec.template, 'ReplicaSet'),
        ]),
  ];
}

const replicaSetStatus: UpdateStrategy<ReplicaSet> = {
  ...(statusOnly as UpdateStrategy<ReplicaSet>),
  validateUpdate(object) {
    const errors = countErrors(object.status, [
      'replicas',
      'fullyLabeledReplicas',
      'readyReplicas',
      'availableReplicas',
      'observedGeneration',
      'terminatingReplicas',
    ]);
    errors.push(...notMoreThanReplicas(object.status, ['fullyLabeledReplicas', 'readyReplicas', 'availableReplicas']));
    if ((object.status?.['availableReplicas'] ?? 0) > (object.status?.['readyReplicas'] ?? 0)) {
      errors.push(
        invalid(
          'status.availableReplicas',
          object.status?.['availableReplicas'],
          'cannot be greater than readyReplicas',
        ),
      );
    }
    return errors;
  },
};

const replicaSets: Strategy<ReplicaSet> = {
  ...specAndStatus,
  applyDefaults(object) {
    templateDefaults(object);
    (object.spec ??= {}).replicas ??= 1;
  },
  validateCreate: replicaSetErrors,
  validateUpdate: (object, old) => [
    ...replicaSetErrors(object),
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector),
  ],
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: templateWarnings,
  selectableFields: { 'status.replicas': (object) => String(object.status?.['replicas'] ?? 0) },
  columns: replicaSetColumns,
  status: replicaSetStatus,
};

// --- stateful sets

const POD_MANAGEMENT = ['OrderedReady', 'Parallel'];
const CLAIM_RETENTION = ['Retain', 'Delete'];
const FIXED =
  "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

function statefulSetErrors(object: StatefulSet): FieldError[] {
  const spec = object.spec ?? {};
  const errors: FieldError[] = [];
  const {
    podManagementPolicy: management = '',
    updateStrategy,
    persistentVolumeClaimRetentionPolicy: retention,
    ordinals,
  } = spec;
  if (management === '') errors.push(required('spec.podManagementPolicy'));
  else if (!POD_MANAGEMENT.includes(management)) {
    errors.push(invalid('spec.podManagementPolicy', management, "must be 'OrderedReady' or 'Parallel'"));
  }
  errors.push(...updateStrategyErrors(updateStrategy));
  for (const field of ['whenDeleted', 'whenScaled'] as const) {
    const value = retention?.[field];
    if (value !== undefined && !CLAIM_RETENTION.includes(value))
      errors.push(unsupportedValue(`spec.persistentVolumeClaimRetentionPolicy.${field}`, value, CLAIM_RETENTION));
  }
  errors.push(
    ...nonNegative('spec.replicas', spec.replicas),
    ...nonNegative('spec.minReadySeconds', spec.minReadySeconds),
  );
  if (ordinals !== undefined) errors.push(...nonNegative('spec.ordinals.start', ordinals.start));
  errors.push(...selectorErrors(spec.selector, 'empty selector is invalid for statefulset'));
  errors.push(
    ...templateMatchErrors(spec.selector, spec.template),
    ...controllerTemplateErrors(spec.template, 'StatefulSet'),
  );
  return errors;
}

function updateStrategyErrors(strategy: NonNullable<StatefulSet['spec']>['updateStrategy']): FieldError[] {
  const path = 'spec.updateStrategy';
  const { type = '', rollingUpdate } = strategy ?? {};
  if (type === '') return [required(path)];
  if (type === 'OnDelete') {
    return rollingUpdate === undefined
      ? []
      : [invalid(`${path}.rollingUpdate`, rollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")];
  }
  if (type !== 'RollingUpdate') return [invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")];
  const errors = nonNegative(`${path}.rollingUpdate.partition`, rollingUpdate?.partition);
  const { maxUnavailable } = (rollingUpdate ?? {}) as { maxUnavailable?: string | number };
  if (maxUnavailable !== undefined) {
    errors.push(...countOrPercentErrors(`${path}.rollingUpdate.maxUnavailable`, maxUnavailable));
    if (isZero(maxUnavailable))
      errors.push(invalid(`${path}.rollingUpdate.maxUnavailable`, maxUnavailable, 'cannot be 0'));
    errors.push(...notAbove100(`${path}.rollingUpdate.maxUnavailable`, maxUnavailable));
  }
  return errors;
}

const CHANGEABLE = [
  'replicas',
  'template',
  'updateStrategy',
  'minReadySeconds',
  'ordinals',
  'revisionHistoryLimit',
  'persistentVolumeClaimRetentionPolicy',
] as const;

function statefulSetUpdateErrors(object: StatefulSet, old: StatefulSet): FieldError[] {
  const errors = statefulSetErrors(object);
  const munged = cloneJson(object.spec ?? {}) as Record<string, unknown>;
  for (const field of CHANGEABLE) {
    const value = old.spec?.[field];
    if (value === undefined) delete munged[field];
    else munged[field] = value;
  }
  if (!semanticEqual(munged, old.spec ?? {})) errors.push(forbidden('spec', FIXED));
  return errors;
}

const statefulSetStatus: UpdateStrategy<StatefulSet> = {
  ...(statusOnly as UpdateStrategy<StatefulSet>),
  validateUpdate(object) {
    const errors = countErrors(object.status, [
      'replicas',
      'readyReplicas',
      'currentReplicas',
      'updatedReplicas',
      'availableReplicas',
      'observedGeneration',
      'collisionCount',
    ]);
    errors.push(
      ...notMoreThanReplicas(object.status, [
        'readyReplicas',
        'currentReplicas',
        'updatedReplicas',
        'availableReplicas',
      ]),
    );
    if ((object.status?.['availableReplicas'] ?? 0) > (object.status?.['readyReplicas'] ?? 0)) {
      errors.push(
        invalid(
          'status.availableReplicas',
          object.status?.['availableReplicas'],
          'cannot be greater than status.readyReplicas',
        ),
      );
    }
    return errors;
  },
};

const statefulSets: Strategy<StatefulSet> = {
  ...specAndStatus,
  applyDefaults(object) {
    templateDefaults(object);
    const spec = (object.spec ??= {});
    if ((spec.podManagementPolicy ?? '') === '') spec.podManagementPolicy = 'OrderedReady';
    spec.updateStrategy ??= {};
    if ((spec.updateStrategy.type ?? '') === '') {
      spec.updateStrategy.type = 'RollingUpdate';
      spec.updateStrategy.rollingUpdate ??= {};
    }
    if (spec.updateStrategy.type === 'RollingUpdate' && spec.updateStrategy.rollingUpdate !== undefined)
      spec.updateStrategy.rollingUpdate.partition ??= 0;
    spec.persistentVolumeClaimRetentionPolicy ??= {};
    spec.persistentVolumeClaimRetentionPolicy.whenDeleted ??= 'Retain';
    spec.persistentVolumeClaimRetentionPolicy.whenScaled ??= 'Retain';
    spec.replicas ??= 1;
    spec.revisionHistoryLimit ??= 10;
    for (const claim of spec.volumeClaimTemplates ?? []) {
      const typed = claim as KubeObject & { spec?: { volumeMode?: string }; status?: { phase?: string } };
      typed.kind = 'PersistentVolumeClaim';
      typed.apiVersion = 'v1';
      if (typed.spec !== undefined && (typed.spec.volumeMode ?? '') === '') typed.spec.volumeMode = 'Filesystem';
      typed.status ??= {};
      if ((typed.status.phase ?? '') === '') typed.status.phase = 'Pending';
    }
  },
  validateCreate: statefulSetErrors,
  validateUpdate: statefulSetUpdateErrors,
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: templateWarnings,
  columns: statefulSetColumns,
  status: statefulSetStatus,
};

// --- daemon sets

function daemonSetErrors(object: DaemonSet): FieldError[] {
  const spec = object.spec ?? {};
  const errors =
    spec.selector === undefined
      ? [required('spec.selector')]
      : validateLabelSelector(spec.selector as V1LabelSelector, 'spec.selector');
  errors.push(...templateMatchErrors(spec.selector, spec.template));
  const { matchLabels, matchExpressions } = spec.selector ?? {};
  if (
    spec.selector !== undefined &&
    Object.keys(matchLabels ?? {}).length === 0 &&
    (matchExpressions ?? []).length === 0
  ) {
    errors.push(invalid('spec.selector', spec.selector, 'empty selector is invalid for daemonset'));
  }
  errors.push(
    ...controllerTemplateErrors(spec.template, 'DaemonSet'),
    ...nonNegative('spec.minReadySeconds', spec.minReadySeconds),
  );
  errors.push(
    ...daemonUpdateErrors(spec.updateStrategy),
    ...nonNegative('spec.revisionHistoryLimit', spec.revisionHistoryLimit),
  );
  return errors;
}

function daemonUpdateErrors(strategy: NonNullable<DaemonSet['spec']>['updateStrategy']): FieldError[] {
  const path = 'spec.updateStrategy';
  if (strategy?.type === 'OnDelete') return [];
  if (strategy?.type !== 'RollingUpdate')
    return [unsupportedValue(`${path}.type`, strategy?.type ?? '', ['RollingUpdate', 'OnDelete'])];
  const rolling = strategy.rollingUpdate as
    | { maxSurge?: string | number; maxUnavailable?: string | number }
    | undefined;
  if (rolling === undefined) return [required(`${path}.rollingUpdate`)];
  const own = `${path}.rollingUpdate`;
  const errors = [
    ...countOrPercentErrors(`${own}.maxUnavailable`, rolling.maxUnavailable),
    ...countOrPercentErrors(`${own}.maxSurge`, rolling.maxSurge),
  ];
  if (!isZero(rolling.maxSurge) && !isZero(rolling.maxUnavailable)) {
    errors.push(invalid(`${own}.maxSurge`, rolling.maxSurge, 'may not be set when maxUnavailable is non-zero'));
  }
  if (isZero(rolling.maxSurge) && isZero(rolling.maxUnavailable))
    errors.push(required(`${own}.maxUnavailable`, 'cannot be 0 when maxSurge is 0'));
  errors.push(...notAbove100(`${own}.maxUnavailable`, rolling.maxUnavailable));
  return errors;
}

const daemonSets: Strategy<DaemonSet> = {
  ...specAndStatus,
  applyDefaults(object) {
    templateDefaults(object);
    const spec = (object.spec ??= {});
    spec.updateStrategy ??= {};
    if ((spec.updateStrategy.type ?? '') === '') spec.updateStrategy.type = 'RollingUpdate';
    if (spec.updateStrategy.type === 'RollingUpdate') {
      const rolling = (spec.updateStrategy.rollingUpdate ??= {}) as {
        maxSurge?: string | number;
        maxUnavailable?: string | number;
      };
      rolling.maxUnavailable ??= 1;
      rolling.maxSurge ??= 0;
    }
    spec.revisionHistoryLimit ??= 10;
  },
  validateCreate: daemonSetErrors,
  validateUpdate: (object, old) => [
    ...daemonSetErrors(object),
    ...immutable('spec.selector', object.spec?.selector, old.spec?.selector),
  ],
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: templateWarnings,
  columns: daemonSetColumns,
  status: {
    ...(statusOnly as UpdateStrategy<DaemonSet>),
    validateUpdate: (object) =>
      countErrors(object.status, [
        'currentNumberScheduled',
        'numberMisscheduled',
        'desiredNumberScheduled',
        'numberReady',
        'observedGeneration',
        'updatedNumberScheduled',
        'numberAvailable',
        'numberUnavailable',
        'collisionCount',
      ]),
  },
};

// --- replication controllers

function controllerErrors(object: ReplicationController): FieldError[] {
  const spec = object.spec ?? {};
  const selector = (spec.selector ?? {}) as Record<string, string>;
  const errors = nonNegative('spec.minReadySeconds', spec.minReadySeconds);
  if (Object.keys(selector).length === 0) errors.push(required('spec.selector'));
  errors.push(...nonNegative('spec.replicas', spec.replicas));
  const labels = spec.template?.metadata?.labels ?? {};
  if (Object.keys(selector).length > 0 && !Object.entries(selector).every(([key, value]) => labels[key] === value)) {
    errors.push(invalid('spec.template.metadata.labels', labels, '`selector` does not match template `labels`'));
  }
  errors.push(...controllerTemplateErrors(spec.template, 'ReplicationController'));
  return errors;
}

const replicationControllers: Strategy<ReplicationController> = {
  ...specAndStatus,
  applyDefaults(object) {
    templateDefaults(object);
    const spec = (object.spec ??= {});
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
  warningsOnCreate: (object) => templateWarnings(object),
  warningsOnUpdate: templateWarnings,
  defaultPropagation: 'Orphan',
  selectableFields: { 'status.replicas': (object) => String(object.status?.['replicas'] ?? 0) },
  columns: replicationControllerColumns,
  status: {
    ...(statusOnly as UpdateStrategy<ReplicationController>),
    validateUpdate: (object) =>
      countErrors(object.status, [
        'replicas',
        'fullyLabeledReplicas',
        'readyReplicas',
        'availableReplicas',
        'observedGeneration',
      ]),
  },
};

// --- controller revisions

type ControllerRevision = KubeObject & { data?: unknown; revision?: number };

const controllerRevisions: Strategy<ControllerRevision> = {
  validateCreate: (object) => [
    ...(object.data === undefined || object.data === null ? [required('data', 'data is mandatory')] : []),
    ...nonNegative('revision', object.revision),
  ],
  validateUpdate: (object, old) => [
    ...nonNegative('revision', object.revision),
    ...immutable('data', object.data, old.data),
  ],
  columns: revisionColumns,
};

export const appsKinds = [
  kindRow('apps', 'deployments', deployments),
  kindRow('apps', 'replicasets', replicaSets),
  kindRow('apps', 'statefulsets', statefulSets),
  kindRow('apps', 'daemonsets', daemonSets),
  kindRow('apps', 'controllerrevisions', controllerRevisions),
  kindRow('', 'replicationcontrollers', replicationControllers),
];
