/** Options: the container runtime. */
import { podRanges, positiveDuration } from './checks.ts';
import { PAUSE_IMAGE } from '../runtime/images/pause-image.ts';
import { option } from './option.ts';

const RUNTIME = 'Container runtime';

export const runtimeOptions = {
  containerRuntime: option({
    name: 'container-runtime',
    type: 'string',
    default: '',
    choices: ['', 'docker', 'remote'],
    group: RUNTIME,
    help: 'docker, or remote for a CRI runtime; what answers on the known sockets otherwise, CRI first.',
  }),
  containerRuntimeEndpoint: option({
    name: 'container-runtime-endpoint',
    type: 'string',
    default: '',
    group: RUNTIME,
    config: { path: 'containerRuntimeEndpoint' },
    help: 'Socket of the CRI runtime, such as unix:///run/containerd/containerd.sock.',
  }),
  imageServiceEndpoint: option({
    name: 'image-service-endpoint',
    type: 'string',
    default: '',
    group: RUNTIME,
    config: { path: 'imageServiceEndpoint' },
    help: 'Socket of the CRI image service; that of the runtime otherwise.',
  }),
  dockerEndpoint: option({
    name: 'docker-endpoint',
    type: 'string',
    default: 'unix:///var/run/docker.sock',
    group: RUNTIME,
    help: 'Socket of Docker.',
  }),
  podInfraContainerImage: option({
    name: 'pod-infra-container-image',
    type: 'string',
    default: PAUSE_IMAGE,
    group: RUNTIME,
    help: "Image that holds a pod's namespaces on Docker; never collected. The default is made by the agent itself, any other is pulled where it is missing. A CRI runtime has its own.",
  }),
  runtimeRequestTimeout: option({
    name: 'runtime-request-timeout',
    type: 'duration',
    default: 120_000,
    group: RUNTIME,
    check: positiveDuration,
    config: { path: 'runtimeRequestTimeout' },
    help: 'Time after which a request to the runtime is given up (pulls, logs, exec and attach are not).',
  }),
  podCidr: option({
    name: 'pod-cidr',
    type: 'string',
    default: '',
    group: RUNTIME,
    check: podRanges,
    config: { path: 'podCIDR' },
    help: "Addresses of this node's pods, where no API server says them; one range of each family at most.",
  }),
  hairpinMode: option({
    name: 'hairpin-mode',
    type: 'string',
    default: 'promiscuous-bridge',
    choices: ['promiscuous-bridge', 'hairpin-veth', 'none'],
    group: RUNTIME,
    config: { path: 'hairpinMode' },
    help: "How a pod in Docker's network reaches itself through a service: by its veth, or with none not at all. CNI plugins settle it themselves.",
  }),
  makeIptablesUtilChains: option({
    name: 'make-iptables-util-chains',
    type: 'boolean',
    default: true,
    group: RUNTIME,
    config: { path: 'makeIPTablesUtilChains', keepsZero: true },
    noEffect: 'the agent writes no firewall rules; the service proxy and the network plugin make theirs',
    help: 'Keep utility chains in iptables.',
  }),
  iptablesMasqueradeBit: option({
    name: 'iptables-masquerade-bit',
    type: 'integer',
    default: 14,
    group: RUNTIME,
    config: { path: 'iptablesMasqueradeBit', keepsZero: true },
    help: 'Mark of packets for SNAT, 0 to 31, with --service-proxy.',
    check: (bit) => (bit >= 0 && bit <= 31 ? undefined : 'must be between 0 and 31, inclusive'),
  }),
  iptablesDropBit: option({
    name: 'iptables-drop-bit',
    type: 'integer',
    default: 15,
    group: RUNTIME,
    config: { path: 'iptablesDropBit', keepsZero: true },
    noEffect: 'the agent writes no firewall rules',
    help: 'Mark of packets to drop, 0 to 31.',
    check: (bit) => (bit >= 0 && bit <= 31 ? undefined : 'must be between 0 and 31, inclusive'),
  }),
} as const;
