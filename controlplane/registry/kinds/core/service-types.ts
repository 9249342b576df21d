/** Defines the types of services on the wire, and predicates on the type of a service. */
import type { V1ServicePort, V1ServiceSpec, V1ServiceStatus } from '@kubernetes/client-node';
import type { Wire } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';

export type ServicePort = Omit<Wire<V1ServicePort>, 'targetPort'> & { targetPort?: number | string | undefined };
export type ServiceSpec = Omit<Wire<V1ServiceSpec>, 'ports'> & { ports?: ServicePort[] | undefined };
export type Service = KubeObject & { spec?: ServiceSpec; status?: Wire<V1ServiceStatus> };

/** Whether the type has a cluster address, unless the service is headless. */
export const needsClusterIp = (spec: ServiceSpec): boolean =>
  ['ClusterIP', 'NodePort', 'LoadBalancer'].includes(spec.type ?? '');
/** Whether the first cluster address is `None`. */
export const isHeadless = (spec: ServiceSpec): boolean => spec.clusterIPs?.[0] === 'None';

/** Returns whether the type has node ports, whether or not they are allocated automatically. */
export const hasNodePorts = (spec: ServiceSpec): boolean => spec.type === 'NodePort' || spec.type === 'LoadBalancer';

/** Returns whether each port without a node port gets one. */
export function needsNodePort(spec: ServiceSpec): boolean {
  return spec.type === 'NodePort' || (spec.type === 'LoadBalancer' && spec.allocateLoadBalancerNodePorts !== false);
}

/** Whether the load balancer needs a port that reports which nodes have endpoints. */
export const needsHealthPort = (spec: ServiceSpec): boolean =>
  spec.type === 'LoadBalancer' && spec.externalTrafficPolicy === 'Local';
/** Whether clients outside the cluster can reach the service. */
export const isExternal = (spec: ServiceSpec): boolean =>
  spec.type === 'NodePort' ||
  spec.type === 'LoadBalancer' ||
  (spec.type === 'ClusterIP' && (spec.externalIPs ?? []).length > 0);

/** Returns the node ports of a service, that of its health checks included. */
export function portsOf(spec: ServiceSpec): number[] {
  const ports = (spec.ports ?? []).map(({ nodePort }) => nodePort ?? 0);
  return [...ports, spec.healthCheckNodePort ?? 0].filter((port) => port !== 0);
}
