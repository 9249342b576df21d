/**
 * Defines the strategy of persistent volumes. The source is immutable, except that a CSI volume may get its first secret for
 * expansion.
 */
import path from 'node:path';
import type { V1PersistentVolumeSpec, V1PersistentVolumeStatus } from '@kubernetes/client-node';
import { accessModeErrors, positiveQuantityErrors, VOLUME_MODES } from '../../../../api/kinds/claim-validation.ts';
import { DEPRECATED_LABELS } from '../../../../api/kinds/pod-warnings.ts';
import { nodeSelectorErrors } from '../../../../api/kinds/scheduling-validation.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { cloneJson, semanticEqual } from '../../../../api/meta/json-equality.ts';
import { parseQuantity, wholeUnits } from '../../../../api/meta/quantity.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { volumeColumns } from '../storage/columns.ts';
import { restore, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type StrategyContext, type UpdateStrategy } from '../../strategy.ts';
import { dnsSubdomain, immutable, shownMap } from '../field-rules.ts';
import { specDiff } from '../../../../api/schema/spec-diff.ts';
import { equalAs } from '../../../../api/schema/semantic-equality.ts';
import { VOLUME_SOURCES, volumeSourceErrors, type VolumeSpec } from './persistent-volume-sources.ts';
import { BETA_STORAGE_CLASS_ANNOTATION, STABLE_NODE_LABELS } from '../../../../api/meta/well-known-labels.ts';

type Volume = Kind<{ spec: V1PersistentVolumeSpec; status: V1PersistentVolumeStatus }>;

const RECLAIM_POLICIES = ['Delete', 'Recycle', 'Retain'];
const FIXED = 'spec.persistentvolumesource is immutable after creation';
const INLINE = 'may not be specified in the context of inline volumes';

function capacityErrors(capacity: Record<string, string> | undefined, at: string): FieldError[] {
  const entries = Object.entries(capacity ?? {});
  const errors: FieldError[] = [];
  if (entries.length === 0) errors.push(required(at));
  if (entries.length !== 1 || capacity?.['storage'] === undefined)
    errors.push(notSupported(at, shownMap(capacity), ['storage']));
  for (const [name, quantity] of entries) {
    if (parseQuantity(quantity).nano < 0n)
      errors.push(
        invalid(`${at}[${name}]`, Number(wholeUnits(parseQuantity(quantity))), 'must be a valid resource quantity'),
      );
    errors.push(...positiveQuantityErrors(`${at}[${name}]`, quantity));
  }
  return errors;
}

function affinityErrors(affinity: NonNullable<VolumeSpec['nodeAffinity']>, at: string): FieldError[] {
  return affinity.required === undefined
    ? [required(`${at}.required`, 'must specify required node constraints')]
    : nodeSelectorErrors(affinity.required, `${at}.required`);
}

/** Validates the spec of a volume. `inline` means that the spec is part of a volume attachment. */
export function volumeSpecErrors(
  spec: VolumeSpec,
  at: string,
  { inline, name = '' }: { readonly inline: boolean; readonly name?: string | undefined },
): FieldError[] {
  const errors: FieldError[] = [];
  const forbiddenInline = (field: keyof VolumeSpec): FieldError => forbidden(`${at}.${field}`, INLINE);
  if (inline) {
    if (spec.claimRef !== undefined) errors.push(forbiddenInline('claimRef'));
    if (Object.keys(spec.capacity ?? {}).length > 0) errors.push(forbiddenInline('capacity'));
    if (spec.csi === undefined)
      errors.push(required(`${at}.csi`, 'has to be specified in the context of inline volumes'));
  }
  if ((spec.accessModes ?? []).length === 0) errors.push(required(`${at}.accessModes`));
  errors.push(...accessModeErrors(spec.accessModes ?? [], `${at}.accessModes`));
  if (!inline) errors.push(...capacityErrors(spec.capacity as Record<string, string> | undefined, `${at}.capacity`));
  const policy = spec.persistentVolumeReclaimPolicy ?? '';
  if (policy !== '') {
    if (inline) {
      if (policy !== 'Retain')
        errors.push(
          forbidden(`${at}.persistentVolumeReclaimPolicy`, 'may only be Retain in the context of inline volumes'),
        );
    } else if (!RECLAIM_POLICIES.includes(policy))
      errors.push(notSupported(`${at}.persistentVolumeReclaimPolicy`, policy, RECLAIM_POLICIES));
  }
  if (spec.nodeAffinity !== undefined) {
    errors.push(
      ...(inline ? [forbiddenInline('nodeAffinity')] : affinityErrors(spec.nodeAffinity, `${at}.nodeAffinity`)),
    );
  }
  errors.push(...volumeSourceErrors(spec, at, name));
  if (policy === 'Recycle' && spec.hostPath !== undefined && path.posix.normalize(spec.hostPath.path ?? '') === '/')
    errors.push(forbidden(`${at}.persistentVolumeReclaimPolicy`, "may not be 'recycle' for a hostPath mount of '/'"));
  return [...errors, ...classErrors(spec, at, inline)];
}

function classErrors(spec: VolumeSpec, at: string, inline: boolean): FieldError[] {
  const errors: FieldError[] = [];
  const { storageClassName = '', volumeMode, volumeAttributesClassName: attributesClass } = spec;
  if (storageClassName !== '') {
    if (inline) errors.push(forbidden(`${at}.storageClassName`, INLINE));
    else errors.push(...dnsSubdomain(`${at}.storageClassName`, storageClassName));
  }
  if (volumeMode !== undefined) {
    if (inline) {
      const text = 'may not specify volumeMode other than Filesystem in the context of inline volumes';
      if (volumeMode !== 'Filesystem') errors.push(forbidden(`${at}.volumeMode`, text));
    } else if (!VOLUME_MODES.includes(volumeMode))
      errors.push(notSupported(`${at}.volumeMode`, volumeMode, VOLUME_MODES));
  }
  if (attributesClass !== undefined) {
    if (attributesClass === '')
      errors.push(required(`${at}.volumeAttributesClassName`, 'an empty string is disallowed'));
    else errors.push(...dnsSubdomain(`${at}.volumeAttributesClassName`, attributesClass));
    if (spec.csi === undefined)
      errors.push(required(`${at}.csi`, 'has to be specified when using volumeAttributesClassName'));
  }
  return errors;
}

/** Returns the source for the comparison. With `lateSecret`, it leaves out the secret that may be set later. */
function sourceOf(spec: VolumeSpec | undefined, { lateSecret }: { readonly lateSecret: boolean }): object {
  const source: Record<string, unknown> = {};
  for (const name of VOLUME_SOURCES) if (spec?.[name] !== undefined) source[name] = cloneJson(spec[name]);
  if (lateSecret && spec?.csi !== undefined) {
    const { controllerExpandSecretRef: _, ...csi } = spec.csi;
    source['csi'] = csi;
  }
  return source;
}

const VOLUME_SPEC = 'io.k8s.api.core.v1.PersistentVolumeSpec';

/** The fields of the volume source in the order of kube-apiserver's internal type, which differences in errors have. */
const SOURCE_FIELDS =
  'GCEPersistentDisk AWSElasticBlockStore HostPath Glusterfs NFS RBD Quobyte ISCSI FlexVolume Cinder CephFS FC Flocker AzureFile VsphereVolume AzureDisk PhotonPersistentDisk PortworxVolume ScaleIO Local StorageOS CSI'.split(
    ' ',
  );

function sourceForm(source: object): object {
  const form = new Map(Object.entries(internalForm(VOLUME_SPEC, source) ?? {}));
  return Object.fromEntries(SOURCE_FIELDS.map((field) => [field, form.get(field) ?? null]));
}

function updateErrors(object: Volume, old: Volume): FieldError[] {
  const invalidSpec = volumeSpecErrors(object.spec ?? {}, 'spec', { inline: false, name: object.metadata.name });
  // kube-apiserver validates the spec twice on an update, and reports each error twice.
  const errors = [...invalidSpec, ...invalidSpec];
  const lateSecret = old.spec?.csi !== undefined && old.spec.csi.controllerExpandSecretRef === undefined;
  const now = sourceOf(object.spec, { lateSecret });
  const source = sourceOf(old.spec, { lateSecret });
  if (!equalAs(VOLUME_SPEC, now, source))
    errors.push(forbidden('spec.persistentvolumesource', `${FIXED}${specDiff(sourceForm(source), sourceForm(now))}`));
  errors.push(...immutable('volumeMode', object.spec?.volumeMode, old.spec?.volumeMode));
  const before = old.spec?.nodeAffinity;
  if (
    before !== undefined &&
    !semanticEqual(withNewLabels(before, object.spec?.nodeAffinity), object.spec?.nodeAffinity)
  )
    errors.push(
      invalid(
        'nodeAffinity',
        internalForm('io.k8s.api.core.v1.VolumeNodeAffinity', object.spec?.nodeAffinity),
        'field is immutable, except for updating from beta label to GA',
      ),
    );
  const applied = old.spec?.volumeAttributesClassName;
  if (applied !== undefined && object.spec?.volumeAttributesClassName === undefined)
    errors.push(forbidden('spec.volumeAttributesClassName', 'update from non-nil value to nil is forbidden'));
  return errors;
}

/**
 * Returns a copy of the old affinity with the stable labels that the new affinity has in the places of their beta labels. A
 * label without a stable one is replaced by an empty label if the new affinity has no label in its place.
 */
function withNewLabels(old: NonNullable<VolumeSpec['nodeAffinity']>, affinity: VolumeSpec['nodeAffinity']): object {
  const copy = cloneJson(old);
  for (const [index, term] of (copy.required?.nodeSelectorTerms ?? []).entries())
    for (const [at, one] of (term.matchExpressions ?? []).entries()) {
      const key = affinity?.required?.nodeSelectorTerms?.[index]?.matchExpressions?.[at]?.key ?? '';
      if (key === (STABLE_NODE_LABELS.get(one.key ?? '') ?? '')) one.key = key;
    }
  return copy;
}

const DEPRECATED_SOURCES: readonly (readonly [keyof VolumeSpec, string])[] = [
  ['photonPersistentDisk', 'deprecated in v1.11, non-functional in v1.16+'],
  ['scaleIO', 'deprecated in v1.16, non-functional in v1.22+'],
  ['storageos', 'deprecated in v1.22, non-functional in v1.25+'],
  ['glusterfs', 'deprecated in v1.25, non-functional in v1.26+'],
  ['cephfs', 'deprecated in v1.28, non-functional in v1.31+'],
  ['rbd', 'deprecated in v1.28, non-functional in v1.31+'],
];

function warnings(object: Volume): string[] {
  const texts: string[] = [];
  const { spec } = object;
  const annotations = object.metadata.annotations ?? {};
  if (annotations[BETA_STORAGE_CLASS_ANNOTATION] !== undefined)
    texts.push(
      'metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead',
    );
  if (annotations['volume.beta.kubernetes.io/mount-options'] !== undefined)
    texts.push(
      'metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use "mountOptions" attribute instead',
    );
  if (spec?.persistentVolumeReclaimPolicy === 'Recycle')
    texts.push(
      'spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.',
    );
  for (const [index, term] of (spec?.nodeAffinity?.required?.nodeSelectorTerms ?? []).entries())
    for (const [at, { key = '' }] of (term.matchExpressions ?? []).entries()) {
      const text = DEPRECATED_LABELS.get(key);
      if (text !== undefined)
        texts.push(
          `spec.nodeAffinity.required.nodeSelectorTerms[${index}].matchExpressions[${at}].key: ${key} is ${text}`,
        );
    }
  for (const [source, text] of DEPRECATED_SOURCES)
    if (spec?.[source] !== undefined) texts.push(`spec.${source === 'storageos' ? 'storageOS' : source}: ${text}`);
  return texts;
}

const timeOf = ({ nowMs }: StrategyContext): string => new Date(nowMs).toISOString().replace(/\.\d+Z$/, 'Z');

const volumes: Strategy<Volume> = {
  metadataChecks: ['whole', 'whole'],
  applyDefaults(object) {
    const spec = (object.spec ??= {});
    if ((spec.persistentVolumeReclaimPolicy ?? '') === '') spec.persistentVolumeReclaimPolicy = 'Retain';
    spec.volumeMode ??= 'Filesystem';
    if (spec.hostPath !== undefined) spec.hostPath.type ??= '';
    object.status ??= {};
    object.status.phase ??= 'Pending';
  },
  prepareForCreate(object, context) {
    object.status = { phase: 'Pending', lastPhaseTransitionTime: timeOf(context) };
  },
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: (object) =>
    volumeSpecErrors(object.spec ?? {}, 'spec', { inline: false, name: object.metadata.name }),
  validateUpdate: updateErrors,
  warningsOnCreate: warnings,
  warningsOnUpdate: warnings,
  returnsDeleted: true,
  resetFields: [['status']],
  columns: volumeColumns,
  status: {
    ...(statusOnly as UpdateStrategy<Volume>),
    prepareForUpdate(object, old, context) {
      (statusOnly as UpdateStrategy<Volume>).prepareForUpdate?.(object, old, context);
      const status = (object.status ??= {});
      const stamped = status.lastPhaseTransitionTime;
      const before = old.status?.lastPhaseTransitionTime;
      if (stamped !== undefined && stamped !== before) return;
      if (status.phase !== old.status?.phase) status.lastPhaseTransitionTime = timeOf(context);
      else if (before !== undefined) status.lastPhaseTransitionTime = before;
    },
  },
};

export const volumeKinds = [kindRow('', 'persistentvolumes', volumes)];
