/** Endpoints and endpoint slices: where a service's traffic goes. */
import type { V1Endpoints, V1EndpointSlice } from '@kubernetes/client-node';
import type { Kind } from '../../../api/kinds/wire.ts';
import { duplicate, type FieldError } from '../../../api/meta/field-error.ts';
import {
  isLinkLocalMulticast,
  isLinkLocalUnicast,
  isLoopback,
  isUnspecified,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import { dnsLabelErrors, dnsSubdomainErrors, qualifiedNameErrors } from '../../../api/meta/names.ts';
import { kindRow, type Strategy } from '../strategy.ts';
import { immutable, invalid, invalidFor, notSupported, required, requiredText, within } from './field-rules.ts';

type Endpoints = Kind<Pick<V1Endpoints, 'subsets'>>;
type Slice = Kind<Pick<V1EndpointSlice, 'addressType' | 'endpoints' | 'ports'>>;

const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];

function addressErrors(address: string, field: string): FieldError[] {
  const ip = parseIp(address);
  if (ip === undefined)
    return [invalid(field, address, 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)')];
  const errors: FieldError[] = [];
  if (isUnspecified(ip)) errors.push(invalid(field, address, `may not be unspecified (${address})`));
  if (isLoopback(ip)) errors.push(invalid(field, address, 'may not be in the loopback range (127.0.0.0/8, ::1/128)'));
  if (isLinkLocalUnicast(ip))
    errors.push(invalid(field, address, 'may not be in the link-local range (169.254.0.0/16, fe80::/10)'));
  if (isLinkLocalMulticast(ip))
    errors.push(invalid(field, address, 'may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)'));
  return errors;
}

type Subset = NonNullable<Endpoints['subsets']>[number];

function subsetErrors(subset: Subset, at: string): FieldError[] {
  const errors: FieldError[] = [];
  if ((subset.addresses ?? []).length === 0 && (subset.notReadyAddresses ?? []).length === 0) {
    errors.push(required(at, 'must specify `addresses` or `notReadyAddresses`'));
  }
  for (const list of ['addresses', 'notReadyAddresses'] as const) {
    for (const [index, { ip = '', hostname = '', nodeName }] of (subset[list] ?? []).entries()) {
      const own = `${at}.${list}[${index}]`;
      errors.push(...addressErrors(ip, `${own}.ip`));
      if (hostname !== '') errors.push(...invalidFor(`${own}.hostname`, hostname, dnsLabelErrors(hostname)));
      if (nodeName !== undefined) errors.push(...invalidFor(`${own}.nodeName`, nodeName, dnsSubdomainErrors(nodeName)));
    }
  }
  const ports = subset.ports ?? [];
  for (const [index, port] of ports.entries()) {
    const own = `${at}.ports[${index}]`;
    const { name = '', protocol = '', appProtocol } = port;
    if (ports.length > 1 && name === '') errors.push(required(`${own}.name`));
    else if (name !== '') errors.push(...invalidFor(`${own}.name`, name, dnsLabelErrors(name)));
    errors.push(...within(`${own}.port`, port.port ?? 0, 1, 65535));
    if (protocol === '') errors.push(required(`${own}.protocol`));
    else if (!PROTOCOLS.includes(protocol)) errors.push(notSupported(`${own}.protocol`, protocol, PROTOCOLS));
    if (appProtocol !== undefined)
      errors.push(...invalidFor(`${own}.appProtocol`, appProtocol, qualifiedNameErrors(appProtocol)));
  }
  return errors;
}

const subsetsErrors = (object: Endpoints): FieldError[] =>
  (object.subsets ?? []).flatMap((subset, index) => subsetErrors(subset, `subsets[${index}]`));

const endpoints: Strategy<Endpoints> = {
  allowCreateOnUpdate: true,
  applyDefaults(object) {
    for (const subset of object.subsets ?? []) {
      for (const port of subset.ports ?? []) if ((port.protocol ?? '') === '') port.protocol = 'TCP';
    }
  },
  validateCreate: subsetsErrors,
  validateUpdate: subsetsErrors,
};

const ADDRESS_TYPES = ['FQDN', 'IPv4', 'IPv6'];
const MAX_ENDPOINTS = 1000;

function sliceErrors(object: Slice): FieldError[] {
  const { addressType = '' } = object;
  const errors = requiredText('addressType', addressType);
  if (addressType !== '' && !ADDRESS_TYPES.includes(addressType))
    errors.push(notSupported('addressType', addressType, ADDRESS_TYPES));
  if ((object.endpoints ?? []).length > MAX_ENDPOINTS)
    errors.push(invalid('endpoints', (object.endpoints ?? []).length, `must have at most ${MAX_ENDPOINTS} items`));
  for (const [index, endpoint] of (object.endpoints ?? []).entries()) {
    const at = `endpoints[${index}]`;
    const addresses = endpoint.addresses ?? [];
    if (addresses.length === 0) errors.push(required(`${at}.addresses`, 'must contain at least 1 address'));
    for (const [own, address] of addresses.entries()) {
      const field = `${at}.addresses[${own}]`;
      if (addressType === 'FQDN') errors.push(...invalidFor(field, address, dnsSubdomainErrors(address)));
      else errors.push(...addressErrors(address, field));
    }
    if (endpoint.nodeName !== undefined)
      errors.push(...invalidFor(`${at}.nodeName`, endpoint.nodeName, dnsSubdomainErrors(endpoint.nodeName)));
    if (endpoint.hostname !== undefined)
      errors.push(...invalidFor(`${at}.hostname`, endpoint.hostname, dnsLabelErrors(endpoint.hostname)));
  }
  const names = new Set<string>();
  for (const [index, { name = '', protocol = '' }] of (object.ports ?? []).entries()) {
    const at = `ports[${index}]`;
    if (name !== '') errors.push(...invalidFor(`${at}.name`, name, dnsLabelErrors(name)));
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    names.add(name);
    if (protocol !== '' && !PROTOCOLS.includes(protocol))
      errors.push(notSupported(`${at}.protocol`, protocol, PROTOCOLS));
  }
  return errors;
}

const slices: Strategy<Slice> = {
  managesGeneration: true,
  applyDefaults(object) {
    for (const port of object.ports ?? []) {
      port.name ??= '';
      if ((port.protocol ?? '') === '') port.protocol = 'TCP';
    }
  },
  changesGeneration: (object, old) =>
    JSON.stringify([object.endpoints, object.ports]) !== JSON.stringify([old.endpoints, old.ports]),
  validateCreate: sliceErrors,
  validateUpdate: (object, old) => [
    ...sliceErrors(object),
    ...immutable('addressType', object.addressType, old.addressType),
  ],
};

export const endpointKinds = [
  kindRow('', 'endpoints', endpoints),
  kindRow('discovery.k8s.io', 'endpointslices', slices),
];
