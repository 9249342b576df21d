/** Validates services, also against their previous state, and warns about values that are probably mistakes. */
import { cidrWarnings, ipWarnings } from '../../../../api/kinds/address-warnings.ts';
import { PROTOCOLS } from '../../../../api/kinds/container-validation.ts';
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  unsupportedValue,
} from '../../../../api/meta/field-error.ts';
import { cidrErrors, ipErrors, parseIp } from '../../../../api/meta/ip-addresses.ts';
import { dnsLabelErrors, dnsSubdomainErrors, portNameErrors, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { validateLabels } from '../../../../api/meta/selector.ts';
import { specialAddressErrors } from './special-addresses.ts';
import { IMMUTABLE, within } from '../field-rules.ts';
import { clusterAddressErrors } from './service-families.ts';
import {
  isExternal,
  isHeadless,
  needsClusterIp,
  needsHealthPort,
  type Service,
  type ServicePort,
  type ServiceSpec,
} from './service-types.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const TYPES = ['ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort'];
/** The largest `sessionAffinityConfig.clientIP.timeoutSeconds`: a day. */
const MAX_AFFINITY_SECONDS = 86400;
const HINTS = 'service.kubernetes.io/topology-aware-hints';
const TOPOLOGY = 'service.kubernetes.io/topology-mode';
const SOURCE_RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges';

function portErrors(
  port: ServicePort,
  at: string,
  rules: { readonly named: boolean },
  names: Set<string>,
): FieldError[] {
  const errors: FieldError[] = [];
  const { name = '', protocol = '', targetPort, appProtocol } = port;
  if (rules.named && name === '') errors.push(required(`${at}.name`));
  else if (name !== '') {
    errors.push(...invalidFor(`${at}.name`, name, dnsLabelErrors(name)));
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    else names.add(name);
  }
  errors.push(...within(`${at}.port`, port.port ?? 0, 1, 65535));
  if (protocol === '') errors.push(required(`${at}.protocol`));
  else if (!PROTOCOLS.includes(protocol)) errors.push(notSupported(`${at}.protocol`, protocol, PROTOCOLS));
  if (typeof targetPort === 'string')
    errors.push(...invalidFor(`${at}.targetPort`, targetPort, portNameErrors(targetPort)));
  else errors.push(...within(`${at}.targetPort`, targetPort ?? 0, 1, 65535));
  if (appProtocol !== undefined)
    errors.push(...invalidFor(`${at}.appProtocol`, appProtocol, qualifiedNameErrors(appProtocol)));
  return errors;
}

/** Validates external addresses. Stored addresses stay valid even if they are not in canonical form. */
function externalAddressErrors(spec: ServiceSpec, old: ServiceSpec | undefined): FieldError[] {
  const stored = new Set(old?.externalIPs);
  return (spec.externalIPs ?? []).flatMap((address, index) => {
    const field = `spec.externalIPs[${index}]`;
    const errors = stored.has(address) ? [] : ipErrors(field, address);
    return errors.length > 0 ? errors : specialAddressErrors(field, address);
  });
}

/** Validates a service. `old` is present on an update. */
export function serviceErrors(service: Service, old?: Service): FieldError[] {
  const spec = service.spec ?? {};
  const errors = topologyErrors(service);
  const ports = spec.ports ?? [];
  const headless = isHeadless(spec);
  if (ports.length === 0 && !headless && spec.type !== 'ExternalName') errors.push(required('spec.ports'));
  if (spec.type === 'ExternalName') errors.push(...externalNameErrors(spec));
  else if (headless && (spec.type === 'LoadBalancer' || spec.type === 'NodePort'))
    errors.push(invalid('spec.clusterIPs[0]', 'None', `may not be set to 'None' for ${spec.type} services`));
  const names = new Set<string>();
  for (const [index, port] of ports.entries())
    errors.push(...portErrors(port, `spec.ports[${index}]`, { named: ports.length > 1 }, names));
  errors.push(...validateLabels(spec.selector as Record<string, string> | undefined, 'spec.selector'));
  errors.push(...affinityErrors(spec));
  errors.push(...clusterAddressErrors(spec, old?.spec), ...externalAddressErrors(spec, old?.spec));
  if ((spec.type ?? '') === '') errors.push(required('spec.type'));
  else if (!TYPES.includes(spec.type ?? '')) errors.push(notSupported('spec.type', spec.type, TYPES));
  errors.push(
    ...nodePortErrors(spec),
    ...portConflictErrors(ports),
    ...sourceRangeErrors(service, old),
    ...loadBalancerErrors(spec),
    ...classErrors(spec),
    ...trafficErrors(spec),
  );
  return errors;
}

function topologyErrors({ metadata }: Service): FieldError[] {
  const mode = metadata.annotations?.[TOPOLOGY];
  const hints = metadata.annotations?.[HINTS];
  if (mode === undefined || hints === undefined || mode === hints) return [];
  const text = `must match annotations[${HINTS}] when both are specified`;
  return [invalid(`metadata.annotations[${TOPOLOGY}]`, mode, text)];
}

function affinityErrors(spec: ServiceSpec): FieldError[] {
  const { sessionAffinity = '', sessionAffinityConfig } = spec;
  const field = 'spec.sessionAffinityConfig';
  if (sessionAffinity === '') return [required('spec.sessionAffinity')];
  if (!['ClientIP', 'None'].includes(sessionAffinity))
    return [notSupported('spec.sessionAffinity', sessionAffinity, ['ClientIP', 'None'])];
  if (sessionAffinity === 'None') {
    if (sessionAffinityConfig === undefined) return [];
    return [forbidden(field, 'must not be set when session affinity is None')];
  }
  const why = 'when session affinity type is ClientIP';
  if (sessionAffinityConfig === undefined) return [required(field, why)];
  if (sessionAffinityConfig.clientIP === undefined) return [required(`${field}.clientIP`, why)];
  const seconds = sessionAffinityConfig.clientIP.timeoutSeconds;
  if (seconds === undefined) return [required(`${field}.clientIP.timeoutSeconds`, why)];
  if (seconds > 0 && seconds <= MAX_AFFINITY_SECONDS) return [];
  const text = `must be greater than 0 and less than ${MAX_AFFINITY_SECONDS}`;
  return [invalid(`${field}.clientIP.timeoutSeconds`, seconds, text)];
}

function externalNameErrors(spec: ServiceSpec): FieldError[] {
  const errors: FieldError[] = [];
  const text = 'may not be set for ExternalName services';
  if ((spec.clusterIPs ?? []).length > 0 || (spec.clusterIP ?? '') !== '')
    errors.push(forbidden('spec.clusterIPs', text));
  if ((spec.ipFamilies ?? []).length > 0) errors.push(forbidden('spec.ipFamilies', text));
  if (spec.ipFamilyPolicy !== undefined) errors.push(forbidden('spec.ipFamilyPolicy', text));
  const name = (spec.externalName ?? '').replace(/\.$/, '');
  if (name === '') errors.push(required('spec.externalName'));
  else errors.push(...invalidFor('spec.externalName', name, dnsSubdomainErrors(name)));
  return errors;
}

function nodePortErrors(spec: ServiceSpec): FieldError[] {
  const errors: FieldError[] = [];
  if (spec.type === 'ClusterIP') {
    for (const [index, port] of (spec.ports ?? []).entries()) {
      if ((port.nodePort ?? 0) !== 0)
        errors.push(forbidden(`spec.ports[${index}].nodePort`, "may not be used when `type` is 'ClusterIP'"));
    }
  }
  const seen = new Set<string>();
  for (const [index, port] of (spec.ports ?? []).entries()) {
    if ((port.nodePort ?? 0) === 0) continue;
    const key = `${port.protocol ?? ''}/${port.nodePort}`;
    if (seen.has(key)) errors.push(duplicate(`spec.ports[${index}].nodePort`, port.nodePort));
    seen.add(key);
  }
  return errors;
}

function portConflictErrors(ports: readonly ServicePort[]): FieldError[] {
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  for (const [index, port] of ports.entries()) {
    const key = `${port.protocol ?? ''}/${port.port ?? 0}`;
    if (seen.has(key)) {
      errors.push(
        duplicate(`spec.ports[${index}]`, {
          Name: '',
          Protocol: port.protocol ?? '',
          AppProtocol: null,
          Port: port.port ?? 0,
          TargetPort: 0,
          NodePort: 0,
        }),
      );
    }
    seen.add(key);
  }
  return errors;
}

const BALANCED_ONLY = "may only be used when `type` is 'LoadBalancer'";

/**
 * Validates the source ranges of the field, or else of the deprecated annotation. White space around a range is ignored.
 * Ranges that the service already has are not validated again.
 */
function sourceRangeErrors({ spec = {}, metadata }: Service, old: Service | undefined): FieldError[] {
  const balanced = spec.type === 'LoadBalancer';
  const ranges = spec.loadBalancerSourceRanges ?? [];
  if (ranges.length > 0) {
    const field = 'spec.LoadBalancerSourceRanges';
    const stored = new Set((old?.spec?.loadBalancerSourceRanges ?? []).map((range) => range.trim()));
    return [
      ...(balanced ? [] : [forbidden(field, BALANCED_ONLY)]),
      ...ranges.flatMap((range, index) =>
        stored.has(range.trim()) ? [] : cidrErrors(`${field}[${index}]`, range.trim()),
      ),
    ];
  }
  const annotation = metadata.annotations?.[SOURCE_RANGES];
  if (annotation === undefined) return [];
  const field = `metadata.annotations[${SOURCE_RANGES}]`;
  const text = old?.metadata.annotations?.[SOURCE_RANGES] === annotation ? '' : annotation.trim();
  return [
    ...(balanced ? [] : [forbidden(field, BALANCED_ONLY)]),
    ...(text === '' ? [] : text.split(',').flatMap((range) => cidrErrors(field, range.trim()))),
  ];
}

function loadBalancerErrors(spec: ServiceSpec): FieldError[] {
  const { allocateLoadBalancerNodePorts: allocates } = spec;
  if (spec.type === 'LoadBalancer') return allocates === undefined ? [required('allocateLoadBalancerNodePorts')] : [];
  return allocates === undefined ? [] : [forbidden('spec.allocateLoadBalancerNodePorts', BALANCED_ONLY)];
}

function classErrors({ type, loadBalancerClass: name }: ServiceSpec): FieldError[] {
  if (name === undefined) return [];
  const field = 'spec.loadBalancerClass';
  if (type !== 'LoadBalancer') return [forbidden(field, BALANCED_ONLY)];
  return invalidFor(field, name, qualifiedNameErrors(name));
}

const DISTRIBUTIONS = ['PreferClose', 'PreferSameZone', 'PreferSameNode'];

function trafficErrors(spec: ServiceSpec): FieldError[] {
  const errors: FieldError[] = [];
  const external = spec.externalTrafficPolicy ?? '';
  const text = 'may only be set for externally-accessible services';
  if (!isExternal(spec)) {
    if (external !== '') errors.push(invalid('spec.externalTrafficPolicy', external, text));
  } else if (external === '') errors.push(required('spec.externalTrafficPolicy'));
  else if (!['Cluster', 'Local'].includes(external))
    errors.push(notSupported('spec.externalTrafficPolicy', external, ['Cluster', 'Local']));
  const health = spec.healthCheckNodePort ?? 0;
  if (!needsHealthPort(spec)) {
    if (health !== 0)
      errors.push(
        invalid(
          'spec.healthCheckNodePort',
          health,
          "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
      );
  } else if (health === 0) errors.push(required('spec.healthCheckNodePort'));
  else errors.push(...within('spec.healthCheckNodePort', health, 1, 65535));
  const internal = spec.internalTrafficPolicy;
  if (internal === undefined) {
    if (needsClusterIp(spec)) errors.push(required('spec.internalTrafficPolicy'));
  } else if (!['Cluster', 'Local'].includes(internal))
    errors.push(notSupported('spec.internalTrafficPolicy', internal, ['Cluster', 'Local']));
  const { trafficDistribution } = spec;
  if (trafficDistribution !== undefined && !DISTRIBUTIONS.includes(trafficDistribution)) {
    errors.push(unsupportedValue('spec.trafficDistribution', trafficDistribution, DISTRIBUTIONS));
  }
  return errors;
}

/** Validates the transition and the new state. The format of addresses and ranges that `old` has is not validated again. */
export function serviceUpdateErrors(service: Service, old: Service): FieldError[] {
  const spec = service.spec ?? {};
  const before = old.spec ?? {};
  const errors = [...addressChangeErrors(spec, before), ...familyChangeErrors(spec, before)];
  const { loadBalancerClass } = spec;
  if (
    before.type === 'LoadBalancer' &&
    spec.type === 'LoadBalancer' &&
    loadBalancerClass !== before.loadBalancerClass
  ) {
    errors.push(invalid('spec.loadBalancerClass', loadBalancerClass ?? null, ONCE));
  }
  // As in kube-apiserver, an update reports the errors of the class twice.
  errors.push(...classErrors(spec));
  if (needsHealthPort(before) && needsHealthPort(spec) && spec.healthCheckNodePort !== before.healthCheckNodePort) {
    errors.push(forbidden('spec.healthCheckNodePort', IMMUTABLE));
  }
  return [...errors, ...serviceErrors(service, old)];
}

const ONCE = 'may not change once set';

/** Validates a change of the cluster addresses. The first one is immutable, except for services without addresses. */
function addressChangeErrors(spec: ServiceSpec, old: ServiceSpec): FieldError[] {
  if (spec.type === 'ExternalName' || old.type === 'ExternalName') return [];
  if (isHeadless(spec) && isHeadless(old)) return [];
  const now = spec.clusterIPs ?? [];
  const before = old.clusterIPs ?? [];
  const field = 'spec.clusterIPs';
  if (now.length === before.length)
    return before.flatMap((address, index) =>
      address === now[index] ? [] : [invalid(`${field}[${index}]`, now, ONCE)],
    );
  const errors: FieldError[] = [];
  if (now.length === 0) errors.push(invalid(`${field}[0]`, now, 'primary clusterIP can not be unset'));
  else if (before.length > 0 && now[0] !== before[0]) errors.push(invalid(`${field}[0]`, now, ONCE));
  if (now.length === 1 && before.length === 2 && spec.ipFamilyPolicy !== 'SingleStack')
    errors.push(releaseError(spec, 'clusterIP'));
  return errors;
}

function releaseError(spec: ServiceSpec, what: string): FieldError {
  const text = `must be set to 'SingleStack' when releasing the secondary ${what}`;
  return invalid('spec.ipFamilyPolicy', spec.ipFamilyPolicy ?? null, text);
}

function familyChangeErrors(spec: ServiceSpec, old: ServiceSpec): FieldError[] {
  if (spec.type === 'ExternalName' || old.type === 'ExternalName') return [];
  if (isHeadless(spec) || isHeadless(old)) return [];
  const now = spec.ipFamilies ?? [];
  const before = old.ipFamilies ?? [];
  const field = 'spec.ipFamilies[0]';
  if (now.length === before.length)
    return before.flatMap((family, index) => (family === now[index] ? [] : [invalid(field, now, ONCE)]));
  const errors: FieldError[] = [];
  if (now.length < before.length && (spec.clusterIPs ?? []).length === 0)
    errors.push(invalid(field, now, 'primary ipFamily can not be unset'));
  if (now.length > 0 && before.length > 0 && now[0] !== before[0])
    errors.push(invalid(field, spec.clusterIPs ?? [], ONCE));
  if (now.length === 1 && before.length === 2 && spec.ipFamilyPolicy !== 'SingleStack')
    errors.push(releaseError(spec, 'ipFamily'));
  return errors;
}

/** Returns the warnings about a service, which is accepted nevertheless. */
export function serviceWarnings({ metadata, spec = {} }: Service): string[] {
  const texts: string[] = [];
  if (metadata.annotations?.[HINTS] !== undefined)
    texts.push(`annotation ${HINTS} is deprecated, please use ${TOPOLOGY} instead`);
  const headless = spec.type === 'ClusterIP' && spec.clusterIP === 'None';
  const external = spec.externalIPs ?? [];
  const named = spec.type === 'ExternalName';
  if ((spec.clusterIP ?? '') !== '' && spec.clusterIP !== 'None')
    for (const [index, address] of (spec.clusterIPs ?? []).entries())
      texts.push(...ipWarnings(`spec.clusterIPs[${index}]`, address));
  if (headless) {
    if ((spec.loadBalancerIP ?? '') !== '') texts.push('spec.loadBalancerIP is ignored for headless services');
    if (external.length > 0) texts.push('spec.externalIPs is ignored for headless services');
    if (spec.sessionAffinity !== 'None') texts.push('spec.SessionAffinity is ignored for headless services');
  }
  for (const [index, address] of external.entries()) texts.push(...ipWarnings(`spec.externalIPs[${index}]`, address));
  if (external.length > 0 && !headless && !named)
    texts.push('spec.externalIPs is deprecated and may no longer be implemented in some clusters');
  texts.push(...ipWarnings('spec.loadBalancerIP', spec.loadBalancerIP ?? ''));
  for (const [index, range] of (spec.loadBalancerSourceRanges ?? []).entries())
    texts.push(...cidrWarnings(`spec.loadBalancerSourceRanges[${index}]`, range));
  if (named && external.length > 0) texts.push('spec.externalIPs is ignored when spec.type is "ExternalName"');
  if (!named && (spec.externalName ?? '') !== '')
    texts.push('spec.externalName is ignored when spec.type is not "ExternalName"');
  if (spec.trafficDistribution === 'PreferClose')
    texts.push('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"');
  return texts;
}

const IP_MODES = ['Proxy', 'VIP'];

/** Returns the errors of a service's status. IP addresses that are stored already are not validated again. */
export function serviceStatusErrors(service: Service, old: Service): FieldError[] {
  const stored = new Set((old.status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip));
  const ingress = service.status?.loadBalancer?.ingress ?? [];
  if (ingress.length > 0 && service.spec?.type !== 'LoadBalancer') {
    return [forbidden('status.loadBalancer.ingress', "may only be used when `spec.type` is 'LoadBalancer'")];
  }
  return ingress.flatMap(({ ip = '', hostname = '', ipMode }, index) => {
    const at = `status.loadBalancer.ingress[${index}]`;
    const errors: FieldError[] = [];
    if (ip !== '' && !stored.has(ip)) errors.push(...ipErrors(`${at}.ip`, ip));
    if (ipMode === undefined) {
      if (ip !== '') errors.push(required(`${at}.ipMode`, 'must be specified when `ip` is set'));
    } else if (ip === '') errors.push(forbidden(`${at}.ipMode`, 'may not be specified when `ip` is not set'));
    else if (!IP_MODES.includes(ipMode)) errors.push(notSupported(`${at}.ipMode`, ipMode, IP_MODES));
    if (hostname !== '') errors.push(...invalidFor(`${at}.hostname`, hostname, dnsSubdomainErrors(hostname)));
    if (parseIp(hostname) !== undefined)
      errors.push(invalid(`${at}.hostname`, hostname, 'must be a DNS name, not an IP address'));
    return errors;
  });
}
