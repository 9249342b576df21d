/** Validates resource slices: the devices of a pool that a driver reports. */
import { MAX_PROPERTIES, MAX_VALUE_BYTES } from '../../../../api/kinds/device-limits.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import type { V1NodeSelector } from '@kubernetes/client-node';
import { nodeSelectorErrors } from '../../../../api/kinds/scheduling-validation.ts';
import { type FieldError, forbidden, invalid, required, tooLong, tooMany } from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors } from '../../../../api/meta/names.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  parseQuantity,
  wholeUnits,
} from '../../../../api/meta/quantity.ts';
import {
  bindingConditionErrors,
  driverErrors,
  entryPath,
  labelErrors,
  listErrors,
  poolErrors,
  qualifiedErrors,
  setErrors,
  taintErrors,
} from './device-rules.ts';
import type { Device, SliceSpec } from './device-types.ts';
import { immutable } from '../field-rules.ts';
import { parseVersion } from '../coordination/semantic-version.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

/** The limits of slices in kube-apiserver (pkg/apis/resource). */
const MAX_DEVICES = 128;
/** The limit of devices in a slice whose devices have taints or share counters. */
const MAX_COSTLY_DEVICES = 64;
const MAX_COUNTER_SETS = 8;
const MAX_COUNTERS = 32;
const MAX_CONSUMPTIONS = 2;
/** The length up to which errors show the name of an attribute or a capacity whole. */
const MAX_PROPERTY_NAME = 96;
const MAX_TAINTS = 16;
const MAX_OPTIONS = 10;
const WAYS = 'exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required';

type Capacity = NonNullable<NonNullable<Device['capacity']>[string]>;
type Attribute = NonNullable<NonNullable<Device['attributes']>[string]>;

/**
 * Returns the errors of a slice. `old` is set on updates, which must not change the driver, the node or the name of the pool.
 */
export function sliceErrors(spec: SliceSpec, old?: SliceSpec): FieldError[] {
  const { driver = '', pool = {}, devices = [], sharedCounters = [] } = spec;
  const errors = [...driverErrors('spec.driver', driver), ...poolErrors('spec.pool.name', pool.name ?? '')];
  const { resourceSliceCount: count = 0, generation = 0 } = pool;
  if (count <= 0) errors.push(invalid('spec.pool.resourceSliceCount', count, 'must be greater than zero'));
  if (generation < 0) errors.push(invalid('spec.pool.generation', generation, 'must be greater than or equal to zero'));
  if (old !== undefined)
    errors.push(
      ...immutable('spec.pool.name', pool.name, old.pool?.name),
      ...immutable('spec.driver', driver, old.driver),
      ...immutable('spec.nodeName', spec.nodeName, old.nodeName),
    );
  errors.push(...placementErrors(spec));
  if (spec.sharedCounters !== undefined && spec.devices !== undefined)
    errors.push(invalid('spec', '', 'only one of `sharedCounters` or `devices` is allowed'));
  const costly = devices.some(
    ({ taints, consumesCounters }) => [...(taints ?? []), ...(consumesCounters ?? [])].length > 0,
  );
  const before = new Map((old?.devices ?? []).map((device) => [device.name, device]));
  errors.push(
    ...setErrors('spec.devices', devices, costly ? MAX_COSTLY_DEVICES : MAX_DEVICES, {
      item: (device, at) => deviceErrors(device, before.get(device.name), at, spec.perDeviceNodeSelection === true),
      key: ({ name = '' }) => name,
    }),
    ...setErrors('spec.sharedCounters', sharedCounters, MAX_COUNTER_SETS, {
      item: ({ name = '', counters = {} }, at) => counterErrors(name, counters, at, 'name'),
      key: ({ name = '' }) => name,
    }),
  );
  return errors;
}

function nodeNameErrors(field: string, name: string): FieldError[] {
  return invalidFor(field, name, dnsSubdomainErrors(name));
}

/** Returns the errors of the fields that select the nodes of the devices, of which exactly one is set. */
function placementErrors(spec: SliceSpec): FieldError[] {
  const errors: FieldError[] = [];
  const ways: string[] = [];
  const { nodeName, nodeSelector, allNodes, perDeviceNodeSelection } = spec;
  if (nodeName === '')
    errors.push(invalid('spec.nodeName', nodeName, 'must be either unset or set to a non-empty string'));
  else if (nodeName !== undefined) {
    ways.push('`nodeName`');
    errors.push(...nodeNameErrors('spec.nodeName', nodeName));
  }
  if (nodeSelector !== undefined) {
    ways.push('`nodeSelector`');
    errors.push(...nodeSelectorErrors(nodeSelector as V1NodeSelector, 'spec.nodeSelector'));
    const terms = nodeSelector.nodeSelectorTerms ?? [];
    if (terms.length !== 1)
      errors.push(
        invalid(
          'spec.nodeSelector.nodeSelectorTerms',
          nodeSelector.nodeSelectorTerms?.map((term) => internalForm('io.k8s.api.core.v1.NodeSelectorTerm', term)),
          'must have exactly one node selector term',
        ),
      );
  }
  for (const [name, value] of Object.entries({ allNodes, perDeviceNodeSelection })) {
    if (value === true) ways.push(`\`${name}\``);
    else if (value === false) errors.push(invalid(`spec.${name}`, value, 'must be either unset or set to true'));
  }
  if (ways.length === 0) errors.push(required('spec', WAYS));
  else if (ways.length > 1)
    errors.push(invalid('spec', `{${ways.join(', ')}}`, `${WAYS}, but multiple fields are set`));
  return errors;
}

function counterErrors(
  name: string,
  counters: Readonly<Record<string, unknown>>,
  at: string,
  nameField: string,
): FieldError[] {
  const errors = name === '' ? [required(`${at}.${nameField}`)] : labelErrors(`${at}.${nameField}`, name);
  const names = Object.keys(counters).sort();
  const field = `${at}.counters`;
  if (names.length === 0) errors.push(required(field));
  else if (names.length > MAX_COUNTERS) errors.push(tooMany(field, names.length, MAX_COUNTERS));
  else for (const counter of names) errors.push(...labelErrors(field, counter));
  return errors;
}

function deviceErrors(device: Device, old: Device | undefined, at: string, perDevice: boolean): FieldError[] {
  const { name = '', attributes = {}, capacity = {}, taints = [], consumesCounters = [] } = device;
  const errors = labelErrors(`${at}.name`, name);
  const properties = Object.keys(attributes).length + Object.keys(capacity).length;
  if (properties > MAX_PROPERTIES) {
    const text = `the total number of attributes and capacities must not exceed ${MAX_PROPERTIES}`;
    errors.push(invalid(at, properties, text));
  }
  for (const key of Object.keys(attributes).sort()) {
    const itemPath = entryPath(`${at}.attributes`, key, MAX_PROPERTY_NAME);
    errors.push(...qualifiedErrors(`${at}.attributes`, key), ...attributeErrors(attributes[key] ?? {}, itemPath));
  }
  const shared = device.allowMultipleAllocations === true;
  for (const key of Object.keys(capacity).sort()) {
    const itemPath = entryPath(`${at}.capacity`, key, MAX_PROPERTY_NAME);
    errors.push(...qualifiedErrors(`${at}.capacity`, key), ...capacityErrors(capacity[key] ?? {}, itemPath, shared));
  }
  if (old === undefined || !semanticEqual(old.taints, device.taints))
    errors.push(...listErrors(`${at}.taints`, taints, MAX_TAINTS, (taint, itemPath) => taintErrors(taint, itemPath)));
  errors.push(
    ...setErrors(`${at}.consumesCounters`, consumesCounters, MAX_CONSUMPTIONS, {
      item: ({ counterSet = '', counters = {} }, itemPath) =>
        counterErrors(counterSet, counters, itemPath, 'counterSet'),
      key: ({ counterSet = '' }) => counterSet,
    }),
    ...devicePlacementErrors(device, at, perDevice),
    ...bindingConditionErrors(device, at),
  );
  return errors;
}

function devicePlacementErrors(device: Device, at: string, perDevice: boolean): FieldError[] {
  const { nodeName, nodeSelector, allNodes } = device;
  if (!perDevice) {
    if (nodeName === undefined && nodeSelector === undefined && allNodes === undefined) return [];
    const text =
      '`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec';
    return [invalid(at, null, text)];
  }
  const errors: FieldError[] = [];
  const ways: string[] = [];
  if (nodeName === '') errors.push(invalid(`${at}.nodeName`, nodeName, 'must not be empty'));
  else if (nodeName !== undefined) {
    ways.push('`nodeName`');
    errors.push(...nodeNameErrors(`${at}.nodeName`, nodeName));
  }
  if (nodeSelector !== undefined) {
    ways.push('`nodeSelector`');
    errors.push(...nodeSelectorErrors(nodeSelector as V1NodeSelector, `${at}.nodeSelector`));
  }
  if (allNodes === true) ways.push('`allNodes`');
  else if (allNodes === false) errors.push(invalid(`${at}.allNodes`, allNodes, 'must be either unset or set to true'));
  const text =
    'exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec';
  if (ways.length === 0) errors.push(required(at, text));
  else if (ways.length > 1) errors.push(invalid(at, `{${ways.join(', ')}}`, text));
  return errors;
}

function attributeErrors(attribute: Attribute, at: string): FieldError[] {
  const { bool, int, string, version } = attribute;
  const errors: FieldError[] = [];
  const sized = (field: string, text: string): void => {
    if (Buffer.byteLength(text) > MAX_VALUE_BYTES) errors.push(tooLong(`${at}.${field}`, MAX_VALUE_BYTES));
  };
  if (string !== undefined) sized('string', string);
  if (version !== undefined) {
    if (parseVersion(version) === undefined)
      errors.push(invalid(`${at}.version`, version, 'must be a string compatible with semver.org spec 2.0.0'));
    sized('version', version);
  }
  const values = [bool, int, string, version].filter((value) => value !== undefined).length;
  if (values !== 1)
    errors.push(invalid(at, values === 0 ? '' : shownAttribute(attribute), 'exactly one value must be specified'));
  return errors;
}

/** Returns the attribute with the fields of its Go type. Those for lists are always empty, as their feature gate is off. */
function shownAttribute({ int, bool, string, version }: Attribute): object {
  return {
    IntValue: int ?? null,
    BoolValue: bool ?? null,
    StringValue: string ?? null,
    VersionValue: version ?? null,
    IntValues: null,
    BoolValues: null,
    StringValues: null,
    VersionValues: null,
  };
}

function capacityErrors(capacity: Capacity, at: string, shared: boolean): FieldError[] {
  const policy = capacity.requestPolicy;
  if (policy === undefined) return [];
  const field = `${at}.requestPolicy`;
  if (!shared) return [forbidden(field, 'allowMultipleAllocations must be true')];
  const { validValues = [], validRange } = policy;
  if (validValues.length > 0 && validRange !== undefined) {
    const text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time';
    return [forbidden(field, text)];
  }
  const max = capacity.value ?? '0';
  if (validValues.length > 0)
    return policy.default === undefined
      ? [required(`${field}.default`, 'required when validValues is defined')]
      : optionErrors(policy.default, validValues, max, `${field}.validValues`);
  if (validRange === undefined) return [];
  return policy.default === undefined
    ? [required(`${field}.default`, 'required when validRange is defined')]
    : rangeErrors(policy.default, validRange, max, `${field}.validRange`);
}

const compare = (a: string, b: string): number => compareQuantities(parseQuantity(a), parseQuantity(b));

function optionErrors(standard: string, options: readonly string[], max: string, field: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [index, option] of options.entries()) {
    const before = options[index - 1];
    if (before !== undefined && compare(before, option) > 0)
      errors.push(invalid(`${field}[${index}]`, option, 'values must be sorted in ascending order'));
  }
  errors.push(
    ...setErrors(field, options, MAX_OPTIONS, {
      item: (option, at) =>
        compare(option, max) > 0 ? [invalid(at, option, `option is larger than capacity value: ${max}`)] : [],
      key: (option) => String(wholeUnits(parseQuantity(option))),
    }),
  );
  if (!options.some((option) => compare(option, standard) === 0))
    errors.push(invalid(field, standard, 'default value is not valid according to the requestPolicy'));
  return errors;
}

type Range = NonNullable<NonNullable<Capacity['requestPolicy']>['validRange']>;

function rangeErrors(standard: string, { min, max, step }: Range, limit: string, field: string): FieldError[] {
  if (min === undefined) return [required(`${field}.min`, 'required when validRange is defined')];
  const errors: FieldError[] = [];
  const refuse = (name: string, value: string, why: string): void => {
    errors.push(invalid(`${field}.${name}`, value, why));
  };
  if (compare(min, limit) > 0) refuse('min', min, `min is larger than capacity value: ${limit}`);
  if (compare(standard, min) < 0) refuse('min', standard, `default is less than min: ${min}`);
  if (max !== undefined) {
    if (compare(min, max) > 0) refuse('max', min, `min is larger than max: ${max}`);
    if (compare(max, limit) > 0) refuse('max', max, `max is larger than capacity value: ${limit}`);
    if (compare(standard, max) > 0) refuse('max', standard, `default is more than max: ${max}`);
  }
  if (step === undefined) return errors;
  const stride = parseQuantity(step);
  if (stride.nano <= 0n) {
    refuse('step', step, 'must be greater than zero');
    return errors;
  }
  const first = addQuantities(parseQuantity(min), stride);
  if (compareQuantities(first, parseQuantity(limit)) > 0)
    refuse('step', step, `one step ${formatQuantity(first)} is larger than capacity value: ${limit}`);
  const units = (text: string): bigint => wholeUnits(parseQuantity(text));
  for (const value of max === undefined ? [standard] : [standard, max]) {
    if ((units(value) - units(min)) % units(step) !== 0n)
      refuse('step', value, `value is not a multiple of a given step (${step}) from (${min})`);
  }
  return errors;
}
