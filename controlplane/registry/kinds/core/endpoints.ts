/** Defines the strategies of endpoints and endpoint slices, which hold the addresses behind a service. */
import { PROTOCOLS } from '../../../../api/kinds/container-validation.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1Endpoints, V1EndpointSlice } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { duplicate, type FieldError, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { canonicalIp, ipErrors, parseIp } from '../../../../api/meta/ip-addresses.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  fullyQualifiedDomainErrors,
  labelValueErrors,
  qualifiedNameErrors,
} from '../../../../api/meta/names.ts';
import { validateLabels } from '../../../../api/meta/selector.ts';
import { endpointsColumns, endpointSliceColumns } from './endpoint-columns.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { ipWarnings } from '../../../../api/kinds/address-warnings.ts';
import { immutable, maxItems, requiredText, within } from '../field-rules.ts';
import { specialAddressErrors } from './special-addresses.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Endpoints = Kind<Pick<V1Endpoints, 'subsets'>>;
type Slice = Kind<Pick<V1EndpointSlice, 'addressType' | 'endpoints' | 'ports'>>;

type Subset = NonNullable<Endpoints['subsets']>[number];

function subsetErrors(subset: Subset, at: string, stored: ReadonlySet<string>): FieldError[] {
  const errors: FieldError[] = [];
  if ((subset.addresses ?? []).length === 0 && (subset.notReadyAddresses ?? []).length === 0) {
    errors.push(required(at, 'must specify `addresses` or `notReadyAddresses`'));
  }
  for (const list of ['addresses', 'notReadyAddresses'] as const) {
    for (const [index, { ip = '', hostname = '', nodeName }] of (subset[list] ?? []).entries()) {
      const addressPath = `${at}.${list}[${index}]`;
      if (!stored.has(ip)) errors.push(...ipErrors(`${addressPath}.ip`, ip));
      if (hostname !== '') errors.push(...invalidFor(`${addressPath}.hostname`, hostname, dnsLabelErrors(hostname)));
      if (nodeName !== undefined)
        errors.push(...invalidFor(`${addressPath}.nodeName`, nodeName, dnsSubdomainErrors(nodeName)));
      errors.push(...specialAddressErrors(`${addressPath}.ip`, ip));
    }
  }
  const ports = subset.ports ?? [];
  for (const [index, port] of ports.entries()) {
    const portPath = `${at}.ports[${index}]`;
    const { name = '', protocol = '', appProtocol } = port;
    if (ports.length > 1 && name === '') errors.push(required(`${portPath}.name`));
    else if (name !== '') errors.push(...invalidFor(`${portPath}.name`, name, dnsLabelErrors(name)));
    errors.push(...within(`${portPath}.port`, port.port ?? 0, 1, 65535));
    if (protocol === '') errors.push(required(`${portPath}.protocol`));
    else if (!PROTOCOLS.includes(protocol)) errors.push(notSupported(`${portPath}.protocol`, protocol, PROTOCOLS));
    if (appProtocol !== undefined)
      errors.push(...invalidFor(`${portPath}.appProtocol`, appProtocol, qualifiedNameErrors(appProtocol)));
  }
  return errors;
}

const addressesOf = ({ addresses = [], notReadyAddresses = [] }: Subset): string[] =>
  [...addresses, ...notReadyAddresses].map(({ ip = '' }) => ip);

function endpointsErrors(object: Endpoints, old?: Endpoints): FieldError[] {
  // Addresses of the old object stay valid even if they are not in canonical form.
  const stored = new Set((old?.subsets ?? []).flatMap(addressesOf));
  return (object.subsets ?? []).flatMap((subset, index) => subsetErrors(subset, `subsets[${index}]`, stored));
}

function endpointsWarnings(object: Endpoints): string[] {
  return (object.subsets ?? []).flatMap((subset, index) =>
    (['addresses', 'notReadyAddresses'] as const).flatMap((list) =>
      (subset[list] ?? []).flatMap(({ ip = '' }, number) => ipWarnings(`subsets[${index}].${list}[${number}].ip`, ip)),
    ),
  );
}

const endpoints: Strategy<Endpoints> = {
  allowCreateOnUpdate: true,
  applyDefaults(object) {
    for (const subset of object.subsets ?? []) {
      for (const port of subset.ports ?? []) if ((port.protocol ?? '') === '') port.protocol = 'TCP';
    }
  },
  validateCreate: (object) => endpointsErrors(object),
  validateUpdate: endpointsErrors,
  warningsOnCreate: endpointsWarnings,
  warningsOnUpdate: endpointsWarnings,
  columns: endpointsColumns,
};

const ADDRESS_TYPES = ['FQDN', 'IPv4', 'IPv6'];
const FAMILIES: ReadonlyMap<string, 4 | 6> = new Map(Object.entries({ IPv4: 4, IPv6: 6 }));
/** The limits of an EndpointSlice in kube-apiserver (pkg/apis/discovery). */
const MAX_ENDPOINTS = 1000;
const MAX_ADDRESSES = 100;
const MAX_PORTS = 20_000;
const MAX_TOPOLOGY_LABELS = 16;
const MAX_HINTS = 8;

type Endpoint = NonNullable<Slice['endpoints']>[number];

function sliceErrors(object: Slice, old?: Slice): FieldError[] {
  const { addressType = '', endpoints: sliceEndpoints = [], ports = [] } = object;
  const errors = requiredText('addressType', addressType);
  if (addressType !== '' && !ADDRESS_TYPES.includes(addressType))
    errors.push(notSupported('addressType', addressType, ADDRESS_TYPES));
  if ((ports ?? []).length > MAX_PORTS) errors.push(...maxItems('ports', ports ?? [], MAX_PORTS));
  else errors.push(...portErrors(ports ?? []));
  const stored = new Set((old?.endpoints ?? []).flatMap(({ addresses }) => addresses ?? []));
  if ((sliceEndpoints ?? []).length > MAX_ENDPOINTS)
    errors.push(...maxItems('endpoints', sliceEndpoints ?? [], MAX_ENDPOINTS));
  else
    for (const [index, endpoint] of (sliceEndpoints ?? []).entries())
      errors.push(...endpointErrors(endpoint, `endpoints[${index}]`, addressType, stored));
  return errors;
}

function endpointErrors(endpoint: Endpoint, at: string, type: string, stored: ReadonlySet<string>): FieldError[] {
  const { addresses = [], deprecatedTopology, nodeName, hostname, hints } = endpoint;
  const field = `${at}.addresses`;
  const errors: FieldError[] = [];
  if (addresses.length === 0) errors.push(required(field, 'must contain at least 1 address'));
  else errors.push(...maxItems(field, addresses, MAX_ADDRESSES));
  for (const [index, address] of addresses.entries()) {
    const addressPath = `${field}[${index}]`;
    const family = FAMILIES.get(type);
    if (type === 'FQDN') errors.push(...fullyQualifiedDomainErrors(addressPath, address));
    else if (family !== undefined) errors.push(...familyErrors(field, addressPath, address, { family, stored }));
  }
  if (nodeName !== undefined) errors.push(...invalidFor(`${at}.nodeName`, nodeName, dnsSubdomainErrors(nodeName)));
  const topology = `${at}.deprecatedTopology`;
  const labels = Object.keys(deprecatedTopology ?? {});
  errors.push(
    ...maxItems(topology, labels, MAX_TOPOLOGY_LABELS),
    ...validateLabels(deprecatedTopology as Record<string, string> | undefined, topology),
  );
  if (hostname !== undefined) errors.push(...invalidFor(`${at}.hostname`, hostname, dnsLabelErrors(hostname)));
  if (hints !== undefined) errors.push(...hintErrors(hints, `${at}.hints`));
  return errors;
}

interface FamilyRules {
  readonly family: 4 | 6;
  readonly stored: ReadonlySet<string>;
}

/**
 * Validates an address. An address of the wrong family is an error of the list, and every other error is one of the address.
 * For a valid address that the slice already has, family and canonical form are not validated again.
 */
function familyErrors(list: string, field: string, address: string, { family, stored }: FamilyRules): FieldError[] {
  const ip = parseIp(address);
  if (ip === undefined) return ipErrors(field, address);
  if (stored.has(address)) return specialAddressErrors(field, address);
  const errors = ipErrors(field, address);
  if (errors.length > 0) return errors;
  if (ip.family !== family) errors.push(invalid(list, address, `must be an IPv${family} address`));
  const canonical = canonicalIp(address);
  if (canonical !== undefined && canonical !== address)
    errors.push(invalid(field, address, `must be in canonical form (${quoteText(canonical)})`));
  return [...errors, ...specialAddressErrors(field, address)];
}

function hintErrors({ forZones = [], forNodes = [] }: NonNullable<Endpoint['hints']>, at: string): FieldError[] {
  const named = (
    items: readonly { readonly name?: string | undefined }[],
    field: string,
    rule: (name: string) => string[],
  ): FieldError[] => {
    if (items.length > MAX_HINTS) return maxItems(field, items, MAX_HINTS);
    const seen = new Set<string>();
    return items.flatMap(({ name = '' }, index) => {
      const namePath = `${field}[${index}].name`;
      const errors = seen.has(name) ? [duplicate(namePath, name)] : [];
      seen.add(name);
      return [...errors, ...invalidFor(namePath, name, rule(name))];
    });
  };
  return [
    ...named(forZones, `${at}.forZones`, labelValueErrors),
    ...named(forNodes, `${at}.forNodes`, dnsSubdomainErrors),
  ];
}

function portErrors(ports: NonNullable<Slice['ports']>): FieldError[] {
  const names = new Set<string>();
  return ports.flatMap(({ name = '', protocol, appProtocol }, index) => {
    const at = `ports[${index}]`;
    const errors = name === '' ? [] : invalidFor(`${at}.name`, name, dnsLabelErrors(name));
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    names.add(name);
    if (protocol === undefined) errors.push(required(`${at}.protocol`));
    else if (!PROTOCOLS.includes(protocol)) errors.push(notSupported(`${at}.protocol`, protocol, PROTOCOLS));
    if (appProtocol !== undefined)
      errors.push(...invalidFor(`${at}.appProtocol`, appProtocol, qualifiedNameErrors(appProtocol)));
    return errors;
  });
}

/** Drops the topology of endpoints, which v1 does not have. Those of the old slice may stay. */
function dropTopology(object: Slice, old?: Slice): void {
  const before = (old?.endpoints ?? []).map(({ deprecatedTopology }) => deprecatedTopology);
  for (const endpoint of object.endpoints ?? []) {
    const { deprecatedTopology: topology } = endpoint;
    if (topology !== undefined && !before.some((one) => semanticEqual(one, topology)))
      delete endpoint.deprecatedTopology;
  }
}

function sliceWarnings(object: Slice): string[] {
  if (object.addressType === 'FQDN') return ['spec.addressType: FQDN endpoints are deprecated'];
  return (object.endpoints ?? []).flatMap(({ addresses = [] }, index) =>
    addresses.flatMap((address, number) => ipWarnings(`spec.endpoints[${index}].addresses[${number}]`, address)),
  );
}

const slices: Strategy<Slice> = {
  metadataChecks: ['whole'],
  managesGeneration: true,
  applyDefaults(object) {
    for (const port of object.ports ?? []) {
      port.name ??= '';
      port.protocol ??= 'TCP';
    }
  },
  prepareForCreate: (object) => dropTopology(object),
  prepareForUpdate: dropTopology,
  changesGeneration: (object, old) =>
    !semanticEqual(
      [object.addressType, object.endpoints, object.ports, object.metadata.labels],
      [old.addressType, old.endpoints, old.ports, old.metadata.labels],
    ),
  validateCreate: (object) => sliceErrors(object),
  validateUpdate: (object, old) => [
    ...sliceErrors(object, old),
    ...immutable('addressType', object.addressType, old.addressType),
  ],
  warningsOnCreate: sliceWarnings,
  warningsOnUpdate: sliceWarnings,
  columns: endpointSliceColumns,
};

export const endpointKinds = [
  kindRow('', 'endpoints', endpoints),
  kindRow('discovery.k8s.io', 'endpointslices', slices),
];
