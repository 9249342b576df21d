/** The controllers and the scheduler. */
import { flag } from '../../api/component/flags.ts';

const CONTROLLERS = 'Controllers';

export const controllersFlags = {
  controllers: flag({
    name: 'controllers',
    type: 'list',
    default: ['*'],
    group: CONTROLLERS,
    help: 'Controllers to run: * is all that are on by default, foo turns one on, -foo off.',
  }),
  clusterCidr: flag({
    name: 'cluster-cidr',
    type: 'list',
    default: ['10.244.0.0/16'],
    group: CONTROLLERS,
    help: 'Addresses of pods; each node gets a part of it.',
  }),
  nodeCidrMaskSizeIpv4: flag({
    name: 'node-cidr-mask-size-ipv4',
    type: 'integer',
    default: 24,
    group: CONTROLLERS,
    help: "Size of a node's part, for IPv4.",
  }),
  nodeCidrMaskSizeIpv6: flag({
    name: 'node-cidr-mask-size-ipv6',
    type: 'integer',
    default: 64,
    group: CONTROLLERS,
    help: "Size of a node's part, for IPv6.",
  }),
  clusterSigningDuration: flag({
    name: 'cluster-signing-duration',
    type: 'duration',
    default: 31_536_000_000,
    group: CONTROLLERS,
    help: 'Longest life of certificates that are signed.',
  }),
  clusterName: flag({
    name: 'cluster-name',
    type: 'string',
    default: 'kubernetes',
    group: CONTROLLERS,
    help: 'Name of the cluster in the admin kubeconfig.',
  }),
  nodeMonitorPeriod: flag({
    name: 'node-monitor-period',
    type: 'duration',
    default: 5000,
    group: CONTROLLERS,
    help: 'How often the state of nodes is looked at.',
  }),
  nodeMonitorGracePeriod: flag({
    name: 'node-monitor-grace-period',
    type: 'duration',
    default: 50_000,
    group: CONTROLLERS,
    help: 'How long a node may be silent before it is unknown.',
  }),
  terminatedPodGcThreshold: flag({
    name: 'terminated-pod-gc-threshold',
    type: 'integer',
    default: 12_500,
    group: CONTROLLERS,
    help: 'Finished pods that are kept.',
  }),
  scheduler: flag({
    name: 'scheduler',
    type: 'boolean',
    default: true,
    group: CONTROLLERS,
    help: 'Run the scheduler in this process.',
  }),
} as const;
