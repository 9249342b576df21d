/** Defines the strategy of stateful sets: defaults, allowed changes and validation. */
import type { V1StatefulSetSpec } from '@kubernetes/client-node';
import { claimSpecErrors, type ClaimSpec } from '../../../../api/kinds/claim-validation.ts';
import { type FieldError, forbidden, invalid, required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import { nameIsLabel } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import { podTemplateErrors, podTemplateMetadataErrors } from '../../../../api/kinds/pod-validation.ts';
import { claimWarnings } from '../../../../api/kinds/volume-warnings.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { statefulSetColumns } from './columns.ts';
import { statusOnly } from '../../generic-strategy.ts';
import type { Strategy, UpdateStrategy } from '../../strategy.ts';
import { dnsLabel, nonNegative } from '../field-rules.ts';
import { equalAs } from '../../../../api/schema/semantic-equality.ts';
import {
  collisionErrors,
  countErrors,
  controllerPolicyErrors,
  countOrPercentErrors,
  invalidSelectorErrors,
  isZero,
  notAbove100,
  notMoreThanReady,
  notMoreThanReplicas,
  selectorErrors,
  templateDefaults,
  templateMatchErrors,
  templated,
  templateWarnings,
  type Templated,
} from './workload-rules.ts';

type StatefulSet = Templated<V1StatefulSetSpec>;

const POD_MANAGEMENT = ['OrderedReady', 'Parallel'];
const CLAIM_RETENTION = ['Retain', 'Delete'];
const FIXED =
  "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/**
 * Returns the errors of a stateful set. In updates, kube-apiserver does not validate the immutable service name and claims
 * again.
 */
function statefulSetErrors(object: StatefulSet, { isCreate }: { readonly isCreate: boolean }): FieldError[] {
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
  if (isCreate) {
    for (const [index, claim] of (spec.volumeClaimTemplates ?? []).entries()) {
      errors.push(...claimSpecErrors((claim.spec ?? {}) as ClaimSpec, `spec.volumeClaimTemplates[${index}].spec`));
    }
    const { serviceName = '' } = spec;
    if (serviceName !== '') errors.push(...dnsLabel('spec.serviceName', serviceName));
  }
  errors.push(...templateErrors(spec));
  return errors;
}

/**
 * Validates the pod template as the pods will be created: with a volume for each claim, and without the hostname and subdomain,
 * which the controller sets.
 */
function templateErrors({
  selector,
  template,
  volumeClaimTemplates = [],
}: NonNullable<StatefulSet['spec']>): FieldError[] {
  const invalidSelector = invalidSelectorErrors(selector, '');
  if (invalidSelector.length > 0) return invalidSelector;
  const { hostname: _, subdomain: __, ...spec } = template?.spec ?? {};
  const complete: PodTemplate = {
    ...template,
    spec: { ...spec, volumes: withClaims(spec.volumes, volumeClaimTemplates) },
  };
  return [
    ...templateMatchErrors(selector, template),
    ...podTemplateErrors(complete, 'spec.template'),
    // kube-apiserver lists these errors twice.
    ...podTemplateMetadataErrors(complete, 'spec.template'),
    ...controllerPolicyErrors(template, 'StatefulSet'),
  ];
}

type Volumes = NonNullable<NonNullable<PodTemplate['spec']>['volumes']>;

/**
 * Returns the volumes with those of the claims. A claim replaces the volume of the same name. Several claims with one name
 * become one volume.
 */
function withClaims(
  volumes: Volumes | undefined = [],
  claims: NonNullable<NonNullable<StatefulSet['spec']>['volumeClaimTemplates']>,
): Volumes {
  const names = new Set(claims.map(({ metadata }) => metadata?.name ?? ''));
  return [
    ...[...names].map((name) => ({ name, persistentVolumeClaim: { claimName: name } })),
    ...volumes.filter(({ name }) => !names.has(name ?? '')),
  ];
}

function updateStrategyErrors(strategy: NonNullable<StatefulSet['spec']>['updateStrategy']): FieldError[] {
  const path = 'spec.updateStrategy';
  const { type = '', rollingUpdate } = strategy ?? {};
  if (type === '') return [required(path)];
  if (type === 'OnDelete') {
    return rollingUpdate === undefined
      ? []
      : [
          invalid(
            `${path}.rollingUpdate`,
            internalForm('io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy', rollingUpdate),
            "only allowed for updateStrategy 'RollingUpdate'",
          ),
        ];
  }
  if (type !== 'RollingUpdate')
    return [
      invalid(
        path,
        internalForm('io.k8s.api.apps.v1.StatefulSetUpdateStrategy', strategy),
        "must be 'RollingUpdate' or 'OnDelete'",
      ),
    ];
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

/** Drops `maxUnavailable`, whose feature gate is off by default. An object that already has the field keeps it. */
function dropMaxUnavailable(object: StatefulSet, old: StatefulSet | undefined): void {
  const rolling = object.spec?.updateStrategy?.rollingUpdate;
  if (old?.spec?.updateStrategy?.rollingUpdate?.maxUnavailable === undefined) delete rolling?.maxUnavailable;
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
  const errors = statefulSetErrors(object, { isCreate: false });
  const comparable = cloneJson(object.spec ?? {}) as Record<string, unknown>;
  for (const field of CHANGEABLE) {
    const value = old.spec?.[field];
    if (value === undefined) delete comparable[field];
    else comparable[field] = value;
  }
  if (!equalAs('io.k8s.api.apps.v1.StatefulSetSpec', comparable, old.spec ?? {})) errors.push(forbidden('spec', FIXED));
  return errors;
}

const statefulSetStatus: UpdateStrategy<StatefulSet> = {
  ...(statusOnly as UpdateStrategy<StatefulSet>),
  validateUpdate(object, old) {
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
    errors.push(...notMoreThanReady(object.status, 'status.readyReplicas'));
    errors.push(...collisionErrors(object.status, old.status));
    return errors;
  },
};

const KEEPS_ALL =
  'spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended';

/** Returns the warnings about claims and history. `specPath` is the path of a claim's spec in the claim. */
function claimAndHistoryWarnings({ spec }: StatefulSet, specPath: string): string[] {
  return [
    ...(spec?.volumeClaimTemplates ?? []).flatMap((claim, index) =>
      claimWarnings((claim.spec ?? {}) as ClaimSpec, `spec.volumeClaimTemplates[${index}]${specPath}`),
    ),
    ...((spec?.revisionHistoryLimit ?? 0) < 0 ? [KEEPS_ALL] : []),
  ];
}

export const statefulSets: Strategy<StatefulSet> = {
  metadataChecks: ['update'],
  ...templated,
  nameRule: nameIsLabel,
  prepareForCreate(object) {
    templated.prepareForCreate(object);
    dropMaxUnavailable(object, undefined);
  },
  prepareForUpdate(object, old) {
    templated.prepareForUpdate(object, old);
    dropMaxUnavailable(object, old);
  },
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
      if (typed.spec !== undefined) typed.spec.volumeMode ??= 'Filesystem';
      typed.status ??= {};
      if ((typed.status.phase ?? '') === '') typed.status.phase = 'Pending';
    }
  },
  validateCreate: (object) => statefulSetErrors(object, { isCreate: true }),
  validateUpdate: statefulSetUpdateErrors,
  warningsOnCreate: (object) => [...templateWarnings(object), ...claimAndHistoryWarnings(object, '')],
  // kube-apiserver names the spec of a claim in updates only.
  warningsOnUpdate: (object, old) => [...templateWarnings(object, old), ...claimAndHistoryWarnings(object, '.Spec')],
  columns: statefulSetColumns,
  status: statefulSetStatus,
};
