/** Services: defaults, validation, and what depends on their type. Addresses and ports are given by `service-allocation.ts`. */
import { duplicate, unsupportedValue, type FieldError } from '../../../api/meta/field-error.ts';
import {
  cidrErrors,
  isLinkLocalMulticast,
  isLinkLocalUnicast,
  isLoopback,
  isUnspecified,
  parseCidr,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  nameIsLabel,
  portNameErrors,
  qualifiedNameErrors,
} from '../../../api/meta/names.ts';
import { validateLabels } from '../../../api/meta/selector.ts';
import { serviceColumns } from '../columns/services.ts';
import { restore } from '../generic-strategy.ts';
import type { KindOptions } from '../kinds.ts';
import { kindRow, type KindRow, type Strategy } from '../strategy.ts';
import { forbidden, invalid, invalidFor, notSupported, required, within } from './field-rules.ts';
import { addressErrors, ServiceAllocator } from './service-allocation.ts';
import {
  isExternal,
  isHeadless,
  needsClusterIp,
  needsHealthPort,
  type Service,
  type ServicePort,
  type ServiceSpec,
} from './service-types.ts';

const TYPES = ['ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort'];
const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];
const AFFINITY_SECONDS = 10800;
const LONGEST_AFFINITY = 86400;

function applyDefaults(service: Service): void {
  const spec = (service.spec ??= {});
  if ((spec.sessionAffinity ?? '') === '') spec.sessionAffinity = 'None';
  if (spec.sessionAffinity === 'None') delete spec.sessionAffinityConfig;
  if (spec.sessionAffinity === 'ClientIP') {
    const config = (spec.sessionAffinityConfig ??= {});
    config.clientIP ??= {};
    config.clientIP.timeoutSeconds ??= AFFINITY_SECONDS;
  }
  if ((spec.type ?? '') === '') spec.type = 'ClusterIP';
  for (const port of spec.ports ?? []) {
    if ((port.protocol ?? '') === '') port.protocol = 'TCP';
    if ((port.targetPort === undefined || port.targetPort === 0 || port.targetPort === '') && port.port !== undefined)
      port.targetPort = port.port;
  }
  if (isExternal(spec) && (spec.externalTrafficPolicy ?? '') === '') spec.externalTrafficPolicy = 'Cluster';
  if (needsClusterIp(spec)) spec.internalTrafficPolicy ??= 'Cluster';
  if (spec.type === 'LoadBalancer') {
    spec.allocateLoadBalancerNodePorts ??= true;
    for (const ingress of service.status?.loadBalancer?.ingress ?? [])
      if ((ingress.ip ?? '') !== '') ingress.ipMode ??= 'VIP';
  }
}

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

const nonSpecial = (address: string, field: string): FieldError[] => {
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
};

function serviceErrors(service: Service): FieldError[] {
  const spec = service.spec ?? {};
  const errors: FieldError[] = [];
  const ports = spec.ports ?? [];
  const headless = isHeadless(spec);
  if (ports.length === 0 && !headless && spec.type !== 'ExternalName') errors.push(required('spec.ports'));
  if (spec.type === 'ExternalName') errors.push(...externalNameErrors(spec));
  else if (spec.type === 'LoadBalancer' && headless)
    errors.push(invalid('spec.clusterIPs[0]', 'None', "may not be set to 'None' for LoadBalancer services"));
  const names = new Set<string>();
  for (const [index, port] of ports.entries())
    errors.push(...portErrors(port, `spec.ports[${index}]`, { named: ports.length > 1 }, names));
  errors.push(...validateLabels(spec.selector as Record<string, string> | undefined, 'spec.selector'));
  errors.push(...affinityErrors(spec));
  if (needsClusterIp(spec)) errors.push(...addressErrors(spec));
  for (const [index, address] of (spec.externalIPs ?? []).entries())
    errors.push(...nonSpecial(address, `spec.externalIPs[${index}]`));
  if ((spec.type ?? '') === '') errors.push(required('spec.type'));
  else if (!TYPES.includes(spec.type ?? '')) errors.push(notSupported('spec.type', spec.type, TYPES));
  errors.push(
    ...nodePortErrors(spec),
    ...portConflictErrors(ports),
    ...loadBalancerErrors(spec),
    ...trafficErrors(spec),
  );
  return errors;
}

function affinityErrors(spec: ServiceSpec): FieldError[] {
  const { sessionAffinity = '', sessionAffinityConfig } = spec;
  if (sessionAffinity === '') return [required('spec.sessionAffinity')];
  if (!['ClientIP', 'None'].includes(sessionAffinity))
    return [notSupported('spec.sessionAffinity', sessionAffinity, ['ClientIP', 'None'])];
  if (sessionAffinity === 'ClientIP') {
    const seconds = sessionAffinityConfig?.clientIP?.timeoutSeconds;
    if (seconds === undefined)
      return [required('spec.sessionAffinityConfig.clientIP', 'when session affinity type is ClientIP')];
    if (seconds <= 0 || seconds > LONGEST_AFFINITY) {
      return [
        invalid(
          'spec.sessionAffinityConfig.clientIP.timeoutSeconds',
          seconds,
          `must be greater than 0 and less than ${LONGEST_AFFINITY}`,
        ),
      ];
    }
  } else if (sessionAffinityConfig !== undefined)
    return [forbidden('spec.sessionAffinityConfig', 'must not be set when session affinity is None')];
  return [];
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
    return errors;
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

function loadBalancerErrors(spec: ServiceSpec): FieldError[] {
  const errors: FieldError[] = [];
  const balanced = spec.type === 'LoadBalancer';
  const text = "may only be used when `type` is 'LoadBalancer'";
  const ranges = spec.loadBalancerSourceRanges ?? [];
  if (ranges.length > 0) {
    if (!balanced) errors.push(forbidden('spec.LoadBalancerSourceRanges', text));
    for (const [index, range] of ranges.entries()) {
      if (parseCidr(range.trim()) === undefined)
        errors.push(...cidrErrors(`spec.LoadBalancerSourceRanges[${index}]`, range, { lenient: true }).slice(0, 1));
    }
  }
  if (!balanced && spec.allocateLoadBalancerNodePorts !== undefined)
    errors.push(forbidden('spec.allocateLoadBalancerNodePorts', text));
  if (balanced && spec.allocateLoadBalancerNodePorts === undefined)
    errors.push(required('spec.allocateLoadBalancerNodePorts'));
  if (spec.loadBalancerClass !== undefined) {
    if (!balanced) errors.push(forbidden('spec.loadBalancerClass', text));
    else
      errors.push(
        ...invalidFor('spec.loadBalancerClass', spec.loadBalancerClass, qualifiedNameErrors(spec.loadBalancerClass)),
      );
  }
  return errors;
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

function updateErrors(service: Service, old: Service): FieldError[] {
  const errors: FieldError[] = [];
  const spec = service.spec ?? {};
  const before = old.spec ?? {};
  if (needsClusterIp(before) && needsClusterIp(spec) && (before.clusterIPs ?? []).length > 0) {
    const [was] = before.clusterIPs ?? [];
    if (was !== '' && spec.clusterIPs?.[0] !== was)
      errors.push(invalid('spec.clusterIPs[0]', spec.clusterIPs ?? [], 'may not change once set'));
    else if (before.ipFamilies?.[0] !== undefined && spec.ipFamilies?.[0] !== before.ipFamilies[0]) {
      errors.push(invalid('spec.ipFamilies[0]', spec.ipFamilies ?? [], 'may not change once set'));
    }
  }
  if (needsHealthPort(before) && needsHealthPort(spec) && spec.healthCheckNodePort !== before.healthCheckNodePort) {
    errors.push(forbidden('spec.healthCheckNodePort', 'field is immutable'));
  }
  if (
    before.type === 'LoadBalancer' &&
    spec.type === 'LoadBalancer' &&
    spec.loadBalancerClass !== before.loadBalancerClass
  ) {
    errors.push(invalid('spec.loadBalancerClass', spec.loadBalancerClass ?? null, 'may not change once set'));
  }
  return [...errors, ...serviceErrors(service)];
}

/** What only makes sense for the old type goes when the type changes and the client left it as it was. */
function dropTypeDependent(service: Service, old: Service): void {
  const spec = service.spec ?? {};
  const before = old.spec ?? {};
  if (needsClusterIp(before) && !needsClusterIp(spec)) {
    delete spec.clusterIP;
    delete spec.clusterIPs;
    delete spec.ipFamilies;
    delete spec.ipFamilyPolicy;
    delete spec.internalTrafficPolicy;
  }
  const hadPorts = before.type === 'NodePort' || before.type === 'LoadBalancer';
  if (hadPorts && spec.type !== 'NodePort' && spec.type !== 'LoadBalancer') {
    const same = (spec.ports ?? []).every(
      (port) => (port.nodePort ?? 0) === 0 || (before.ports ?? []).some((one) => one.nodePort === port.nodePort),
    );
    if (same) for (const port of spec.ports ?? []) delete port.nodePort;
  }
  if (needsHealthPort(before) && !needsHealthPort(spec) && spec.healthCheckNodePort === before.healthCheckNodePort)
    delete spec.healthCheckNodePort;
  if (before.type === 'LoadBalancer' && spec.type !== 'LoadBalancer') {
    if (spec.allocateLoadBalancerNodePorts === before.allocateLoadBalancerNodePorts)
      delete spec.allocateLoadBalancerNodePorts;
    if (spec.loadBalancerClass === before.loadBalancerClass) delete spec.loadBalancerClass;
  }
  if (isExternal(before) && !isExternal(spec) && spec.externalTrafficPolicy === before.externalTrafficPolicy)
    delete spec.externalTrafficPolicy;
}

function warnings(service: Service): string[] {
  const spec = service.spec ?? {};
  const texts: string[] = [];
  if ((spec.externalIPs ?? []).length > 0)
    texts.push('spec.externalIPs is deprecated and may no longer be implemented in some clusters');
  if (spec.type !== 'ExternalName' && (spec.externalName ?? '') !== '')
    texts.push('spec.externalName is ignored when spec.type is not "ExternalName"');
  if (isHeadless(spec)) {
    if ((spec.loadBalancerIP ?? '') !== '') texts.push('spec.loadBalancerIP is ignored for headless services');
    if ((spec.externalIPs ?? []).length > 0) texts.push('spec.externalIPs is ignored for headless services');
    if (spec.sessionAffinity !== 'None') texts.push('spec.SessionAffinity is ignored for headless services');
  }
  if (spec.trafficDistribution === 'PreferClose')
    texts.push('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"');
  return texts;
}

const IP_MODES = ['Proxy', 'VIP'];

function statusErrors(service: Service): FieldError[] {
  const ingress = service.status?.loadBalancer?.ingress ?? [];
  if (ingress.length > 0 && service.spec?.type !== 'LoadBalancer') {
    return [forbidden('status.loadBalancer.ingress', "may only be used when `spec.type` is 'LoadBalancer'")];
  }
  return ingress.flatMap(({ ip = '', hostname = '', ipMode }, index) => {
    const at = `status.loadBalancer.ingress[${index}]`;
    const errors: FieldError[] = [];
    if (ip !== '' && parseIp(ip) === undefined)
      errors.push(invalid(`${at}.ip`, ip, 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'));
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

export function serviceKinds(options: KindOptions): KindRow[] {
  const allocator = new ServiceAllocator({
    clusterCidrs: options.serviceClusterCidrs,
    nodePorts: options.serviceNodePorts,
    services: () => options.stores.get('', 'services'),
  });
  const services: Strategy<Service> = {
    nameRule: nameIsLabel,
    allowCreateOnUpdate: true,
    applyDefaults,
    reserve: async (service, old) => allocator.reserve(service, old),
    prepareForCreate(service) {
      service.status = { loadBalancer: {} };
    },
    prepareForUpdate(service, old) {
      restore(service, old, 'status');
      dropTypeDependent(service, old);
      if (service.spec?.type !== 'LoadBalancer' && old.spec?.type === 'LoadBalancer')
        service.status = { ...service.status, loadBalancer: {} };
    },
    validateCreate: serviceErrors,
    validateUpdate: updateErrors,
    warningsOnCreate: warnings,
    warningsOnUpdate: warnings,
    resetFields: [['status']],
    returnsDeleted: true,
    afterDelete: (service) => allocator.release(service),
    selectableFields: {
      'spec.clusterIP': ({ spec }) => spec?.clusterIP ?? '',
      'spec.type': ({ spec }) => spec?.type ?? '',
    },
    columns: serviceColumns,
    status: {
      prepareForUpdate: (service, old) => restore(service, old, 'spec'),
      validateUpdate: statusErrors,
      resetFields: [['spec']],
    },
  };
  return [kindRow('', 'services', services)];
}
