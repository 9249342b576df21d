/** Validates ingresses, and references to objects by kind and name. */
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  pathSegmentErrors,
  wildcardSubdomainErrors,
  portNameErrors,
  portNumberErrors,
} from '../../../../api/meta/names.ts';
import { ipErrors, parseIp } from '../../../../api/meta/ip-addresses.ts';
import { invalid, notSupported, required, type FieldError } from '../../../../api/meta/field-error.ts';

import type { Ingress } from './networking-types.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Spec = NonNullable<Ingress['spec']>;
type Backend = NonNullable<Spec['defaultBackend']>;
type Rule = NonNullable<Spec['rules']>[number];
type Path = NonNullable<NonNullable<Rule['http']>['paths']>[number];

const PATH_TYPES = ['Exact', 'ImplementationSpecific', 'Prefix'];
const FORBIDDEN_IN_PATHS = ['//', '/./', '/../', '%2f', '%2F'];
const FORBIDDEN_AT_END = ['/..', '/.'];

/** The errors that an existing object may keep, although new objects are refused for them. */
interface Tolerance {
  readonly secretNames: boolean;
  readonly wildcardRules: boolean;
}

const STRICT: Tolerance = { secretNames: false, wildcardRules: false };

/** Returns the errors of an ingress. Some rules do not apply if `old`, the stored ingress, breaks them already. */
export function ingressErrors(object: Ingress, old?: Ingress): FieldError[] {
  const spec: Spec = object.spec ?? {};
  const tolerance = old === undefined ? STRICT : toleranceOf(old.spec ?? {});
  const errors: FieldError[] = [];
  const rules = spec.rules ?? [];
  if (rules.length === 0 && spec.defaultBackend === undefined)
    errors.push(invalid('spec', spec.rules ?? null, 'either `defaultBackend` or `rules` must be specified'));
  if (spec.defaultBackend !== undefined) errors.push(...backendErrors(spec.defaultBackend, 'spec.defaultBackend'));
  for (const [index, rule] of rules.entries()) errors.push(...ruleErrors(rule, `spec.rules[${index}]`, tolerance));
  for (const [index, tls] of (spec.tls ?? []).entries()) {
    const at = `spec.tls[${index}]`;
    for (const [number, host] of (tls.hosts ?? []).entries())
      errors.push(...hostErrors(`${at}.hosts[${number}]`, host));
    const secret = tls.secretName ?? '';
    if (!tolerance.secretNames && secret !== '')
      errors.push(...invalidFor(`${at}.secretName`, secret, dnsSubdomainErrors(secret)));
  }
  const className = spec.ingressClassName;
  if (className !== undefined)
    errors.push(...invalidFor('spec.ingressClassName', className, dnsSubdomainErrors(className)));
  return errors;
}

function toleranceOf(old: Spec): Tolerance {
  return {
    secretNames: (old.tls ?? []).some(
      ({ secretName = '' }) => secretName !== '' && dnsSubdomainErrors(secretName).length > 0,
    ),
    wildcardRules: (old.rules ?? []).some((rule) => (rule.host ?? '').includes('*') && httpErrors(rule, '').length > 0),
  };
}

function hostErrors(field: string, host: string): FieldError[] {
  return invalidFor(field, host, host.includes('*') ? wildcardSubdomainErrors(host) : dnsSubdomainErrors(host));
}

function ruleErrors(rule: Rule, at: string, tolerance: Tolerance): FieldError[] {
  const { host = '' } = rule;
  const errors: FieldError[] = [];
  if (host !== '') {
    if (parseIp(host) !== undefined) errors.push(invalid(`${at}.host`, host, 'must be a DNS name, not an IP address'));
    errors.push(...hostErrors(`${at}.host`, host));
  }
  if (!host.includes('*') || !tolerance.wildcardRules) errors.push(...httpErrors(rule, at));
  return errors;
}

function httpErrors(rule: Rule, at: string): FieldError[] {
  if (rule.http === undefined) return [];
  const paths = rule.http.paths ?? [];
  if (paths.length === 0) return [required(`${at}.http.paths`)];
  return paths.flatMap((path, index) => pathErrors(path, `${at}.http.paths[${index}]`));
}

function pathErrors(entry: Path, at: string): FieldError[] {
  const { pathType, path = '' } = entry;
  if (pathType === undefined) return [required(`${at}.pathType`, 'pathType must be specified')];
  const field = `${at}.path`;
  const errors: FieldError[] = [];
  switch (pathType) {
    case 'Exact':
    case 'Prefix':
      if (!path.startsWith('/')) errors.push(invalid(field, path, 'must be an absolute path'));
      for (const part of FORBIDDEN_IN_PATHS)
        if (path.includes(part)) errors.push(invalid(field, path, `must not contain '${part}'`));
      for (const part of FORBIDDEN_AT_END)
        if (path.endsWith(part)) errors.push(invalid(field, path, `cannot end with '${part}'`));
      break;
    case 'ImplementationSpecific':
      if (path !== '' && !path.startsWith('/')) errors.push(invalid(field, path, 'must be an absolute path'));
      break;
    default:
      errors.push(notSupported(`${at}.pathType`, pathType, PATH_TYPES));
  }
  errors.push(...backendErrors(entry.backend ?? {}, `${at}.backend`));
  return errors;
}

function backendErrors({ resource, service }: Backend, at: string): FieldError[] {
  if (resource !== undefined && service !== undefined)
    return [invalid(at, '', 'cannot set both resource and service backends')];
  if (resource !== undefined) return referenceErrors(resource, `${at}.resource`);
  if (service === undefined) return [invalid(at, '', 'resource or service backend is required')];
  const { name = '' } = service;
  const field = `${at}.service.name`;
  const errors = name === '' ? [required(field)] : invalidFor(field, name, dnsLabelErrors(name));
  const portName = service.port?.name ?? '';
  const portNumber = service.port?.number ?? 0;
  if (portName !== '' && portNumber !== 0) errors.push(invalid(at, '', 'cannot set both port name & port number'));
  else if (portName !== '') errors.push(...invalidFor(`${at}.service.port.name`, portName, portNameErrors(portName)));
  else if (portNumber !== 0)
    errors.push(...invalidFor(`${at}.service.port.number`, portNumber, portNumberErrors(portNumber)));
  else errors.push(required(at, 'port name or number is required'));
  return errors;
}

/** Validates a reference to an object by kind, name and an optional group. */
export function referenceErrors(
  reference: { apiGroup?: string | undefined; kind?: string | undefined; name?: string | undefined },
  at: string,
): FieldError[] {
  const { apiGroup, kind = '', name = '' } = reference;
  return [
    ...(apiGroup === undefined ? [] : invalidFor(`${at}.apiGroup`, apiGroup, dnsSubdomainErrors(apiGroup))),
    ...(kind === '' ? [required(`${at}.kind`)] : invalidFor(`${at}.kind`, kind, pathSegmentErrors(kind))),
    ...(name === '' ? [required(`${at}.name`)] : invalidFor(`${at}.name`, name, pathSegmentErrors(name))),
  ];
}

/** Returns the errors of an ingress's status. IP addresses that are stored already are not validated again. */
export function ingressStatusErrors(object: Ingress, old: Ingress): FieldError[] {
  const stored = new Set((old.status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip));
  return (object.status?.loadBalancer?.ingress ?? []).flatMap(({ ip = '', hostname = '' }, index) => {
    const at = `status.loadBalancer.ingress[${index}]`;
    const errors = ip === '' || stored.has(ip) ? [] : ipErrors(`${at}.ip`, ip);
    if (hostname !== '') {
      errors.push(...invalidFor(`${at}.hostname`, hostname, dnsSubdomainErrors(hostname)));
      if (parseIp(hostname) !== undefined)
        errors.push(invalid(`${at}.hostname`, hostname, 'must be a DNS name, not an IP address'));
    }
    return errors;
  });
}
