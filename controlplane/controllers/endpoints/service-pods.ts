/** Finds the pods of a service, the ports that they expose, and the services that the change of a pod affects. */
import type { V1ServicePort } from '@kubernetes/client-node';
import {
  type Ip,
  isLinkLocalMulticast,
  isLinkLocalUnicast,
  isLoopback,
  isUnspecified,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import { selectorOfLabels } from '../../../api/meta/selector.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Pod, Service, Wire } from '../../../api/kinds/kinds.ts';
import type { ReconcileLoop } from '../controller.ts';
import { isPodFinished, isPodReady, isPodTerminating } from '../pod-state.ts';

/** A port as it is stored. */
type ServicePort = Wire<V1ServicePort>;

/** Whether the service has a selector. The endpoints of other services are written by a user or by another controller. */
export function hasSelector(service: Service): boolean {
  return Object.keys(service.spec?.selector ?? {}).length > 0;
}

/** Whether the service is headless (`clusterIP: None`): its name resolves to the addresses of its endpoints. */
export function isHeadless(service: Service): boolean {
  return service.spec?.clusterIP === 'None';
}

/** Returns the pods that the selector of the service selects, whatever their state is. */
export function podsOf(service: Service, pods: Informer<Pod>): Pod[] {
  const selector = selectorOfLabels(service.spec?.selector ?? {});
  return pods.list(service.metadata.namespace ?? '').filter((pod) => selector.matches(pod.metadata.labels));
}

/** Returns the reference by which an endpoint names its pod. */
export function referenceToPod({ metadata: { namespace, name, uid } }: Pod) {
  return {
    kind: 'Pod',
    ...(namespace === undefined ? {} : { namespace }),
    ...(name === undefined ? {} : { name }),
    ...(uid === undefined ? {} : { uid }),
  };
}

/** Whether the pod has an address, has not finished, and, without `includeTerminating`, is not terminating. */
export function belongsToEndpoints(pod: Pod, options: { readonly includeTerminating: boolean }): boolean {
  if (isPodFinished(pod)) return false;
  if ((pod.status?.podIP ?? '') === '' && (pod.status?.podIPs ?? []).length === 0) return false;
  return options.includeTerminating || !isPodTerminating(pod);
}

/** Returns the number of `targetPort` in this pod; `undefined` if the pod has no port of that name and protocol. */
export function targetPortIn(pod: Pod, port: ServicePort): number | undefined {
  const target = port.targetPort ?? port.port;
  if (typeof target === 'number') return target === 0 ? port.port : target;
  return namedPorts(pod).get(`${port.protocol ?? 'TCP'} ${target}`);
}

const portsOfPods = new WeakMap<Pod, ReadonlyMap<string, number>>();

/**
 * Returns the container ports by protocol and name. A service and a pod may both have thousands, so that pairs are not
 * compared.
 */
function namedPorts(pod: Pod): ReadonlyMap<string, number> {
  const cached = portsOfPods.get(pod);
  if (cached !== undefined) return cached;
  const sidecars = (pod.spec?.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  const found = new Map<string, number>();
  for (const container of [...(pod.spec?.containers ?? []), ...sidecars]) {
    for (const { name = '', containerPort, protocol = 'TCP' } of container.ports ?? []) {
      const key = `${protocol} ${name}`;
      if (name !== '' && !found.has(key)) found.set(key, containerPort);
    }
  }
  portsOfPods.set(pod, found);
  return found;
}

/** Returns the first address of the pod in that family that an endpoint may have, or `undefined`. */
export function addressOf(pod: Pod, family: 'IPv4' | 'IPv6'): string | undefined {
  const all = pod.status?.podIPs?.map(({ ip }) => ip) ?? [];
  const addresses = all.length === 0 && pod.status?.podIP !== undefined ? [pod.status.podIP] : all;
  return addresses.find((address) => {
    const ip = parseIp(address);
    return ip?.family === (family === 'IPv6' ? 6 : 4) && !ip.mapped && !isNotRoutable(ip);
  });
}

/** Whether the address is unspecified, loopback or link-local, which EndpointSlices must not contain. */
const isNotRoutable = (ip: Ip): boolean =>
  isUnspecified(ip) || isLoopback(ip) || isLinkLocalUnicast(ip) || isLinkLocalMulticast(ip);

/** Returns the fields of a pod that affect endpoints. */
function relevantFields(pod: Pod): unknown {
  return [
    pod.metadata.labels,
    pod.metadata.deletionTimestamp !== undefined,
    pod.status?.podIPs ?? pod.status?.podIP,
    pod.spec?.nodeName,
    isPodReady(pod),
    isPodFinished(pod),
    pod.spec?.hostname,
    pod.spec?.subdomain,
  ];
}

/** Enqueues each changed service, and each service that selects, or selected, a pod whose change affects endpoints. */
export function followServicesAndPods(loop: ReconcileLoop, services: Informer<Service>, pods: Informer<Pod>): void {
  const enqueueServicesOf = (pod: Pod): void => {
    for (const service of services.list(pod.metadata.namespace ?? '')) {
      if (hasSelector(service) && selectorOfLabels(service.spec?.selector ?? {}).matches(pod.metadata.labels))
        loop.enqueue(service);
    }
  };
  loop.follow(services);
  pods.addHandler({
    add: enqueueServicesOf,
    update: (previous, pod) => {
      if (semanticEqual(relevantFields(previous), relevantFields(pod))) return;
      enqueueServicesOf(previous);
      enqueueServicesOf(pod);
    },
    delete: enqueueServicesOf,
  });
}
