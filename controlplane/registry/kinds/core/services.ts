/**
 * Defines the strategy of services: defaults, and the fields that depend on the type. `service-allocation.ts` allocates
 * addresses and ports.
 */
import { nameIsLabel } from '../../../../api/meta/names.ts';
import { serviceColumns } from './service-columns.ts';
import { restore } from '../../generic-strategy.ts';
import type { KindOptions } from '../../kind-options.ts';
import { kindRow, type KindRow, type Strategy } from '../../strategy.ts';
import { ServiceAllocator } from './service-allocation.ts';
import { addressWrites } from './service-ip-addresses.ts';
import { sameAddresses, sameFamilies } from './service-families.ts';
import { isExternal, needsClusterIp, needsHealthPort, hasNodePorts, type Service } from './service-types.ts';
import { serviceErrors, serviceStatusErrors, serviceUpdateErrors, serviceWarnings } from './service-validation.ts';

/** The default of `sessionAffinityConfig.clientIP.timeoutSeconds`: three hours. */
const AFFINITY_SECONDS = 10800;

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

/** Drops fields that the old spec uses and the new one does not, if the client left them unchanged. */
function dropTypeDependent(service: Service, old: Service): void {
  const spec = service.spec ?? {};
  const before = old.spec ?? {};
  if (before.type !== 'ExternalName' && spec.type === 'ExternalName') {
    if (sameAddresses(spec, before)) {
      delete spec.clusterIP;
      delete spec.clusterIPs;
    }
    if (sameFamilies(spec, before)) delete spec.ipFamilies;
    if (spec.ipFamilyPolicy === before.ipFamilyPolicy) delete spec.ipFamilyPolicy;
    if (spec.internalTrafficPolicy === before.internalTrafficPolicy) delete spec.internalTrafficPolicy;
  }
  if (hasNodePorts(before) && !hasNodePorts(spec)) {
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

/** Returns the row of services, whose writes share one allocator. */
export function serviceKinds(options: KindOptions): KindRow[] {
  const allocator = new ServiceAllocator({
    serviceClusterCidrs: options.serviceClusterCidrs,
    nodePorts: options.serviceNodePorts,
    stores: options.stores,
  });
  const services: Strategy<Service> = {
    metadataChecks: ['update'],
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
    inTransaction: ({ object: service, old, nowMs }, write) =>
      allocator.nodePorts.write({ service, old }, (ports) => {
        const addresses = options.stores.get('networking.k8s.io', 'ipaddresses');
        return write([...ports, ...addressWrites(addresses, service, old, nowMs)]);
      }),
    // kube-apiserver stores the internal traffic policy of a service for an external name, but does not show it.
    canonicalise({ spec }) {
      if (spec?.type === 'ExternalName') delete spec.internalTrafficPolicy;
    },
    validateCreate: (service) => serviceErrors(service),
    validateUpdate: serviceUpdateErrors,
    warningsOnCreate: serviceWarnings,
    warningsOnUpdate: serviceWarnings,
    resetFields: [['status']],
    returnsDeleted: true,
    selectableFields: {
      'spec.clusterIP': ({ spec }) => spec?.clusterIP ?? '',
      'spec.type': ({ spec }) => spec?.type ?? '',
    },
    columns: serviceColumns,
    status: {
      prepareForUpdate: (service, old) => restore(service, old, 'spec'),
      validateUpdate: serviceStatusErrors,
      resetFields: [['spec']],
    },
  };
  return [kindRow('', 'services', services)];
}
