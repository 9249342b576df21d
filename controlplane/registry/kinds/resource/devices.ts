/**
 * Defines the strategies of dynamic resource allocation: claims for devices, classes of devices, and slices of the devices that
 * drivers report.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import { type FieldError, forbidden, invalid } from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { templateMetadataErrors } from '../../../../api/kinds/template-metadata-validation.ts';
import { isExtendedResource } from '../../../../api/kinds/resource-validation.ts';
import { deviceTaintRuleColumns, nameAndAgeColumns, resourceClaimColumns, resourceSliceColumns } from './columns.ts';
import { specAndStatus, specChanged, statusWithoutMetadata } from '../../generic-strategy.ts';
import type { KindOptions } from '../../kind-options.ts';
import { kindRow, type KindRow, type Strategy, type StrategyContext, type UpdateStrategy } from '../../strategy.ts';
import { claimStatusErrors, deviceClaimErrors, dropDeallocatedDevices } from './device-claim-validation.ts';
import { DEVICE_CONVERSIONS } from './device-conversions.ts';
import {
  driverErrors,
  labelErrors,
  listErrors,
  opaqueErrors,
  poolErrors,
  selectorErrors,
  taintErrors,
} from './device-rules.ts';
import { sliceErrors } from './device-slice-validation.ts';
import type {
  ClaimSpec,
  DeviceClass,
  DeviceTaintRule,
  ResourceClaim,
  ResourceClaimTemplate,
  ResourceSlice,
  Taint,
} from './device-types.ts';
import { checkedInSlices, type ExpressionChecker } from '../admissionregistration/expression-checks.ts';
import { immutable } from '../field-rules.ts';
import { ADMIN_ACCESS_LABEL } from '../../../../api/meta/well-known-labels.ts';

const GROUP = 'resource.k8s.io';
const MAX_CONFIGS = 32;

function claimDefaults(spec: ClaimSpec | undefined): void {
  for (const { exactly, firstAvailable = [] } of spec?.devices?.requests ?? []) {
    for (const request of exactly === undefined ? firstAvailable : [exactly, ...firstAvailable]) {
      if ((request.allocationMode ?? '') === '') request.allocationMode = 'ExactCount';
      if (request.allocationMode === 'ExactCount' && (request.count ?? 0) === 0) request.count = 1;
      for (const toleration of request.tolerations ?? [])
        if ((toleration.operator ?? '') === '') toleration.operator = 'Equal';
    }
  }
}

/** Refuses admin access in a namespace whose labels do not allow it. */
function adminErrors(spec: ClaimSpec | undefined, { namespace }: StrategyContext, options: KindOptions): FieldError[] {
  const index = (spec?.devices?.requests ?? []).findIndex(({ exactly }) => exactly?.adminAccess === true);
  return index < 0 ? [] : adminLabelErrors(`spec.devices.requests[${index}].adminAccess`, namespace, options);
}

/**
 * Refuses a new allocation with admin access in a namespace whose labels do not allow it. A claim that already has such an
 * allocation keeps it.
 */
function adminStatusErrors(object: ResourceClaim, old: ResourceClaim, options: KindOptions): FieldError[] {
  const granted = ({ status }: ResourceClaim): number =>
    (status?.allocation?.devices?.results ?? []).findIndex(({ adminAccess }) => adminAccess === true);
  const index = granted(object);
  if (index < 0 || granted(old) >= 0) return [];
  const { namespace = '' } = object.metadata;
  return adminLabelErrors(`status.allocation.devices.results[${index}].adminAccess`, namespace, options);
}

function adminLabelErrors(field: string, namespace: string, options: KindOptions): FieldError[] {
  const stored = options.stores.get('', 'namespaces').cache.get('', namespace)?.object;
  if (stored?.metadata.labels?.[ADMIN_ACCESS_LABEL] === 'true') return [];
  const text = `admin access to devices requires the \`${ADMIN_ACCESS_LABEL}: true\` label on the containing namespace`;
  return [forbidden(field, text)];
}

function claims(check: ExpressionChecker, options: KindOptions): Strategy<ResourceClaim> {
  return {
    metadataChecks: ['whole', 'update'],
    prepareForCreate: specAndStatus.prepareForCreate,
    prepareForUpdate: specAndStatus.prepareForUpdate,
    resetFields: specAndStatus.resetFields,
    applyDefaults: (object) => claimDefaults(object.spec),
    validateCreate: (object, context) =>
      checkedInSlices(check, options.clock, (checked) => [
        ...adminErrors(object.spec, context, options),
        ...deviceClaimErrors(checked, object.spec?.devices ?? {}, 'spec.devices'),
      ]),
    validateUpdate: (object, old) =>
      immutable('spec', object.spec, old.spec, 'io.k8s.api.resource.v1.ResourceClaimSpec'),
    returnsDeleted: true,
    columns: resourceClaimColumns,
    status: {
      ...(statusWithoutMetadata as UpdateStrategy<ResourceClaim>),
      prepareForUpdate: (object, old, context) => {
        statusWithoutMetadata.prepareForUpdate?.(object, old, context);
        dropDeallocatedDevices(object, old);
      },
      validateUpdate: (object, old) => [...adminStatusErrors(object, old, options), ...claimStatusErrors(object, old)],
    },
  };
}

function claimTemplates(check: ExpressionChecker, options: KindOptions): Strategy<ResourceClaimTemplate> {
  const specErrors = (checked: ExpressionChecker, { spec = {} }: ResourceClaimTemplate): FieldError[] => [
    ...templateMetadataErrors(spec.metadata, 'spec.metadata'),
    ...deviceClaimErrors(checked, spec.spec?.devices ?? {}, 'spec.spec.devices'),
  ];
  return {
    metadataChecks: ['whole', 'update'],
    applyDefaults: (object) => claimDefaults(object.spec?.spec),
    validateCreate: (object, context) =>
      checkedInSlices(check, options.clock, (checked) => [
        ...adminErrors(object.spec?.spec, context, options),
        ...specErrors(checked, object),
      ]),
    // kube-apiserver validates the spec of a template again, but not the spec of a claim.
    validateUpdate: (object, old) =>
      checkedInSlices(check, options.clock, (checked) => [
        ...specErrors(checked, object),
        ...immutable('spec', object.spec, old.spec, 'io.k8s.api.resource.v1.ResourceClaimTemplateSpec'),
      ]),
    returnsDeleted: true,
    columns: nameAndAgeColumns,
  };
}

function classErrors(check: ExpressionChecker, { spec = {} }: DeviceClass, old?: DeviceClass): FieldError[] {
  // Unchanged selectors are not compiled again, and unchanged parameters may exceed their limit.
  const sameSelectors = old !== undefined && semanticEqual(spec.selectors, old.spec?.selectors);
  const sameConfig = old !== undefined && semanticEqual(spec.config, old.spec?.config);
  const errors = [
    ...selectorErrors(sameSelectors ? () => undefined : check, 'spec.selectors', spec.selectors ?? []),
    ...listErrors('spec.config', spec.config ?? [], MAX_CONFIGS, ({ opaque }, at) =>
      opaqueErrors(opaque, at, sameConfig ? Number.POSITIVE_INFINITY : undefined),
    ),
  ];
  const name = spec.extendedResourceName;
  if (name !== undefined && !isExtendedResource(name))
    errors.push(invalid('spec.extendedResourceName', name, 'must be a valid extended resource name'));
  return errors;
}

function deviceClasses(check: ExpressionChecker): Strategy<DeviceClass> {
  return {
    generateName: 'unchecked',
    metadataChecks: ['whole', 'update'],
    managesGeneration: true,
    changesGeneration: specChanged,
    validateCreate: (object) => classErrors(check, object),
    validateUpdate: (object, old) => classErrors(check, object, old),
    returnsDeleted: true,
    columns: nameAndAgeColumns,
  };
}

/** Sets the time of new taints of devices. */
function dateTaints(taints: readonly Taint[], nowMs: number): void {
  for (const taint of taints) taint.timeAdded ??= new Date(nowMs).toISOString().replace(/\.\d+/, '');
}

/** Drops list values of attributes and node-allocatable mappings, whose feature gates are off. */
function dropUnsupported(object: ResourceSlice): void {
  for (const device of object.spec?.devices ?? []) {
    delete device.nodeAllocatableResourceMappings;
    for (const attribute of Object.values(device.attributes ?? {})) {
      if (attribute === undefined) continue;
      for (const field of ['bools', 'ints', 'strings', 'versions'] as const) delete attribute[field];
    }
  }
}

function driverWarnings({ spec }: ResourceSlice): string[] {
  const driver = spec?.driver ?? '';
  if (driver === driver.toLowerCase()) return [];
  return [`spec.driver: driver names should be lowercase; ${quoteText(driver)} contains uppercase characters`];
}

const slices: Strategy<ResourceSlice> = {
  metadataChecks: ['update'],
  managesGeneration: true,
  prepareForCreate(object, { nowMs }) {
    dropUnsupported(object);
    dateTaints(taintsOf(object), nowMs);
  },
  prepareForUpdate(object, _old, { nowMs }) {
    dropUnsupported(object);
    dateTaints(taintsOf(object), nowMs);
  },
  changesGeneration: specChanged,
  validateCreate: (object) => sliceErrors(object.spec ?? {}),
  validateUpdate: (object, old) => sliceErrors(object.spec ?? {}, old.spec),
  warningsOnCreate: driverWarnings,
  warningsOnUpdate: driverWarnings,
  selectableFields: {
    'spec.nodeName': (object) => object.spec?.nodeName ?? '',
    'spec.driver': (object) => object.spec?.driver ?? '',
  },
  unsupportedField: (field) => `field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: ${field}`,
  returnsDeleted: true,
  columns: resourceSliceColumns,
};

const taintsOf = (object: ResourceSlice): Taint[] => (object.spec?.devices ?? []).flatMap(({ taints }) => taints ?? []);

function taintRuleErrors({ spec = {} }: DeviceTaintRule, old?: DeviceTaintRule): FieldError[] {
  const { driver, pool, device } = spec.deviceSelector ?? {};
  const at = 'spec.deviceSelector';
  return [
    ...(driver === undefined ? [] : driverErrors(`${at}.driver`, driver)),
    ...(pool === undefined ? [] : poolErrors(`${at}.pool`, pool)),
    ...(device === undefined ? [] : labelErrors(`${at}.device`, device)),
    ...taintErrors(spec.taint ?? {}, 'spec.taint', old?.spec?.taint),
  ];
}

const dateRule = ({ spec }: DeviceTaintRule, { nowMs }: StrategyContext): void =>
  dateTaints(spec?.taint === undefined ? [] : [spec.taint], nowMs);

const taintRules: Strategy<DeviceTaintRule> = {
  ...specAndStatus,
  prepareForCreate(object, context) {
    specAndStatus.prepareForCreate(object);
    dateRule(object, context);
  },
  prepareForUpdate(object, old, context) {
    specAndStatus.prepareForUpdate(object, old);
    dateRule(object, context);
  },
  validateCreate: (object) => taintRuleErrors(object),
  validateUpdate: (object, old) => taintRuleErrors(object, old),
  returnsDeleted: true,
  columns: deviceTaintRuleColumns,
  status: statusWithoutMetadata as UpdateStrategy<DeviceTaintRule>,
};

/** Returns the rows of the group. `check` compiles selectors. */
export function deviceKinds(check: ExpressionChecker, options: KindOptions): KindRow[] {
  return [
    kindRow(GROUP, 'resourceclaims', claims(check, options), DEVICE_CONVERSIONS.claims),
    kindRow(GROUP, 'resourceclaimtemplates', claimTemplates(check, options), DEVICE_CONVERSIONS.templates),
    kindRow(GROUP, 'deviceclasses', deviceClasses(check)),
    kindRow(GROUP, 'resourceslices', slices, DEVICE_CONVERSIONS.slices),
    kindRow(GROUP, 'devicetaintrules', taintRules),
  ];
}
