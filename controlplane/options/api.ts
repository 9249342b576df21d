/** Defines the flags that select the served APIs. */
import { flag } from '../../api/component/flags.ts';
import { checkRuntimeConfig } from '../registry/runtime-config.ts';
import { checkPortRange } from './port-range.ts';

const API = 'API';

/** The rows by the property under which the program reads them. */
export const apiFlags = {
  serviceClusterIpRange: flag({
    name: 'service-cluster-ip-range',
    type: 'list',
    default: ['10.96.0.0/16'],
    group: API,
    help: 'Addresses of services: one range, or one of each family.',
  }),
  nodeServices: flag({
    name: 'node-services',
    type: 'boolean',
    default: false,
    group: API,
    help: 'Create what agents with --service-proxy need: the service kube-dns, and the right of nodes to read endpoints and network policies and, once there is a policy, namespaces and pods.',
  }),
  podNetwork: flag({
    name: 'pod-network',
    type: 'string',
    default: 'vxlan',
    choices: ['vxlan', 'wireguard', 'routes', 'none'],
    group: API,
    help: "With --node-services: the pod network that agents with --pod-network=auto set up between nodes from their start on. 'none' leaves it to a network plugin.",
  }),
  serviceNodePortRange: flag({
    name: 'service-node-port-range',
    type: 'string',
    default: '30000-32767',
    group: API,
    help: 'Ports of services of type NodePort.',
    check: checkPortRange,
  }),
  runtimeConfig: flag({
    name: 'runtime-config',
    type: 'map',
    default: {},
    group: API,
    help: 'API groups, versions and resources to serve or not: api/all=false, apps/v1=true.',
    check: checkRuntimeConfig,
  }),
  showHiddenMetricsForVersion: flag({
    name: 'show-hidden-metrics-for-version',
    type: 'string',
    default: '',
    group: API,
    help: 'Shows metrics that were hidden in this version: 1.35 or nothing. No metric is hidden at present.',
    check: (version) =>
      version === '' || version === '1.35'
        ? undefined
        : "must be omitted or have the value '1.35'. Only the previous minor version is allowed",
  }),
  allowPrivileged: flag({
    name: 'allow-privileged',
    type: 'boolean',
    default: true,
    group: API,
    help: 'Pods may have privileged containers. Only true is accepted; Pod Security can forbid them, by namespace or for all.',
    check: (allowed) =>
      allowed
        ? undefined
        : 'must be true: forbid privileged containers by Pod Security (label pod-security.kubernetes.io/enforce=baseline, or --admission-control-config-file)',
  }),
} as const;
