/**
 * The flags of the node agent, by group. Parser, `--help`, completion and docs derive from this table; `main.ts` alone reads
 * the values.
 */
import { flag, type FlagValues } from '../api/component/flags.ts';

const IDENTITY = 'Identity and API server';
const SOURCES = 'Pod sources';
const RUNTIME = 'Container runtime';
const SERVER = 'Server';
const NODE = 'Node';
const PODS = 'Pods';
const IMAGES = 'Images';
const DIRECTORIES = 'Directories';
const LOGS = 'Logs';

const identity = {
  kubeconfig: flag({
    name: 'kubeconfig',
    type: 'string',
    default: '',
    group: IDENTITY,
    help: 'Kubeconfig of the API server; without it the agent runs its static pods alone.',
  }),
  bootstrapKubeconfig: flag({
    name: 'bootstrap-kubeconfig',
    type: 'string',
    default: '',
    group: IDENTITY,
    help: 'Kubeconfig with which a certificate is asked for when --kubeconfig is missing or has expired.',
  }),
  certDir: flag({
    name: 'cert-dir',
    type: 'string',
    default: '',
    group: IDENTITY,
    help: 'Directory of keys and certificates; pki below the root directory otherwise.',
  }),
  rotateCertificates: flag({
    name: 'rotate-certificates',
    type: 'boolean',
    default: true,
    group: IDENTITY,
    help: 'Renew the client certificate before it expires.',
  }),
  rotateServerCertificates: flag({
    name: 'rotate-server-certificates',
    type: 'boolean',
    default: false,
    group: IDENTITY,
    help: 'Ask the cluster for the serving certificate, and renew it.',
  }),
  hostnameOverride: flag({
    name: 'hostname-override',
    type: 'string',
    default: '',
    group: IDENTITY,
    help: 'Name of the node; the host name otherwise.',
  }),
  kubeApiQps: flag({
    name: 'kube-api-qps',
    type: 'integer',
    default: 50,
    group: IDENTITY,
    help: 'Requests a second to the API server.',
  }),
  kubeApiBurst: flag({
    name: 'kube-api-burst',
    type: 'integer',
    default: 100,
    group: IDENTITY,
    help: 'Requests to the API server that may be saved up.',
  }),
} as const;

const sources = {
  podManifestPath: flag({
    name: 'pod-manifest-path',
    type: 'string',
    default: '',
    group: SOURCES,
    help: 'File or folder of static pods.',
  }),
  fileCheckFrequency: flag({
    name: 'file-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    help: 'How often the folder is looked at besides the notifications of the kernel.',
  }),
  manifestUrl: flag({ name: 'manifest-url', type: 'string', default: '', group: SOURCES, help: 'URL of static pods.' }),
  manifestUrlHeader: flag({
    name: 'manifest-url-header',
    type: 'array',
    default: [],
    group: SOURCES,
    help: 'Header for the URL, as name:value. May be repeated.',
  }),
  httpCheckFrequency: flag({
    name: 'http-check-frequency',
    type: 'duration',
    default: 20_000,
    group: SOURCES,
    help: 'How often the URL is asked.',
  }),
} as const;

const runtime = {
  containerRuntime: flag({
    name: 'container-runtime',
    type: 'string',
    default: '',
    choices: ['', 'docker', 'remote'],
    group: RUNTIME,
    help: 'docker, or remote for a CRI runtime; what answers on the known sockets otherwise, CRI first.',
  }),
  containerRuntimeEndpoint: flag({
    name: 'container-runtime-endpoint',
    type: 'string',
    default: '',
    group: RUNTIME,
    help: 'Socket of the CRI runtime, such as unix:///run/containerd/containerd.sock.',
  }),
  imageServiceEndpoint: flag({
    name: 'image-service-endpoint',
    type: 'string',
    default: '',
    group: RUNTIME,
    help: 'Socket of the CRI image service; that of the runtime otherwise.',
  }),
  dockerEndpoint: flag({
    name: 'docker-endpoint',
    type: 'string',
    default: 'unix:///var/run/docker.sock',
    group: RUNTIME,
    help: 'Socket of Docker.',
  }),
  podInfraContainerImage: flag({
    name: 'pod-infra-container-image',
    type: 'string',
    default: 'orchlet.local/pause:1',
    group: RUNTIME,
    help: "Image that holds a pod's namespaces (Docker).",
  }),
  runtimeRequestTimeout: flag({
    name: 'runtime-request-timeout',
    type: 'duration',
    default: 120_000,
    group: RUNTIME,
    help: 'Time after which a request to the runtime is given up (pulls, logs, exec and attach are not).',
  }),
  podCidr: flag({
    name: 'pod-cidr',
    type: 'string',
    default: '',
    group: RUNTIME,
    help: "Addresses of this node's pods, where no API server says them.",
  }),
} as const;

const server = {
  address: flag({
    name: 'address',
    type: 'string',
    default: '0.0.0.0',
    group: SERVER,
    help: "Address that the agent's server listens on.",
  }),
  port: flag({ name: 'port', type: 'integer', default: 10_250, group: SERVER, help: "Port of the agent's server." }),
  readOnlyPort: flag({
    name: 'read-only-port',
    type: 'integer',
    default: 10_255,
    group: SERVER,
    help: 'Port for reading without authentication. 0 is none.',
  }),
  healthzBindAddress: flag({
    name: 'healthz-bind-address',
    type: 'string',
    default: '127.0.0.1',
    group: SERVER,
    help: 'Address of the health port.',
  }),
  healthzPort: flag({
    name: 'healthz-port',
    type: 'integer',
    default: 10_248,
    group: SERVER,
    help: 'Port of /healthz. 0 is none.',
  }),
  enableDebuggingHandlers: flag({
    name: 'enable-debugging-handlers',
    type: 'boolean',
    default: true,
    group: SERVER,
    help: 'Serve logs, exec, attach, port-forward and run.',
  }),
  enableSystemLogHandler: flag({
    name: 'enable-system-log-handler',
    type: 'boolean',
    default: true,
    group: SERVER,
    help: 'Serve the files of /var/log under /logs/.',
  }),
  tlsCertFile: flag({
    name: 'tls-cert-file',
    type: 'string',
    default: '',
    group: SERVER,
    help: 'Serving certificate (PEM); self-signed otherwise.',
  }),
  tlsPrivateKeyFile: flag({
    name: 'tls-private-key-file',
    type: 'string',
    default: '',
    group: SERVER,
    help: 'Key of the serving certificate (PEM).',
  }),
  tlsMinVersion: flag({
    name: 'tls-min-version',
    type: 'string',
    default: '',
    choices: ['', 'VersionTLS12', 'VersionTLS13'],
    group: SERVER,
    help: 'Lowest version of TLS.',
  }),
  tlsCipherSuites: flag({
    name: 'tls-cipher-suites',
    type: 'list',
    default: [],
    group: SERVER,
    help: "Cipher suites; Node.js' defaults otherwise.",
  }),
  clientCaFile: flag({
    name: 'client-ca-file',
    type: 'string',
    default: '',
    group: SERVER,
    help: 'Authorities of client certificates (PEM).',
  }),
  anonymousAuth: flag({
    name: 'anonymous-auth',
    type: 'boolean',
    default: true,
    group: SERVER,
    help: 'Requests without credentials are those of system:anonymous.',
  }),
  authenticationTokenWebhook: flag({
    name: 'authentication-token-webhook',
    type: 'boolean',
    default: false,
    group: SERVER,
    help: 'Bearer tokens are reviewed by the API server.',
  }),
  authenticationTokenWebhookCacheTtl: flag({
    name: 'authentication-token-webhook-cache-ttl',
    type: 'duration',
    default: 120_000,
    group: SERVER,
    help: 'How long reviews of tokens are kept.',
  }),
  authorizationMode: flag({
    name: 'authorization-mode',
    type: 'string',
    default: 'AlwaysAllow',
    choices: ['AlwaysAllow', 'Webhook'],
    group: SERVER,
    help: 'Webhook asks the API server whether a user may.',
  }),
  authorizationWebhookCacheAuthorizedTtl: flag({
    name: 'authorization-webhook-cache-authorized-ttl',
    type: 'duration',
    default: 300_000,
    group: SERVER,
    help: 'How long "allowed" is kept.',
  }),
  authorizationWebhookCacheUnauthorizedTtl: flag({
    name: 'authorization-webhook-cache-unauthorized-ttl',
    type: 'duration',
    default: 30_000,
    group: SERVER,
    help: 'How long "not allowed" is kept.',
  }),
  streamingConnectionIdleTimeout: flag({
    name: 'streaming-connection-idle-timeout',
    type: 'duration',
    default: 4 * 3_600_000,
    group: SERVER,
    help: 'Streams that are silent for so long are closed. 0 is never.',
  }),
} as const;

const node = {
  registerNode: flag({
    name: 'register-node',
    type: 'boolean',
    default: true,
    group: NODE,
    help: 'Create the node in the API server.',
  }),
  registerSchedulable: flag({
    name: 'register-schedulable',
    type: 'boolean',
    default: true,
    group: NODE,
    help: 'Register the node schedulable.',
    deprecated: 'will be removed in a future version',
  }),
  registerWithTaints: flag({
    name: 'register-with-taints',
    type: 'list',
    default: [],
    group: NODE,
    help: 'Taints of a new node: key=value:effect.',
  }),
  nodeLabels: flag({ name: 'node-labels', type: 'map', default: {}, group: NODE, help: 'Labels of the node.' }),
  nodeIp: flag({
    name: 'node-ip',
    type: 'list',
    default: [],
    group: NODE,
    help: 'Address of the node, or one of each family.',
  }),
  providerId: flag({
    name: 'provider-id',
    type: 'string',
    default: '',
    group: NODE,
    help: 'Name of the machine with its provider.',
  }),
  nodeStatusUpdateFrequency: flag({
    name: 'node-status-update-frequency',
    type: 'duration',
    default: 10_000,
    group: NODE,
    help: 'How often the state of the node is looked at.',
  }),
  nodeStatusMaxImages: flag({
    name: 'node-status-max-images',
    type: 'integer',
    default: 50,
    group: NODE,
    help: 'Images that the status of the node lists. -1 is all.',
  }),
  maxPods: flag({ name: 'max-pods', type: 'integer', default: 110, group: NODE, help: 'Pods that the node takes.' }),
  podsPerCore: flag({
    name: 'pods-per-core',
    type: 'integer',
    default: 0,
    group: NODE,
    help: 'Pods that the node takes for each processor. 0 is no limit.',
  }),
  kubeReserved: flag({
    name: 'kube-reserved',
    type: 'map',
    default: {},
    group: NODE,
    help: 'Resources kept for the agent and the runtime.',
  }),
  systemReserved: flag({
    name: 'system-reserved',
    type: 'map',
    default: {},
    group: NODE,
    help: 'Resources kept for the rest of the system.',
  }),
} as const;

const pods = {
  syncFrequency: flag({
    name: 'sync-frequency',
    type: 'duration',
    default: 60_000,
    group: PODS,
    help: 'Longest time between two looks at a running pod.',
  }),
  clusterDns: flag({
    name: 'cluster-dns',
    type: 'list',
    default: [],
    group: PODS,
    help: 'Name servers of pods with the policy ClusterFirst.',
  }),
  clusterDomain: flag({
    name: 'cluster-domain',
    type: 'string',
    default: '',
    group: PODS,
    help: "Domain that pods search besides the host's.",
  }),
  resolvConf: flag({
    name: 'resolv-conf',
    type: 'string',
    default: '/etc/resolv.conf',
    group: PODS,
    help: "File of the host's name servers.",
  }),
  eventQps: flag({
    name: 'event-qps',
    type: 'integer',
    default: 50,
    group: PODS,
    help: 'Events a second. 0 is no limit.',
  }),
  eventBurst: flag({
    name: 'event-burst',
    type: 'integer',
    default: 100,
    group: PODS,
    help: 'Events that may be saved up.',
  }),
  podPidsLimit: flag({
    name: 'pod-max-pids',
    type: 'integer',
    default: -1,
    group: PODS,
    help: 'Processes that a pod may have. -1 is no limit.',
  }),
  allowedUnsafeSysctls: flag({
    name: 'allowed-unsafe-sysctls',
    type: 'list',
    default: [],
    group: PODS,
    help: 'Unsafe sysctls, or patterns ending in *, that pods may set.',
  }),
} as const;

const images = {
  serializeImagePulls: flag({
    name: 'serialize-image-pulls',
    type: 'boolean',
    default: true,
    group: IMAGES,
    help: 'Pull one image at a time.',
  }),
  registryQps: flag({
    name: 'registry-qps',
    type: 'integer',
    default: 5,
    group: IMAGES,
    help: 'Image pulls a second. 0 is no limit.',
  }),
  registryBurst: flag({
    name: 'registry-burst',
    type: 'integer',
    default: 10,
    group: IMAGES,
    help: 'Image pulls that may be saved up.',
  }),
  imagesDir: flag({
    name: 'images-dir',
    type: 'string',
    default: '',
    group: IMAGES,
    help: 'Directory of image archives that are loaded at the start and never collected.',
  }),
} as const;

const directories = {
  rootDir: flag({
    name: 'root-dir',
    type: 'string',
    default: '/var/lib/kubelet',
    group: DIRECTORIES,
    help: "Directory of the pods' volumes and the agent's state.",
  }),
  podLogsDir: flag({
    name: 'pod-logs-dir',
    type: 'string',
    default: '/var/log/pods',
    group: DIRECTORIES,
    help: "Directory of the containers' logs.",
  }),
} as const;

const logs = {
  verbosity: flag({
    name: 'v',
    type: 'integer',
    default: 0,
    group: LOGS,
    help: 'How much is logged: 0 what matters to operators, 4 what helps to find faults.',
  }),
  loggingFormat: flag({
    name: 'logging-format',
    type: 'string',
    default: 'text',
    choices: ['text', 'json'],
    group: LOGS,
    help: 'Format of the log on standard error.',
  }),
} as const;

/** Every flag of `orchlet agent`. */
export const agentFlags = {
  ...identity,
  ...sources,
  ...runtime,
  ...server,
  ...node,
  ...pods,
  ...images,
  ...directories,
  ...logs,
} as const;

export type AgentFlags = FlagValues<typeof agentFlags>;
