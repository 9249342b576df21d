/** The options of the container runtime and of pod networking. */
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
    help: 'docker, or remote for a CRI runtime. By default, the first runtime that responds on a known socket, CRI first.',
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
    help: 'Socket of the CRI image service. The default is the socket of the runtime.',
  }),
  dockerEndpoint: option({
    name: 'docker-endpoint',
    type: 'string',
    default: 'unix:///var/run/docker.sock',
    group: RUNTIME,
    help: 'Socket of the Docker Engine.',
  }),
  podInfraContainerImage: option({
    name: 'pod-infra-container-image',
    type: 'string',
    default: PAUSE_IMAGE,
    group: RUNTIME,
    help: 'Image of the pause container on Docker; never removed. The agent builds the default itself and pulls any other image if it is missing. A CRI runtime has its own.',
  }),
  runtimeRequestTimeout: option({
    name: 'runtime-request-timeout',
    type: 'duration',
    default: 120_000,
    group: RUNTIME,
    check: positiveDuration,
    config: { path: 'runtimeRequestTimeout' },
    help: 'Timeout of requests to the runtime. Image pulls, logs, exec and attach have no timeout.',
  }),
  podCidr: option({
    name: 'pod-cidr',
    type: 'string',
    default: '',
    group: RUNTIME,
    check: podRanges,
    config: { path: 'podCIDR' },
    help: 'Pod CIDR of this node if no API server assigns one; at most one CIDR of each family.',
  }),
  hairpinMode: option({
    name: 'hairpin-mode',
    type: 'string',
    default: 'promiscuous-bridge',
    choices: ['promiscuous-bridge', 'hairpin-veth', 'none'],
    group: RUNTIME,
    config: { path: 'hairpinMode' },
    help: 'How a pod in a Docker network reaches itself through a service: by hairpin mode of its veth, or not at all with none. CNI plugins configure this themselves.',
  }),
  makeIptablesUtilChains: option({
    name: 'make-iptables-util-chains',
    type: 'boolean',
    default: true,
    group: RUNTIME,
    config: { path: 'makeIPTablesUtilChains', keepsZero: true },
    noEffect: 'the agent writes no such iptables rules; the service proxy and the network plugin write their own',
    help: "Create the kubelet's utility chains in iptables.",
  }),
  iptablesMasqueradeBit: option({
    name: 'iptables-masquerade-bit',
    type: 'integer',
    default: 14,
    group: RUNTIME,
    config: { path: 'iptablesMasqueradeBit', keepsZero: true },
    help: 'Packet mark bit for SNAT, 0 to 31, with --service-proxy.',
    check: (bit) => (bit >= 0 && bit <= 31 ? undefined : 'must be between 0 and 31, inclusive'),
  }),
  iptablesDropBit: option({
    name: 'iptables-drop-bit',
    type: 'integer',
    default: 15,
    group: RUNTIME,
    config: { path: 'iptablesDropBit', keepsZero: true },
    noEffect: 'the agent writes no such iptables rules',
    help: 'Packet mark bit for dropping, 0 to 31.',
    check: (bit) => (bit >= 0 && bit <= 31 ? undefined : 'must be between 0 and 31, inclusive'),
  }),
} as const;
