/** Validates the requests and the status of a claim for devices. */
import type { V1NodeSelector } from '@kubernetes/client-node';
import { MAX_CONSUMERS } from '../../../../api/kinds/device-limits.ts';
import { nodeSelectorErrors } from '../../../../api/kinds/scheduling-validation.ts';
import { conditionErrors, type CommonCondition } from '../../../../api/meta/conditions.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { canonicalIp, parseCidr, formatIp } from '../../../../api/meta/ip-addresses.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors } from '../../../../api/meta/names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import {
  bindingConditionErrors,
  driverErrors,
  fullyQualifiedErrors,
  labelErrors,
  listErrors,
  opaqueErrors,
  poolErrors,
  rawObjectErrors,
  selectorErrors,
  setErrors,
  tolerationErrors,
} from './device-rules.ts';
import type {
  AllocatedDevice,
  Allocation,
  ClaimConfiguration,
  ClaimStatus,
  DeviceClaim,
  DeviceConstraint,
  DeviceRequest,
  ExactRequest,
  ResourceClaim,
  SubRequest,
} from './device-types.ts';
import type { ExpressionChecker } from '../admissionregistration/expression-checks.ts';
import { IMMUTABLE, maxBytes } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

/** The limits of claims in kube-apiserver (pkg/apis/resource). */
const MAX_REQUESTS = 32;
const MAX_SUBREQUESTS = 8;
const MAX_CONSTRAINTS = 32;
const MAX_CONFIGS = 32;
const MAX_RESULTS = 32;
const MAX_STATUS_DATA_BYTES = 10 * 1024;
const ALLOCATION_MODES = ['All', 'ExactCount'];
const CONFIG_SOURCES = ['FromClaim', 'FromClass'];

/** The names of a claim's requests, each with the names of its subrequests. */
type RequestNames = ReadonlyMap<string, ReadonlySet<string>>;

function namesOf(claim: DeviceClaim): RequestNames {
  return new Map(
    (claim.requests ?? []).map(({ name = '', firstAvailable = [] }) => [
      name,
      new Set(firstAvailable.map((sub) => sub.name ?? '')),
    ]),
  );
}

/** Returns the errors of a claim's `devices`, whose path is `at`. `check` compiles selectors. */
export function deviceClaimErrors(check: ExpressionChecker, claim: DeviceClaim, at: string): FieldError[] {
  const names = namesOf(claim);
  return [
    ...setErrors(`${at}.requests`, claim.requests ?? [], MAX_REQUESTS, {
      item: (request, itemPath) => requestErrors(check, request, itemPath),
      key: ({ name = '' }) => name,
    }),
    ...listErrors(`${at}.constraints`, claim.constraints ?? [], MAX_CONSTRAINTS, (constraint, itemPath) =>
      constraintErrors(constraint, itemPath, names),
    ),
    ...listErrors(`${at}.config`, claim.config ?? [], MAX_CONFIGS, (config, itemPath) =>
      configErrors(config, itemPath, names),
    ),
  ];
}

function requestErrors(check: ExpressionChecker, request: DeviceRequest, at: string): FieldError[] {
  const { name = '', exactly, firstAvailable = [] } = request;
  const errors = labelErrors(`${at}.name`, name);
  const text = 'exactly one of `exactly` or `firstAvailable` is required';
  if (exactly === undefined && firstAvailable.length === 0) errors.push(required(at, text));
  else if (exactly !== undefined && firstAvailable.length > 0)
    errors.push(invalid(at, null, `${text}, but multiple fields are set`));
  else if (exactly !== undefined) errors.push(...deviceErrors(check, exactly, `${at}.exactly`));
  else {
    errors.push(
      ...setErrors(`${at}.firstAvailable`, firstAvailable, MAX_SUBREQUESTS, {
        item: (sub, itemPath) => [
          ...labelErrors(`${itemPath}.name`, sub.name ?? ''),
          ...deviceErrors(check, sub, itemPath),
        ],
        key: (sub) => sub.name ?? '',
      }),
    );
  }
  return errors;
}

/** Validates the fields that requests and subrequests have in common. */
function deviceErrors(check: ExpressionChecker, request: ExactRequest | SubRequest, at: string): FieldError[] {
  const { deviceClassName: name = '', selectors = [], allocationMode = '', count = 0, tolerations = [] } = request;
  const field = `${at}.deviceClassName`;
  const errors = [
    ...(name === '' ? [required(field)] : invalidFor(field, name, dnsSubdomainErrors(name))),
    ...selectorErrors(check, `${at}.selectors`, selectors),
  ];
  if (!ALLOCATION_MODES.includes(allocationMode))
    errors.push(notSupported(`${at}.allocationMode`, allocationMode, ALLOCATION_MODES));
  else if (allocationMode === 'All') {
    if (count !== 0) errors.push(invalid(`${at}.count`, count, "must not be specified when allocationMode is 'All'"));
  } else if (count <= 0) errors.push(invalid(`${at}.count`, count, 'must be greater than zero'));
  for (const [index, toleration] of tolerations.entries())
    errors.push(...tolerationErrors(toleration, `${at}.tolerations[${index}]`));
  return errors;
}

function requestReferenceErrors(name: string, at: string, names: RequestNames): FieldError[] {
  const text = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
  const segments = name.split('/');
  if (segments.length > 2) return [invalid(at, name, text)];
  const errors = segments.flatMap((segment) => labelErrors(at, segment));
  const [request = '', alternative] = segments;
  const subrequests = names.get(request);
  if (subrequests === undefined || (alternative !== undefined && !subrequests.has(alternative)))
    errors.push(invalid(at, name, text));
  return errors;
}

function referencesErrors(requests: readonly string[], at: string, names: RequestNames): FieldError[] {
  return setErrors(`${at}.requests`, requests, MAX_REQUESTS, {
    item: (name, itemPath) => requestReferenceErrors(name, itemPath, names),
    key: (name) => name,
  });
}

function constraintErrors(constraint: DeviceConstraint, at: string, names: RequestNames): FieldError[] {
  const { requests = [], matchAttribute, distinctAttribute } = constraint;
  const errors = referencesErrors(requests, at, names);
  if (matchAttribute !== undefined) errors.push(...fullyQualifiedErrors(`${at}.matchAttribute`, matchAttribute));
  else if (distinctAttribute !== undefined)
    errors.push(...fullyQualifiedErrors(`${at}.distinctAttribute`, distinctAttribute));
  else {
    const text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set';
    errors.push(required(at, text));
  }
  return errors;
}

function configErrors(config: ClaimConfiguration, at: string, names: RequestNames): FieldError[] {
  return [...referencesErrors(config.requests ?? [], at, names), ...opaqueErrors(config.opaque, at)];
}

const ALLOCATION = 'io.k8s.api.resource.v1.AllocationResult';

/** Validates the status of a claim. An allocation may appear and disappear, but not change. */
export function claimStatusErrors(object: ResourceClaim, old: ResourceClaim): FieldError[] {
  const status: ClaimStatus = object.status ?? {};
  const { allocation, reservedFor = [], devices = [] } = status;
  const allocated = new Set((allocation?.devices?.results ?? []).map((result) => deviceKey(result)));
  const errors = [
    ...setErrors('status.reservedFor', reservedFor, MAX_CONSUMERS, {
      item: ({ resource = '', name = '', uid = '' }, at) =>
        Object.entries({ resource, name, uid }).flatMap(([field, value]) =>
          value === '' ? [required(`${at}.${field}`)] : [],
        ),
      key: ({ uid = '' }) => uid,
    }),
    ...setErrors('status.devices', devices, Number.POSITIVE_INFINITY, {
      item: (device, at) => allocatedDeviceErrors(device, at, allocated),
      key: deviceKey,
      shown: sharedDevice,
    }),
  ];
  if (reservedFor.length > 0) errors.push(...reservationErrors(object, old));
  const before = old.status?.allocation;
  if (before !== undefined && allocation !== undefined) {
    if (!semanticEqual(before, allocation))
      errors.push(invalid('status.allocation', internalForm(ALLOCATION, allocation), IMMUTABLE));
  } else if (allocation !== undefined)
    errors.push(...allocationErrors(allocation, 'status.allocation', namesOf(object.spec?.devices ?? {})));
  return errors;
}

/** Removes the status of devices that the claim had and has no more. */
export function dropDeallocatedDevices(object: ResourceClaim, old: ResourceClaim): void {
  const { status } = object;
  if (status?.devices === undefined) return;
  const keysOf = ({ status: of }: ResourceClaim): string[] => (of?.allocation?.devices?.results ?? []).map(deviceKey);
  const deallocated = new Set(keysOf(old)).difference(new Set(keysOf(object)));
  const remainingDevices = status.devices.filter((device) => !deallocated.has(deviceKey(device)));
  if (remainingDevices.length > 0) status.devices = remainingDevices;
  else delete status.devices;
}

/** Names a device, or a share of it. */
interface SharedDevice {
  driver?: string | undefined;
  pool?: string | undefined;
  device?: string | undefined;
  shareID?: string | undefined;
}

/** Returns a device as kube-apiserver's errors show it. */
function sharedDevice({ driver = '', pool = '', device = '', shareID = '' }: SharedDevice): object {
  return { Driver: driver, Pool: pool, Device: device, ShareID: shareID };
}

function deviceKey(of: SharedDevice): string {
  const { driver = '', pool = '', device = '', shareID } = of;
  const key = `${driver}/${pool}/${device}`;
  return shareID === undefined ? key : `${key}/${shareID}`;
}

function reservationErrors(object: ResourceClaim, old: ResourceClaim): FieldError[] {
  const field = 'status.reservedFor';
  if (object.status?.allocation === undefined)
    return [forbidden(field, 'may not be specified when `allocated` is not set')];
  if (object.metadata.deletionTimestamp === undefined) return [];
  const before = old.status?.reservedFor ?? [];
  const hasNewConsumer = (object.status.reservedFor ?? []).some(
    (consumer) => !before.some((one) => semanticEqual(one, consumer)),
  );
  const text = 'new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set';
  return hasNewConsumer ? [forbidden(field, text)] : [];
}

function allocationErrors(allocation: Allocation, at: string, names: RequestNames): FieldError[] {
  const { results = [], config = [] } = allocation.devices ?? {};
  const errors = [
    ...listErrors(`${at}.devices.results`, results, MAX_RESULTS, (result, itemPath) => [
      ...requestReferenceErrors(result.request ?? '', `${itemPath}.request`, names),
      ...driverErrors(`${itemPath}.driver`, result.driver ?? ''),
      ...poolErrors(`${itemPath}.pool`, result.pool ?? ''),
      ...labelErrors(`${itemPath}.device`, result.device ?? ''),
      ...bindingConditionErrors(result, itemPath),
      ...(result.shareID === undefined ? [] : uidErrors(`${itemPath}.shareID`, result.shareID)),
    ]),
    ...listErrors(
      `${at}.devices.config`,
      config,
      2 * MAX_CONFIGS,
      ({ source = '', requests = [], opaque }, itemPath) => [
        ...(source === ''
          ? [required(`${itemPath}.source`)]
          : CONFIG_SOURCES.includes(source)
            ? []
            : [notSupported(`${itemPath}.source`, source, CONFIG_SOURCES)]),
        ...referencesErrors(requests, itemPath, names),
        ...opaqueErrors(opaque, itemPath),
      ],
    ),
  ];
  if (allocation.nodeSelector !== undefined)
    errors.push(...nodeSelectorErrors(allocation.nodeSelector as V1NodeSelector, `${at}.nodeSelector`));
  return errors;
}

function uidErrors(field: string, uid: string): FieldError[] {
  if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(uid)) return [];
  if (/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/.test(uid)) {
    const form = '`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`';
    const text = `uid must be in RFC 4122 normalized form, ${form} with lowercase hexadecimal characters`;
    return [invalid(field, uid, text)];
  }
  const why = uid.length === 36 ? 'invalid UUID format' : `invalid UUID length: ${uid.length}`;
  return [invalid(field, uid, `error validating uid: ${why}`)];
}

const MAX_CONDITIONS = 8;
const MAX_INTERFACE_BYTES = 256;
const MAX_HARDWARE_BYTES = 128;
const MAX_IPS = 16;

function allocatedDeviceErrors(device: AllocatedDevice, at: string, allocated: ReadonlySet<string>): FieldError[] {
  const { driver = '', pool = '', device: name = '', shareID, conditions = [], data, networkData } = device;
  const errors = [
    ...driverErrors(`${at}.driver`, driver),
    ...poolErrors(`${at}.pool`, pool),
    ...labelErrors(`${at}.device`, name),
    ...(shareID === undefined ? [] : uidErrors(`${at}.shareID`, shareID)),
  ];
  if (!allocated.has(deviceKey(device)))
    errors.push(invalid(at, sharedDevice(device), 'must be an allocated device in the claim'));
  errors.push(...listErrors(`${at}.conditions`, conditions, MAX_CONDITIONS, () => []));
  errors.push(...conditionErrors(conditions as readonly CommonCondition[], `${at}.conditions`));
  if (data !== undefined) errors.push(...rawObjectErrors(`${at}.data`, data, MAX_STATUS_DATA_BYTES));
  if (networkData !== undefined) {
    const networkField = `${at}.networkData`;
    errors.push(
      ...maxBytes(`${networkField}.interfaceName`, networkData.interfaceName, MAX_INTERFACE_BYTES),
      ...maxBytes(`${networkField}.hardwareAddress`, networkData.hardwareAddress, MAX_HARDWARE_BYTES),
      ...setErrors(`${networkField}.ips`, networkData.ips ?? [], MAX_IPS, {
        item: (address, field) => interfaceAddressErrors(field, address),
        key: (address) => address,
      }),
    );
  }
  return errors;
}

/** Validates an address with the length of its prefix. It must be in canonical form. */
function interfaceAddressErrors(field: string, text: string): FieldError[] {
  const cidr = parseCidr(text);
  if (cidr === undefined)
    return [invalid(field, text, 'must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)')];
  const address = text.slice(0, text.indexOf('/'));
  const canonical = `${canonicalIp(address) ?? formatIp(cidr.address)}/${cidr.prefixLength}`;
  return text === canonical ? [] : [invalid(field, text, `must be in canonical form ("${canonical}")`)];
}
