/**
 * Computes the address families of a service: reconciles the singular and plural fields, and fills in families and policy from
 * the request, the stored service and the cluster's families.
 */
import { ipErrors, parseIp } from '../../../../api/meta/ip-addresses.ts';
import { duplicate, invalid, notSupported, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { isHeadless, needsClusterIp, needsHealthPort, needsNodePort, type ServiceSpec } from './service-types.ts';

/** A family of `spec.ipFamilies`. */
export type Family = 'IPv4' | 'IPv6';

const FAMILIES: readonly string[] = ['IPv4', 'IPv6'];
const POLICIES = ['PreferDualStack', 'RequireDualStack', 'SingleStack'];
const IPS = 'spec.clusterIPs';
const POLICY = 'spec.ipFamilyPolicy';

const familyOf = (address: string): Family => (parseIp(address)?.family === 6 ? 'IPv6' : 'IPv4');
const otherFamily = (family: string | undefined): Family => (family === 'IPv4' ? 'IPv6' : 'IPv4');

function sameLists(a: readonly string[] = [], b: readonly string[] = []): boolean {
  return a.length === b.length && a.every((one, index) => one === b[index]);
}

/** Compares `clusterIPs` in their order. */
export const sameAddresses = (a: ServiceSpec, b: ServiceSpec): boolean => sameLists(a.clusterIPs, b.clusterIPs);
/** Compares `ipFamilies` in their order. */
export const sameFamilies = (a: ServiceSpec, b: ServiceSpec): boolean => sameLists(a.ipFamilies, b.ipFamilies);

/** Keeps allocated values that the client leaves out. Ports are matched by name. */
export function keepAllocated(spec: ServiceSpec, old: ServiceSpec): void {
  if (spec.type !== 'ExternalName' && old.type !== 'ExternalName') {
    if ((spec.clusterIP ?? '') === '') spec.clusterIP = old.clusterIP;
    if ((spec.clusterIPs ?? []).length === 0) spec.clusterIPs = [...(old.clusterIPs ?? [])];
  }
  if (needsNodePort(spec) && needsNodePort(old)) {
    const before = new Set((old.ports ?? []).map(({ nodePort }) => nodePort ?? 0));
    const used = new Set((spec.ports ?? []).flatMap(({ nodePort = 0 }) => (before.has(nodePort) ? [nodePort] : [])));
    const byName = new Map((old.ports ?? []).map(({ name = '', nodePort }) => [name, nodePort ?? 0]));
    for (const port of spec.ports ?? []) {
      const oldPort = byName.get(port.name ?? '') ?? 0;
      if ((port.nodePort ?? 0) !== 0 || oldPort === 0 || used.has(oldPort)) continue;
      port.nodePort = oldPort;
      used.add(oldPort);
    }
  }
  if (needsHealthPort(spec) && needsHealthPort(old) && (spec.healthCheckNodePort ?? 0) === 0)
    spec.healthCheckNodePort = old.healthCheckNodePort;
}

/**
 * Makes `clusterIPs` of a service follow `clusterIP`, its first item, if the client sets only `clusterIP`. Validation refuses
 * other differences.
 */
export function normalizeAddresses(spec: ServiceSpec, old: ServiceSpec | undefined): void {
  const { clusterIP = '', clusterIPs = [] } = spec;
  if (old === undefined) {
    if (clusterIP !== '' && clusterIPs.length === 0) spec.clusterIPs = [clusterIP];
    return;
  }
  const before = old.clusterIP ?? '';
  if ((old.clusterIPs ?? []).length > 0 && clusterIPs.length === 0 && clusterIP === before && clusterIP !== '')
    spec.clusterIPs = [...(old.clusterIPs ?? [])];
  if (clusterIP !== before && sameAddresses(spec, old)) {
    if (clusterIP === '') delete spec.clusterIPs;
    else spec.clusterIPs = [clusterIP];
  }
}

/** Returns whether a dual-stack service with unchanged fields keeps its families, whatever families the cluster has. */
export function staysPreferred(service: { readonly spec: ServiceSpec }, old: ServiceSpec | undefined): boolean {
  const { spec } = service;
  if (old === undefined || spec.type !== old.type || !needsClusterIp(spec)) return false;
  if (spec.ipFamilyPolicy !== 'PreferDualStack') return false;
  if (old.ipFamilyPolicy !== undefined && old.ipFamilyPolicy !== 'PreferDualStack') return false;
  return sameAddresses(spec, old) && sameFamilies(spec, old);
}

/**
 * Fills in families and policy. Returns errors if the service cannot have what the client requests. The first of the families
 * in `cluster` is the default.
 */
export function initFamilies(
  spec: ServiceSpec,
  old: ServiceSpec | undefined,
  cluster: readonly Family[],
): FieldError[] {
  if (spec.type === 'ExternalName' || staysPreferred({ spec }, old)) return [];
  const isUnselected = isHeadless(spec) && Object.keys(spec.selector ?? {}).length === 0;
  spec.ipFamilyPolicy ??= old?.ipFamilyPolicy ?? (isUnselected ? 'RequireDualStack' : 'SingleStack');
  const malformed = clusterAddressErrors(spec, old);
  if (malformed.length > 0) return malformed;
  const errors = [...reductionErrors(spec, old), ...singleStackErrors(spec), ...inferFamilies(spec, cluster)];
  if (errors.length > 0) return errors;
  const families = (spec.ipFamilies ??= []) as string[];
  if (isUnselected) {
    // No address is allocated, so families that the cluster lacks are allowed.
    if (families.length === 0) families.push(cluster[0] ?? 'IPv4');
    if (families.length === 1 && spec.ipFamilyPolicy !== 'SingleStack') families.push(otherFamily(families[0]));
    return [];
  }
  if (spec.ipFamilyPolicy === 'RequireDualStack' && cluster.length < 2)
    errors.push(invalid(POLICY, spec.ipFamilyPolicy, 'this cluster is not configured for dual-stack services'));
  for (const [index, family] of families.entries()) {
    if (!cluster.some((one) => one === family))
      errors.push(invalid(`spec.ipFamilies[${index}]`, family, 'not configured on this cluster'));
  }
  if (errors.length > 0) return errors;
  if (families.length === 0) families.push(cluster[0] ?? 'IPv4');
  if (spec.ipFamilyPolicy !== 'SingleStack' && families.length === 1 && cluster.length === 2)
    families.push(otherFamily(families[0]));
  return [];
}

/**
 * Validates the change to a single family, which needs the policy `SingleStack`. With this policy, it removes the second
 * address and family that the client has left in the spec.
 */
function reductionErrors(spec: ServiceSpec, old: ServiceSpec | undefined): FieldError[] {
  if (old === undefined) return [];
  const { clusterIPs = [], ipFamilies = [] } = spec;
  if (spec.ipFamilyPolicy === 'SingleStack') {
    if (sameAddresses(spec, old) && clusterIPs.length > 1) spec.clusterIPs = clusterIPs.slice(0, 1);
    if (sameFamilies(spec, old) && ipFamilies.length > 1) spec.ipFamilies = ipFamilies.slice(0, 1);
    return [];
  }
  const reduced = (now: readonly string[], before: readonly string[] = []): boolean =>
    now.length > 0 && now.length < before.length;
  const errors: FieldError[] = [];
  const refuse = (what: string): void => {
    errors.push(invalid(POLICY, spec.ipFamilyPolicy, `must be 'SingleStack' to release the secondary ${what}`));
  };
  if (reduced(clusterIPs, old.clusterIPs)) refuse('cluster IP');
  if (reduced(ipFamilies, old.ipFamilies)) refuse('IP family');
  return errors;
}

function singleStackErrors({ clusterIPs = [], ipFamilies = [], ipFamilyPolicy }: ServiceSpec): FieldError[] {
  if (ipFamilyPolicy !== 'SingleStack') return [];
  const refuse = (what: string): FieldError =>
    invalid(
      POLICY,
      ipFamilyPolicy,
      `must be 'RequireDualStack' or 'PreferDualStack' when multiple ${what} are specified`,
    );
  return [
    ...(clusterIPs.length === 2 ? [refuse('cluster IPs')] : []),
    ...(ipFamilies.length === 2 ? [refuse('IP families')] : []),
  ];
}

/** Derives the families from the requested addresses. */
function inferFamilies(spec: ServiceSpec, cluster: readonly Family[]): FieldError[] {
  const errors: FieldError[] = [];
  const families = [...(spec.ipFamilies ?? [])];
  for (const [index, address] of (spec.clusterIPs ?? []).entries()) {
    if (address === 'None') break;
    if (index < families.length) continue;
    const family = familyOf(address);
    if (cluster.includes(family)) families.push(family);
    else errors.push(invalid(`${IPS}[${index}]`, spec.clusterIPs, `${family} is not configured on this cluster`));
  }
  spec.ipFamilies = families;
  return errors;
}

/**
 * Validates addresses, families and policy as the client wrote them. Addresses that the service already has are not validated
 * again.
 */
export function clusterAddressErrors(spec: ServiceSpec, old?: ServiceSpec): FieldError[] {
  if (spec.type === 'ExternalName') return [];
  const { clusterIP = '', clusterIPs = [], ipFamilies = [], ipFamilyPolicy } = spec;
  const errors: FieldError[] = [];
  if (clusterIP === '') {
    if (clusterIPs.length > 0) errors.push(invalid(IPS, clusterIPs, 'must be empty when `clusterIP` is not specified'));
  } else if (clusterIPs.length === 0) errors.push(required(IPS));
  else if (clusterIPs[0] !== clusterIP) errors.push(invalid(IPS, clusterIPs, 'first value must match `clusterIP`'));
  const seen = new Set<string>();
  for (const [index, family] of ipFamilies.entries()) {
    const field = `spec.ipFamilies[${index}]`;
    if (!FAMILIES.includes(family)) errors.push(notSupported(field, family, FAMILIES));
    if (seen.has(family)) errors.push(duplicate(field, family));
    seen.add(family);
  }
  if (ipFamilyPolicy !== undefined && !POLICIES.includes(ipFamilyPolicy))
    errors.push(notSupported(POLICY, ipFamilyPolicy, POLICIES));
  const unreadable = addressErrors(clusterIPs, new Set(old?.clusterIPs));
  errors.push(...unreadable);
  if (clusterIPs.length > 2) errors.push(invalid(IPS, clusterIPs, 'may only hold up to 2 values'));
  if (unreadable.length > 0) return errors;
  if (clusterIPs.length > 1 && new Set(clusterIPs.map(familyOf)).size < clusterIPs.length)
    errors.push(invalid(IPS, clusterIPs, 'may specify no more than one IP for each IP family'));
  if (isHeadless(spec)) return errors;
  for (const [index, address] of clusterIPs.entries()) {
    const family = ipFamilies[index];
    if (family === undefined || family === familyOf(address) || !FAMILIES.includes(family)) continue;
    const text = `expected an ${family} value as indicated by \`ipFamilies[${index}]\``;
    errors.push(invalid(`${IPS}[${index}]`, address, text));
  }
  return errors;
}

function addressErrors(addresses: readonly string[], stored: ReadonlySet<string>): FieldError[] {
  return addresses.flatMap((address, index) => {
    if (index === 0 && address === 'None')
      return addresses.length > 1 ? [invalid(IPS, addresses, "'None' must be the first and only value")] : [];
    return stored.has(address) ? [] : ipErrors(`${IPS}[${index}]`, address);
  });
}
