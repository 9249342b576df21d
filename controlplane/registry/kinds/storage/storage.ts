/** The storage group: classes, CSI drivers, what nodes have of them, capacities and attachments. */
import type {
  V1CSIDriverSpec,
  V1CSINodeDriver,
  V1CSINodeSpec,
  V1CSIStorageCapacity,
  V1LabelSelector,
  V1StorageClass,
  V1VolumeAttachmentSpec,
  V1VolumeAttachmentStatus,
  V1VolumeAttributesClass,
} from '@kubernetes/client-node';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import { duplicate, tooLong, unsupportedValue, type FieldError } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, qualifiedNameErrors, rangeError } from '../../../../api/meta/names.ts';
import { parseQuantity } from '../../../../api/meta/quantity.ts';
import { validateLabelName, validateLabelSelector } from '../../../../api/meta/selector.ts';
import {
  attachmentColumns,
  attributesClassColumns,
  csiNodeColumns,
  driverColumns,
  storageClassColumns,
} from './columns.ts';
import { restore } from '../../generic-strategy.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { dnsSubdomain, forbidden, immutable, invalid, invalidFor, notSupported, required } from '../field-rules.ts';
import { driverNameErrors } from '../../../../api/kinds/volume-validation.ts';
import { volumeSpecErrors } from '../core/persistent-volumes.ts';

const GROUP = 'storage.k8s.io';
const MAX_PARAMETERS = 512;
const MAX_PARAMETER_BYTES = 256 * 1024;

/** Parameters of a class: named, and not too many. */
function parameterErrors(
  parameters: Readonly<Record<string, string>> | undefined,
  { needed }: { readonly needed: boolean },
): FieldError[] {
  const entries = Object.entries(parameters ?? {});
  if (needed && entries.length === 0) return [required('parameters', 'must contain at least one key/value pair')];
  if (entries.length > MAX_PARAMETERS) return [tooLong('parameters', MAX_PARAMETERS)];
  const errors = entries.flatMap(([key]) =>
    key === '' ? [invalid('parameters', key, 'field can not be empty.')] : [],
  );
  const size = entries.reduce((sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value), 0);
  if (size > MAX_PARAMETER_BYTES) errors.push(tooLong('parameters', MAX_PARAMETER_BYTES));
  return errors;
}

const texts = (map: object | undefined): Readonly<Record<string, string>> | undefined =>
  map as Record<string, string> | undefined;

// --- storage classes

type StorageClass = Kind<
  Pick<V1StorageClass, 'provisioner' | 'parameters' | 'reclaimPolicy' | 'volumeBindingMode' | 'allowedTopologies'>
>;

function topologyErrors(topologies: StorageClass['allowedTopologies']): FieldError[] {
  const errors: FieldError[] = [];
  // kube-apiserver treats an empty term as a duplicate of the missing one.
  const seen: unknown[] = [{}];
  for (const [index, term] of (topologies ?? []).entries()) {
    const at = `allowedTopologies[${index}].matchLabelExpressions`;
    const keys = new Set<string>();
    const values: Record<string, string[]> = {};
    for (const [place, expression] of (term.matchLabelExpressions ?? []).entries()) {
      const { key = '', values: list = [] } = expression;
      errors.push(...topologyExpressionErrors(key, list, `${at}[${place}]`));
      if (keys.has(key)) errors.push(duplicate(`${at}[${place}].key`, key));
      keys.add(key);
      values[key] = [...list].sort();
    }
    if (seen.some((other) => jsonEqual(other, values))) errors.push(duplicate(at, ''));
    seen.push(values);
  }
  return errors;
}

function topologyExpressionErrors(key: string, values: readonly string[], at: string): FieldError[] {
  const errors: FieldError[] = [];
  if (values.length === 0) errors.push(required(`${at}.values`));
  for (const [index, value] of values.entries())
    if (values.indexOf(value) !== index) errors.push(duplicate(`${at}.values[${index}]`, value));
  errors.push(...validateLabelName(key, `${at}.key`));
  return errors;
}

/** Who makes volumes: a qualified name, upper case allowed. */
function provisionerErrors(field: string, name: string): FieldError[] {
  const lower = name.toLowerCase();
  return name === '' ? [required(field)] : invalidFor(field, lower, qualifiedNameErrors(lower));
}

function classErrors(object: StorageClass): FieldError[] {
  const { provisioner = '', reclaimPolicy = '', volumeBindingMode: binding } = object;
  const errors = provisionerErrors('provisioner', provisioner);
  errors.push(...parameterErrors(texts(object.parameters), { needed: false }));
  if (reclaimPolicy !== '' && !['Delete', 'Retain'].includes(reclaimPolicy))
    errors.push(notSupported('reclaimPolicy', reclaimPolicy, ['Delete', 'Retain']));
  if (binding === undefined) errors.push(required('volumeBindingMode'));
  else if (!['Immediate', 'WaitForFirstConsumer'].includes(binding))
    errors.push(notSupported('volumeBindingMode', binding, ['Immediate', 'WaitForFirstConsumer']));
  errors.push(...topologyErrors(object.allowedTopologies));
  return errors;
}

const storageClasses: Strategy<StorageClass> = {
  applyDefaults(object) {
    object.reclaimPolicy ??= 'Delete';
    object.volumeBindingMode ??= 'Immediate';
  },
  validateCreate: classErrors,
  validateUpdate: (object, old) => [
    ...immutable('parameters', object.parameters ?? null, old.parameters ?? null),
    ...immutable('provisioner', object.provisioner, old.provisioner),
    ...immutable('reclaimPolicy', object.reclaimPolicy, old.reclaimPolicy),
    ...immutable('volumeBindingMode', object.volumeBindingMode, old.volumeBindingMode),
  ],
  warningsOnCreate: topologyWarnings,
  warningsOnUpdate: topologyWarnings,
  returnsDeleted: true,
  columns: storageClassColumns,
};

const OLD_TOPOLOGY: Readonly<Record<string, string>> = {
  'failure-domain.beta.kubernetes.io/region': 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
  'failure-domain.beta.kubernetes.io/zone': 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
};

function topologyWarnings(object: StorageClass): string[] {
  return (object.allowedTopologies ?? []).flatMap((term, index) =>
    (term.matchLabelExpressions ?? []).flatMap(({ key = '' }, place) => {
      const text = OLD_TOPOLOGY[key];
      return text === undefined
        ? []
        : [`allowedTopologies[${index}].matchLabelExpressions[${place}].key: ${key} is ${text}`];
    }),
  );
}

// --- volume attributes classes

type AttributesClass = Kind<Pick<V1VolumeAttributesClass, 'driverName' | 'parameters'>>;

const attributesClasses: Strategy<AttributesClass> = {
  validateCreate: (object) => [
    ...provisionerErrors('driverName', object.driverName ?? ''),
    ...parameterErrors(texts(object.parameters), { needed: true }),
  ],
  validateUpdate: (object, old) => [
    ...(object.driverName === old.driverName ? [] : [forbidden('driverName', 'updates to driverName are forbidden.')]),
    ...(jsonEqual(object.parameters ?? {}, old.parameters ?? {})
      ? []
      : [forbidden('parameters', 'updates to parameters are forbidden.')]),
  ],
  returnsDeleted: true,
  columns: attributesClassColumns,
};

// --- CSI drivers

type Driver = Kind<{ spec: V1CSIDriverSpec }>;
type DriverSpec = Wire<V1CSIDriverSpec>;

const FS_GROUP_POLICIES = ['File', 'None', 'ReadWriteOnceWithFSType'];
const LIFECYCLE_MODES = ['Persistent', 'Ephemeral'];
const TEN_MINUTES = 600;
const LONGEST_TOKEN = 2 ** 32;

function tokenErrors(requests: DriverSpec['tokenRequests']): FieldError[] {
  const errors: FieldError[] = [];
  const audiences = new Set<string>();
  for (const [index, { audience = '', expirationSeconds: seconds }] of (requests ?? []).entries()) {
    const at = `spec.tokenRequests[${index}]`;
    if (audiences.has(audience)) {
      errors.push(duplicate(`${at}.audience`, audience));
      continue;
    }
    audiences.add(audience);
    if (seconds === undefined) continue;
    if (seconds < TEN_MINUTES)
      errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration less than 10 minutes'));
    if (seconds > LONGEST_TOKEN)
      errors.push(invalid(`${at}.expirationSeconds`, seconds, 'may not specify a duration larger than 2^32 seconds'));
  }
  return errors;
}

function driverErrors(object: Driver): FieldError[] {
  const spec = object.spec ?? {};
  const errors: FieldError[] = [];
  for (const name of ['attachRequired', 'podInfoOnMount', 'storageCapacity'] as const)
    if (spec[name] === undefined) errors.push(required(`spec.${name}`));
  const policy = spec.fsGroupPolicy;
  if (policy !== undefined && !FS_GROUP_POLICIES.includes(policy))
    errors.push(notSupported('spec.fsGroupPolicy', policy, FS_GROUP_POLICIES));
  errors.push(...tokenErrors(spec.tokenRequests));
  for (const mode of spec.volumeLifecycleModes ?? [])
    if (!LIFECYCLE_MODES.includes(mode))
      errors.push(unsupportedValue('spec.volumeLifecycleModes', mode, LIFECYCLE_MODES));
  const period = spec.nodeAllocatableUpdatePeriodSeconds;
  if (period !== undefined && period < 10)
    errors.push(
      invalid('spec.nodeAllocatableUpdatePeriodSeconds', period, 'must be greater than or equal to 10 seconds'),
    );
  return errors;
}

const MUTABLE_DRIVER_FIELDS = [
  'podInfoOnMount',
  'fsGroupPolicy',
  'storageCapacity',
  'tokenRequests',
  'requiresRepublish',
  'seLinuxMount',
  'nodeAllocatableUpdatePeriodSeconds',
  'serviceAccountTokenInSecrets',
] as const;

function driverWarnings(object: Driver): string[] {
  const { tokenRequests, serviceAccountTokenInSecrets: secrets } = object.spec ?? {};
  return (tokenRequests ?? []).length > 0 && secrets === undefined
    ? [
        'spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes',
      ]
    : [];
}

const drivers: Strategy<Driver> = {
  requiresResourceVersion: true,
  applyDefaults(object) {
    const spec = (object.spec ??= {});
    spec.attachRequired ??= true;
    spec.podInfoOnMount ??= false;
    spec.storageCapacity ??= false;
    spec.fsGroupPolicy ??= 'ReadWriteOnceWithFSType';
    if ((spec.volumeLifecycleModes ?? []).length === 0) spec.volumeLifecycleModes = ['Persistent'];
    spec.requiresRepublish ??= false;
    spec.seLinuxMount ??= false;
  },
  validateCreate: driverErrors,
  changesGeneration: (object, old) =>
    MUTABLE_DRIVER_FIELDS.some((name) => !jsonEqual(object.spec?.[name], old.spec?.[name])),
  validateUpdate: (object, old) => [
    ...driverErrors(object),
    ...immutable('spec.attachedRequired', object.spec?.attachRequired, old.spec?.attachRequired),
    ...immutable('spec.volumeLifecycleModes', object.spec?.volumeLifecycleModes, old.spec?.volumeLifecycleModes),
  ],
  warningsOnCreate: driverWarnings,
  warningsOnUpdate: driverWarnings,
  returnsDeleted: true,
  columns: driverColumns,
};

// --- what nodes have of drivers

type CsiNode = Kind<{ spec: V1CSINodeSpec }>;
type NodeDriver = Wire<V1CSINodeDriver>;

const MAX_NODE_ID = 256;

function nodeDriverErrors(driver: NodeDriver, at: string, names: ReadonlySet<string>): FieldError[] {
  const { name = '', nodeID = '', topologyKeys = [], allocatable } = driver;
  const errors = driverNameErrors(`${at}.name`, name);
  if (nodeID === '') errors.push(required(`${at}.nodeID`));
  else if (nodeID.length > MAX_NODE_ID)
    errors.push(invalid(`${at}.nodeID`, nodeID, `must be ${MAX_NODE_ID} characters or less`));
  if (allocatable?.count !== undefined && allocatable.count < 0)
    errors.push(invalid(`${at}.allocatable.count`, allocatable.count, 'must be greater than or equal to 0'));
  if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
  const keys = new Set<string>();
  for (const key of topologyKeys ?? []) {
    if (key === '') errors.push(required(at));
    if (keys.has(key)) errors.push(duplicate(at, key));
    keys.add(key);
    errors.push(...invalidFor(at, key, qualifiedNameErrors(key)));
  }
  return errors;
}

function csiNodeErrors(object: CsiNode): FieldError[] {
  const names = new Set<string>();
  return (object.spec?.drivers ?? []).flatMap((driver, index) => {
    const errors = nodeDriverErrors(driver, `spec.drivers[${index}]`, names);
    names.add(driver.name ?? '');
    return errors;
  });
}

/** Drivers come and go; the entry of one that stays is fixed, but for how much it may be given. */
function csiNodeUpdateErrors(object: CsiNode, old: CsiNode): FieldError[] {
  const errors = csiNodeErrors(object);
  for (const before of old.spec?.drivers ?? []) {
    const now = object.spec?.drivers?.find(({ name }) => name === before.name);
    if (now === undefined) continue;
    const same = now.nodeID === before.nodeID && jsonEqual(now.topologyKeys ?? [], before.topologyKeys ?? []);
    if (!same) errors.push(invalid('spec.drivers', now, 'field is immutable'));
  }
  return errors;
}

const csiNodes: Strategy<CsiNode> = {
  requiresResourceVersion: true,
  validateCreate: csiNodeErrors,
  validateUpdate: csiNodeUpdateErrors,
  returnsDeleted: true,
  columns: csiNodeColumns,
};

// --- capacities

type Capacity = Kind<
  Pick<V1CSIStorageCapacity, 'storageClassName' | 'capacity' | 'maximumVolumeSize' | 'nodeTopology'>
>;

function capacityErrors(object: Capacity): FieldError[] {
  const errors: FieldError[] = [];
  if (object.nodeTopology !== undefined)
    errors.push(...validateLabelSelector(object.nodeTopology as V1LabelSelector, 'nodeTopology'));
  const name = object.storageClassName ?? '';
  errors.push(...invalidFor('storageClassName', name, dnsSubdomainErrors(name)));
  const { capacity } = object;
  if (capacity !== undefined && parseQuantity(capacity).nano < 0n)
    errors.push(invalid('capacity', capacity, 'must be greater than or equal to 0'));
  return errors;
}

const capacities: Strategy<Capacity> = {
  requiresResourceVersion: true,
  validateCreate: capacityErrors,
  validateUpdate: (object, old) => [
    ...immutable('nodeTopology', object.nodeTopology, old.nodeTopology),
    ...immutable('storageClassName', object.storageClassName, old.storageClassName),
  ],
};

// --- attachments

type Attachment = Kind<{ spec: V1VolumeAttachmentSpec; status: V1VolumeAttachmentStatus }>;

const MAX_MESSAGE_BYTES = 256 * 1024;

function attachmentSpecErrors(object: Attachment): FieldError[] {
  const { attacher, source, nodeName = '' } = object.spec ?? {};
  const errors = driverNameErrors('spec.attacher', attacher);
  const { persistentVolumeName: name, inlineVolumeSpec: inline } = source ?? {};
  const either = 'must specify exactly one of inlineVolumeSpec and persistentVolumeName';
  if (inline === undefined && name === undefined) errors.push(required('spec.source', either));
  else if (inline !== undefined && name !== undefined) errors.push(forbidden('spec.source', either));
  else if (name === '')
    errors.push(required('spec.source.persistentVolumeName', 'must specify non empty persistentVolumeName'));
  else if (inline !== undefined)
    errors.push(...volumeSpecErrors(inline, 'spec.source.inlineVolumeSpec', { inline: true }));
  else errors.push(...dnsSubdomain('spec.source.persistentVolumeName', name ?? ''));
  errors.push(...dnsSubdomain('spec.nodeName', nodeName));
  return errors;
}

function attachmentStatusErrors(object: Attachment): FieldError[] {
  const errors: FieldError[] = [];
  const metadata = texts(object.status?.attachmentMetadata) ?? {};
  const size = Object.entries(metadata).reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  if (size > MAX_MESSAGE_BYTES) errors.push(tooLong('status.attachmentMetadata', MAX_MESSAGE_BYTES));
  for (const field of ['attachError', 'detachError'] as const) {
    if ((object.status?.[field]?.message ?? '').length > 1024)
      errors.push(tooLong(`status.${field}.message`, MAX_MESSAGE_BYTES));
    const code = object.status?.[field]?.errorCode;
    if (code !== undefined && code < 0)
      errors.push(invalid(`status.${field}.errorCode`, code, rangeError(0, 2_147_483_647)));
  }
  return errors;
}

const attachments: Strategy<Attachment> = {
  requiresResourceVersion: true,
  prepareForCreate: (object) => void (object.status = { attached: false }),
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: (object) => [...attachmentSpecErrors(object), ...attachmentStatusErrors(object)],
  validateUpdate: (object, old) => [
    ...attachmentSpecErrors(object),
    ...attachmentStatusErrors(object),
    ...(jsonEqual(object.spec, old.spec) ? [] : [invalid('spec', object.spec, 'field is immutable')]),
  ],
  returnsDeleted: true,
  resetFields: [['status']],
  columns: attachmentColumns,
  status: {
    prepareForUpdate: (object, old) => restore(object, old, 'spec'),
    validateUpdate: attachmentStatusErrors,
    resetFields: [['metadata'], ['spec']],
  },
};

export const storageKinds = [
  kindRow(GROUP, 'storageclasses', storageClasses),
  kindRow(GROUP, 'volumeattributesclasses', attributesClasses),
  kindRow(GROUP, 'csidrivers', drivers),
  kindRow(GROUP, 'csinodes', csiNodes),
  kindRow(GROUP, 'csistoragecapacities', capacities),
  kindRow(GROUP, 'volumeattachments', attachments),
];
