/**
 * Defines the strategies of the objects that CSI drivers publish: the driver, its entries on nodes, and the capacities of its
 * storage.
 */
import type {
  V1CSIDriverSpec,
  V1CSINodeDriver,
  V1CSINodeSpec,
  V1CSIStorageCapacity,
  V1LabelSelector,
} from '@kubernetes/client-node';
import { tokenLifetimeErrors } from '../../../../api/kinds/token-lifetime.ts';
import type { Kind, Wire } from '../../../../api/kinds/wire.ts';
import { driverNameErrors } from '../../../../api/kinds/volume-validation.ts';
import {
  duplicate,
  type FieldError,
  invalid,
  notSupported,
  required,
  unsupportedValue,
} from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { parseQuantity } from '../../../../api/meta/quantity.ts';
import { validateLabelSelector } from '../../../../api/meta/selector.ts';
import type { Strategy } from '../../strategy.ts';
import { IMMUTABLE, immutable } from '../field-rules.ts';
import { LABEL_SELECTOR } from '../../../../api/schema/semantic-equality.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { csiNodeColumns, driverColumns } from './columns.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Driver = Kind<{ spec: V1CSIDriverSpec }>;
type DriverSpec = Wire<V1CSIDriverSpec>;

const FS_GROUP_POLICIES = ['File', 'None', 'ReadWriteOnceWithFSType'];
const LIFECYCLE_MODES = ['Persistent', 'Ephemeral'];
const MIN_UPDATE_PERIOD_SECONDS = 10;

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
    if (seconds !== undefined) errors.push(...tokenLifetimeErrors(`${at}.expirationSeconds`, seconds));
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
  if (period !== undefined && period < MIN_UPDATE_PERIOD_SECONDS) {
    const text = `must be greater than or equal to ${MIN_UPDATE_PERIOD_SECONDS} seconds`;
    errors.push(invalid('spec.nodeAllocatableUpdatePeriodSeconds', period, text));
  }
  const inSecrets = spec.serviceAccountTokenInSecrets;
  if (inSecrets !== undefined && (spec.tokenRequests ?? []).length === 0) {
    const text = 'serviceAccountTokenInSecrets is set but no tokenRequests are specified';
    errors.push(invalid('spec.serviceAccountTokenInSecrets', inSecrets, text));
  }
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

/** Drops the field whose feature gate is off (`VolumeLimitScaling`). An object that already has it keeps it. */
function dropScaling(object: Driver, old?: Driver): void {
  if (old?.spec?.preventPodSchedulingIfMissing === undefined) delete object.spec?.preventPodSchedulingIfMissing;
}

export const drivers: Strategy<Driver> = {
  metadataChecks: ['update'],
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
  prepareForCreate: (object) => dropScaling(object),
  prepareForUpdate: dropScaling,
  validateCreate: driverErrors,
  changesGeneration: (object, old) =>
    MUTABLE_DRIVER_FIELDS.some((name) => !jsonEqual(object.spec?.[name], old.spec?.[name])),
  validateUpdate: (object, old) => [
    ...driverErrors(object),
    ...immutable('spec.attachedRequired', object.spec?.attachRequired, old.spec?.attachRequired),
    ...immutable('spec.volumeLifecycleModes', object.spec?.volumeLifecycleModes, old.spec?.volumeLifecycleModes),
  ],
  warningsOnCreate: driverWarnings,
  warningsOnUpdate: (object, old) =>
    jsonEqual(object.spec?.tokenRequests ?? [], old.spec?.tokenRequests ?? []) ? [] : driverWarnings(object),
  returnsDeleted: true,
  columns: driverColumns,
};

type CsiNode = Kind<{ spec: V1CSINodeSpec }>;
type NodeDriver = Wire<V1CSINodeDriver>;

/** The maximum number of bytes of the name that a driver has for a node. */
const MAX_NODE_ID_BYTES = 256;

function nodeDriverErrors(driver: NodeDriver, at: string, names: ReadonlySet<string>): FieldError[] {
  const { name = '', nodeID = '', topologyKeys = [], allocatable } = driver;
  const errors = driverNameErrors(`${at}.name`, name);
  if (nodeID === '') errors.push(required(`${at}.nodeID`));
  else if (Buffer.byteLength(nodeID) > MAX_NODE_ID_BYTES)
    errors.push(invalid(`${at}.nodeID`, nodeID, `must be ${MAX_NODE_ID_BYTES} characters or less`));
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

/**
 * Validates changes of the drivers of a node. Drivers may be added and removed. The entry of a driver that stays is immutable,
 * except for `allocatable`.
 */
function csiNodeUpdateErrors(object: CsiNode, old: CsiNode): FieldError[] {
  const errors = csiNodeErrors(object);
  for (const before of old.spec?.drivers ?? []) {
    // A name that is there twice has an error for each.
    for (const now of object.spec?.drivers ?? []) {
      const same = now.nodeID === before.nodeID && jsonEqual(now.topologyKeys ?? [], before.topologyKeys ?? []);
      if (now.name !== before.name || same) continue;
      const { allocatable: _, ...fixed } = now;
      errors.push(invalid('spec.drivers', internalForm('io.k8s.api.storage.v1.CSINodeDriver', fixed), IMMUTABLE));
    }
  }
  return errors;
}

export const csiNodes: Strategy<CsiNode> = {
  metadataChecks: ['whole'],
  requiresResourceVersion: true,
  validateCreate: csiNodeErrors,
  validateUpdate: csiNodeUpdateErrors,
  returnsDeleted: true,
  columns: csiNodeColumns,
};

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

export const capacities: Strategy<Capacity> = {
  metadataChecks: ['whole', 'update'],
  requiresResourceVersion: true,
  validateCreate: capacityErrors,
  validateUpdate: (object, old) => [
    ...capacityErrors(object),
    ...immutable('nodeTopology', object.nodeTopology, old.nodeTopology, LABEL_SELECTOR),
    ...immutable('storageClassName', object.storageClassName, old.storageClassName),
  ],
};
