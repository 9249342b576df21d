/** Defines the flags of serving: addresses, ports and TLS. */
import { flag } from '../../api/component/flags.ts';

const SERVING = 'Serving';
/** The types in the order in which they are tried by default. */
const ADDRESS_TYPES = ['InternalIP', 'Hostname', 'InternalDNS', 'ExternalDNS', 'ExternalIP'] as const;

/** The rows by the property under which the program reads them. */
export const servingFlags = {
  bindAddress: flag({
    name: 'bind-address',
    type: 'string',
    default: '0.0.0.0',
    group: SERVING,
    help: 'Address to listen on.',
  }),
  securePort: flag({
    name: 'secure-port',
    type: 'integer',
    default: 6443,
    group: SERVING,
    check: (port) => (port >= 0 && port <= 65_535 ? undefined : 'must be between 0 and 65535'),
    help: 'Port of the API (HTTPS). 0 picks a free one.',
  }),
  advertiseAddress: flag({
    name: 'advertise-address',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Address at which nodes and pods reach the API. Default: that of the interface with the default route.',
  }),
  endpointReconcilerType: flag({
    name: 'endpoint-reconciler-type',
    type: 'string',
    default: 'lease',
    choices: ['lease', 'none'],
    group: SERVING,
    help: 'Who maintains the endpoints of the service kubernetes: the running servers on the storage (lease), or no server (none).',
  }),
  externalHostname: flag({
    name: 'external-hostname',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Another name in the serving certificate, by which hosts that join reach the API.',
  }),
  loopbackTargets: flag({
    name: 'loopback-targets',
    type: 'list',
    default: [],
    group: SERVING,
    check: (targets) =>
      targets.every((target) => /^(node\/[^/]+|service\/[^/]+\/[^/]+)$/.test(target))
        ? undefined
        : 'must be node/NAME or service/NAMESPACE/NAME',
    help: 'Nodes and services of APIServices that may be on loopback addresses of this host: node/NAME, service/NAMESPACE/NAME. All others are refused there.',
  }),
  kubeletCertificateAuthority: flag({
    name: 'kubelet-certificate-authority',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'CAs of the serving certificates of node agents (PEM), read again when the file changes. Otherwise the certificate must have the key that the agent of the node published; agents that publish none, such as the kubelet, are accepted with any.',
  }),
  kubeletClientCertificate: flag({
    name: 'kubelet-client-certificate',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Client certificate towards node agents (PEM). Without the flag, one is created in the data directory.',
  }),
  kubeletClientKey: flag({
    name: 'kubelet-client-key',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Key of the client certificate towards node agents (PEM).',
  }),
  kubeletTimeout: flag({
    name: 'kubelet-timeout',
    type: 'duration',
    default: 5000,
    group: SERVING,
    check: (ms) => (ms > 0 ? undefined : 'must be above 0'),
    help: 'How long connecting to a node agent may take, TLS included.',
  }),
  kubeletPreferredAddressTypes: flag({
    name: 'kubelet-preferred-address-types',
    type: 'list',
    default: ADDRESS_TYPES,
    choices: ADDRESS_TYPES,
    group: SERVING,
    check: (types) => (types.length > 0 ? undefined : 'must not be empty'),
    help: "Types of a node's addresses at which its agent is called; the first that the node has.",
  }),
  tlsCertFile: flag({
    name: 'tls-cert-file',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Serving certificate (PEM). Default: one that is created in the data directory.',
  }),
  tlsPrivateKeyFile: flag({
    name: 'tls-private-key-file',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Key of the serving certificate (PEM).',
  }),
  tlsMinVersion: flag({
    name: 'tls-min-version',
    type: 'string',
    default: 'VersionTLS12',
    choices: ['VersionTLS12', 'VersionTLS13'],
    group: SERVING,
    help: 'Minimum version of TLS.',
  }),
  tlsCipherSuites: flag({
    name: 'tls-cipher-suites',
    type: 'list',
    default: [],
    group: SERVING,
    help: 'Cipher suites by their OpenSSL or IANA names. Default: those of Node.js.',
  }),
} as const;
