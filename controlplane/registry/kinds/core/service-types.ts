/** Services as they stand on the wire, and the questions that are asked of their type. */
import type { V1ServicePort, V1ServiceSpec, V1ServiceStatus } from '@kubernetes/client-node';
import type { Wire } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';

export type ServicePort = Omit<Wire<V1ServicePort>, 'targetPort'> & { targetPort?: number | string | undefined };
export type ServiceSpec = Omit<Wire<V1ServiceSpec>, 'ports'> & { ports?: ServicePort[] | undefined };
export type Service = KubeObject & { spec?: ServiceSpec; status?: Wire<V1ServiceStatus> };

export const needsClusterIp = (spec: ServiceSpec): boolean =>
  ['ClusterIP', 'NodePort', 'LoadBalancer'].includes(spec.type ?? '');
export const isHeadless = (spec: ServiceSpec): boolean => spec.clusterIPs?.[0] === 'None';

/** Ports of nodes belong to the type, whether or not they are given unasked. */
export const hasNodePorts = (spec: ServiceSpec): boolean => spec.type === 'NodePort' || spec.type === 'LoadBalancer';

/** A node port is given to each port that names none. */
export function needsNodePort(spec: ServiceSpec): boolean {
  return spec.type === 'NodePort' || (spec.type === 'LoadBalancer' && spec.allocateLoadBalancerNodePorts !== false);
}

export const needsHealthPort = (spec: ServiceSpec): boolean =>
  spec.type === 'LoadBalancer' && spec.externalTrafficPolicy === 'Local';
export const isExternal = (spec: ServiceSpec): boolean =>
  spec.type === 'NodePort' ||
  spec.type === 'LoadBalancer' ||
  (spec.type === 'ClusterIP' && (spec.externalIPs ?? []).length > 0);
