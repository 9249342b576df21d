/** Provides a service port with three endpoints, and settings of rules, for the tests of the rule writers. */
import type { RuleSettings } from '../../../../../agent/network/serviceproxy/rule-writer.ts';
import type { ServicePort } from '../../../../../agent/network/serviceproxy/service-ports.ts';

/** The settings of the rules of IPv4. */
export const SETTINGS: RuleSettings = {
  family: 'IPv4',
  masqueradeBit: 14,
  podCidrs: ['10.0.0.0/24'],
  nodePortRanges: [],
  localhostNodePorts: false,
};

/** Returns the port `http` of the service `shop/web` with the changes. */
export function servicePort(more: Partial<ServicePort> = {}): ServicePort {
  const cluster = more.cluster ?? [
    { ip: '10.0.0.1', port: 8080 },
    { ip: '10.0.0.2', port: 8080 },
    { ip: '10.0.0.3', port: 8080 },
  ];
  return {
    id: 'shop/web:http',
    since: '2026-01-01T00:00:00Z',
    protocol: 'TCP',
    clusterIp: '10.96.0.7',
    port: 80,
    nodePort: 0,
    externalIps: [],
    loadBalancerIps: [],
    sourceRanges: [],
    affinitySeconds: 0,
    externalLocal: false,
    cluster,
    internal: cluster,
    external: cluster,
    serving: more.protocol === 'UDP' ? cluster : [],
    hasEndpoints: true,
    ...more,
  };
}
