/**
 * The flags of the control plane: names and meanings of the API server's and the controller manager's, plus `--data-dir`.
 * `--help`, completion and docs derive from this table.
 */
import { flag, type FlagValues } from '../api/component/flags.ts';

const SERVING = 'Serving';
const STORAGE = 'Storage';
const LIMITS = 'Limits';
const AUTHENTICATION = 'Authentication';
const AUTHORIZATION = 'Authorization';
const ADMISSION = 'Admission';
const API = 'API';
const AUDIT = 'Audit';
const CONTROLLERS = 'Controllers';
const LOGS = 'Logs';

const serving = {
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
    help: 'Port of the API (HTTPS). 0 picks a free one.',
  }),
  advertiseAddress: flag({
    name: 'advertise-address',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Address that members of the cluster reach the API at; the first of the host otherwise.',
  }),
  externalHostname: flag({
    name: 'external-hostname',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Another name in the serving certificate and in the admin kubeconfig.',
  }),
  tlsCertFile: flag({
    name: 'tls-cert-file',
    type: 'string',
    default: '',
    group: SERVING,
    help: 'Serving certificate (PEM); made in the data directory otherwise.',
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
    help: 'Lowest version of TLS.',
  }),
  tlsCipherSuites: flag({
    name: 'tls-cipher-suites',
    type: 'list',
    default: [],
    group: SERVING,
    help: "Cipher suites by their OpenSSL or IANA names; Node.js' defaults otherwise.",
  }),
} as const;

const storage = {
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: STORAGE,
    help: 'Directory of everything that is kept: storage, certificates, admin kubeconfig.',
  }),
  storageBackend: flag({
    name: 'storage-backend',
    type: 'string',
    default: 'sqlite',
    choices: ['sqlite', 'memory'],
    group: STORAGE,
    help: 'Where objects are kept: sqlite (in the data directory), or memory (nothing outlives the process).',
  }),
  eventTtl: flag({
    name: 'event-ttl',
    type: 'duration',
    default: 3_600_000,
    group: STORAGE,
    help: 'How long events are kept.',
  }),
  encryptionProviderConfig: flag({
    name: 'encryption-provider-config',
    type: 'string',
    default: '',
    group: STORAGE,
    help: 'File that says how resources are encrypted at rest.',
  }),
} as const;

const limits = {
  maxRequestsInflight: flag({
    name: 'max-requests-inflight',
    type: 'integer',
    default: 400,
    group: LIMITS,
    help: 'Reading requests at a time; more are answered with 429. 0 is no limit.',
  }),
  maxMutatingRequestsInflight: flag({
    name: 'max-mutating-requests-inflight',
    type: 'integer',
    default: 200,
    group: LIMITS,
    help: 'Writing requests at a time; more are answered with 429. 0 is no limit.',
  }),
  requestTimeout: flag({
    name: 'request-timeout',
    type: 'duration',
    default: 60_000,
    group: LIMITS,
    help: 'Time after which a request that is no watch or stream is ended.',
  }),
} as const;

const authentication = {
  anonymousAuth: flag({
    name: 'anonymous-auth',
    type: 'boolean',
    default: true,
    group: AUTHENTICATION,
    help: 'Requests without credentials are those of system:anonymous.',
  }),
  clientCaFile: flag({
    name: 'client-ca-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Authorities of client certificates (PEM), read again when the file changes; the cluster CA otherwise.',
  }),
  tokenAuthFile: flag({
    name: 'token-auth-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'CSV file of static tokens: token,user,uid,"group1,group2".',
  }),
  enableBootstrapTokenAuth: flag({
    name: 'enable-bootstrap-token-auth',
    type: 'boolean',
    default: true,
    group: AUTHENTICATION,
    help: 'Secrets of type bootstrap.kubernetes.io/token in kube-system are credentials.',
  }),
  apiAudiences: flag({
    name: 'api-audiences',
    type: 'list',
    default: [],
    group: AUTHENTICATION,
    help: 'Audiences of tokens for this API; the issuer otherwise.',
  }),
  serviceAccountIssuer: flag({
    name: 'service-account-issuer',
    type: 'array',
    default: ['https://kubernetes.default.svc'],
    group: AUTHENTICATION,
    help: 'Issuer of service-account tokens. The first signs, the others are accepted.',
  }),
  serviceAccountKeyFile: flag({
    name: 'service-account-key-file',
    type: 'array',
    default: [],
    group: AUTHENTICATION,
    help: 'Keys that verify service-account tokens (PEM, RSA or ECDSA).',
  }),
  serviceAccountSigningKeyFile: flag({
    name: 'service-account-signing-key-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Key that signs service-account tokens; made in the data directory otherwise.',
  }),
  serviceAccountLookup: flag({
    name: 'service-account-lookup',
    type: 'boolean',
    default: true,
    group: AUTHENTICATION,
    help: 'Tokens of deleted service accounts are refused.',
  }),
  serviceAccountExtendTokenExpiration: flag({
    name: 'service-account-extend-token-expiration',
    type: 'boolean',
    default: true,
    group: AUTHENTICATION,
    help: 'Tokens that the agent asks for pods live a year and warn after their time.',
  }),
  serviceAccountMaxTokenExpiration: flag({
    name: 'service-account-max-token-expiration',
    type: 'duration',
    default: 0,
    group: AUTHENTICATION,
    help: 'Longest life of a token that is asked for. 0 is no limit.',
  }),
  serviceAccountJwksUri: flag({
    name: 'service-account-jwks-uri',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'URI of the keys in the discovery document.',
  }),
  requestheaderClientCaFile: flag({
    name: 'requestheader-client-ca-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Authorities of authenticating proxies; the front-proxy CA of the data directory otherwise.',
  }),
  requestheaderAllowedNames: flag({
    name: 'requestheader-allowed-names',
    type: 'list',
    default: ['front-proxy-client'],
    group: AUTHENTICATION,
    help: 'Common names of authenticating proxies; empty allows all that the authorities signed.',
  }),
  requestheaderUsernameHeaders: flag({
    name: 'requestheader-username-headers',
    type: 'list',
    default: ['X-Remote-User'],
    group: AUTHENTICATION,
    help: 'Headers with the user name.',
  }),
  requestheaderUidHeaders: flag({
    name: 'requestheader-uid-headers',
    type: 'list',
    default: ['X-Remote-Uid'],
    group: AUTHENTICATION,
    help: 'Headers with the user id.',
  }),
  requestheaderGroupHeaders: flag({
    name: 'requestheader-group-headers',
    type: 'list',
    default: ['X-Remote-Group'],
    group: AUTHENTICATION,
    help: 'Headers with groups.',
  }),
  requestheaderExtraHeadersPrefix: flag({
    name: 'requestheader-extra-headers-prefix',
    type: 'list',
    default: ['X-Remote-Extra-'],
    group: AUTHENTICATION,
    help: 'Prefixes of headers with extra facts.',
  }),
  oidcIssuerUrl: flag({
    name: 'oidc-issuer-url',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'OpenID Connect issuer (https).',
  }),
  oidcClientId: flag({
    name: 'oidc-client-id',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Client that the tokens must be for.',
  }),
  oidcUsernameClaim: flag({
    name: 'oidc-username-claim',
    type: 'string',
    default: 'sub',
    group: AUTHENTICATION,
    help: 'Claim with the user name.',
  }),
  oidcUsernamePrefix: flag({
    name: 'oidc-username-prefix',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Put before user names; the issuer for claims other than email when empty, nothing for "-".',
  }),
  oidcGroupsClaim: flag({
    name: 'oidc-groups-claim',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Claim with groups.',
  }),
  oidcGroupsPrefix: flag({
    name: 'oidc-groups-prefix',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Put before groups.',
  }),
  oidcRequiredClaim: flag({
    name: 'oidc-required-claim',
    type: 'map',
    default: {},
    group: AUTHENTICATION,
    help: 'Claims that tokens must have with these values.',
  }),
  oidcSigningAlgs: flag({
    name: 'oidc-signing-algs',
    type: 'list',
    default: ['RS256'],
    group: AUTHENTICATION,
    help: 'Signature algorithms that are accepted.',
  }),
  oidcCaFile: flag({
    name: 'oidc-ca-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: "Authorities of the issuer's server; the system's otherwise.",
  }),
  authenticationTokenWebhookConfigFile: flag({
    name: 'authentication-token-webhook-config-file',
    type: 'string',
    default: '',
    group: AUTHENTICATION,
    help: 'Kubeconfig-format file of a webhook that reviews tokens.',
  }),
  authenticationTokenWebhookVersion: flag({
    name: 'authentication-token-webhook-version',
    type: 'string',
    default: 'v1beta1',
    choices: ['v1', 'v1beta1'],
    group: AUTHENTICATION,
    help: 'Version of TokenReview that is sent.',
  }),
  authenticationTokenWebhookCacheTtl: flag({
    name: 'authentication-token-webhook-cache-ttl',
    type: 'duration',
    default: 120_000,
    group: AUTHENTICATION,
    help: 'How long its answers are kept.',
  }),
} as const;

const authorization = {
  authorizationMode: flag({
    name: 'authorization-mode',
    type: 'list',
    default: ['Node', 'RBAC'],
    group: AUTHORIZATION,
    help: 'Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny.',
  }),
  authorizationConfig: flag({
    name: 'authorization-config',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'File with an ordered list of authorizers, in place of the flags.',
  }),
  authorizationPolicyFile: flag({
    name: 'authorization-policy-file',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'ABAC policies, a JSON object a line.',
  }),
  authorizationWebhookConfigFile: flag({
    name: 'authorization-webhook-config-file',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'Kubeconfig-format file of an authorizing webhook.',
  }),
  authorizationWebhookVersion: flag({
    name: 'authorization-webhook-version',
    type: 'string',
    default: 'v1beta1',
    choices: ['v1', 'v1beta1'],
    group: AUTHORIZATION,
    help: 'Version of SubjectAccessReview that is sent.',
  }),
  authorizationWebhookCacheAuthorizedTtl: flag({
    name: 'authorization-webhook-cache-authorized-ttl',
    type: 'duration',
    default: 300_000,
    group: AUTHORIZATION,
    help: 'How long "allowed" is kept.',
  }),
  authorizationWebhookCacheUnauthorizedTtl: flag({
    name: 'authorization-webhook-cache-unauthorized-ttl',
    type: 'duration',
    default: 30_000,
    group: AUTHORIZATION,
    help: 'How long "not allowed" is kept.',
  }),
} as const;

const admission = {
  enableAdmissionPlugins: flag({
    name: 'enable-admission-plugins',
    type: 'list',
    default: [],
    group: ADMISSION,
    help: 'Admission plugins beside the default ones.',
  }),
  disableAdmissionPlugins: flag({
    name: 'disable-admission-plugins',
    type: 'list',
    default: [],
    group: ADMISSION,
    help: 'Default admission plugins that are not wanted.',
  }),
  admissionControlConfigFile: flag({
    name: 'admission-control-config-file',
    type: 'string',
    default: '',
    group: ADMISSION,
    help: 'File with the configuration of admission plugins.',
  }),
  defaultNotReadyTolerationSeconds: flag({
    name: 'default-not-ready-toleration-seconds',
    type: 'integer',
    default: 300,
    group: ADMISSION,
    help: 'How long pods tolerate a node that is not ready, unless they say otherwise.',
  }),
  defaultUnreachableTolerationSeconds: flag({
    name: 'default-unreachable-toleration-seconds',
    type: 'integer',
    default: 300,
    group: ADMISSION,
    help: 'How long pods tolerate a node that is unreachable, unless they say otherwise.',
  }),
} as const;

const api = {
  serviceClusterIpRange: flag({
    name: 'service-cluster-ip-range',
    type: 'list',
    default: ['10.96.0.0/16'],
    group: API,
    help: 'Addresses of services: one range, or one of each family.',
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
  }),
  showHiddenMetricsForVersion: flag({
    name: 'show-hidden-metrics-for-version',
    type: 'string',
    default: '',
    group: API,
    help: 'Shows metrics that were hidden in this version.',
  }),
  allowPrivileged: flag({
    name: 'allow-privileged',
    type: 'boolean',
    default: true,
    group: API,
    help: 'Pods may have privileged containers.',
  }),
} as const;

const audit = {
  auditPolicyFile: flag({
    name: 'audit-policy-file',
    type: 'string',
    default: '',
    group: AUDIT,
    help: 'Which requests are audited, and how much of them.',
  }),
  auditLogPath: flag({
    name: 'audit-log-path',
    type: 'string',
    default: '',
    group: AUDIT,
    help: 'File of audit events; - is standard output.',
  }),
  auditLogMaxage: flag({
    name: 'audit-log-maxage',
    type: 'integer',
    default: 366,
    group: AUDIT,
    help: 'Days that old audit logs are kept. 0 is no limit.',
  }),
  auditLogMaxbackup: flag({
    name: 'audit-log-maxbackup',
    type: 'integer',
    default: 100,
    group: AUDIT,
    help: 'Old audit logs that are kept. 0 is no limit.',
  }),
  auditLogMaxsize: flag({
    name: 'audit-log-maxsize',
    type: 'integer',
    default: 100,
    group: AUDIT,
    help: 'Size in megabytes at which the audit log is rotated.',
  }),
  auditLogCompress: flag({
    name: 'audit-log-compress',
    type: 'boolean',
    default: false,
    group: AUDIT,
    help: 'Old audit logs are compressed.',
  }),
  auditLogTruncateEnabled: flag({
    name: 'audit-log-truncate-enabled',
    type: 'boolean',
    default: false,
    group: AUDIT,
    help: 'Large events lose their bodies, or are dropped.',
  }),
  auditLogTruncateMaxEventSize: flag({
    name: 'audit-log-truncate-max-event-size',
    type: 'integer',
    default: 102_400,
    group: AUDIT,
    help: 'Size in bytes above which an event is large.',
  }),
  auditWebhookConfigFile: flag({
    name: 'audit-webhook-config-file',
    type: 'string',
    default: '',
    group: AUDIT,
    help: 'Kubeconfig-format file of a server that takes audit events.',
  }),
  auditWebhookMode: flag({
    name: 'audit-webhook-mode',
    type: 'string',
    default: 'batch',
    choices: ['batch', 'blocking', 'blocking-strict'],
    group: AUDIT,
    help: 'batch: events are sent together; blocking: each by itself.',
  }),
  auditWebhookBatchBufferSize: flag({
    name: 'audit-webhook-batch-buffer-size',
    type: 'integer',
    default: 10_000,
    group: AUDIT,
    help: 'Events that may wait for the webhook; more are dropped.',
  }),
  auditWebhookBatchMaxSize: flag({
    name: 'audit-webhook-batch-max-size',
    type: 'integer',
    default: 400,
    group: AUDIT,
    help: 'Events that are sent together at most.',
  }),
  auditWebhookBatchMaxWait: flag({
    name: 'audit-webhook-batch-max-wait',
    type: 'duration',
    default: 30_000,
    group: AUDIT,
    help: 'How long an event waits for others.',
  }),
  auditWebhookBatchThrottleEnable: flag({
    name: 'audit-webhook-batch-throttle-enable',
    type: 'boolean',
    default: true,
    group: AUDIT,
    help: 'Batches a second are limited.',
  }),
  auditWebhookBatchThrottleQps: flag({
    name: 'audit-webhook-batch-throttle-qps',
    type: 'integer',
    default: 10,
    group: AUDIT,
    help: 'Batches a second.',
  }),
  auditWebhookBatchThrottleBurst: flag({
    name: 'audit-webhook-batch-throttle-burst',
    type: 'integer',
    default: 15,
    group: AUDIT,
    help: 'Batches that may go out at once after a pause.',
  }),
  auditWebhookInitialBackoff: flag({
    name: 'audit-webhook-initial-backoff',
    type: 'duration',
    default: 10_000,
    group: AUDIT,
    help: 'Wait before a batch that failed is sent again; it doubles.',
  }),
  auditWebhookTruncateEnabled: flag({
    name: 'audit-webhook-truncate-enabled',
    type: 'boolean',
    default: false,
    group: AUDIT,
    help: 'Large events lose their bodies, or are dropped.',
  }),
  auditWebhookTruncateMaxEventSize: flag({
    name: 'audit-webhook-truncate-max-event-size',
    type: 'integer',
    default: 102_400,
    group: AUDIT,
    help: 'Size in bytes above which an event is large.',
  }),
} as const;

const controllers = {
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

/** Every flag of `orchlet controlplane`. */
export const controlPlaneFlags = {
  ...storage,
  ...serving,
  ...limits,
  ...authentication,
  ...authorization,
  ...admission,
  ...api,
  ...audit,
  ...controllers,
  ...logs,
} as const;

export type ControlPlaneFlags = FlagValues<typeof controlPlaneFlags>;

export interface PortRange {
  readonly from: number;
  readonly to: number;
}

/** `30000-32767`, or `30000+2767`. */
export function parsePortRange(text: string): PortRange | undefined {
  const [, first, separator, second] = /^(\d+)([-+])(\d+)$/.exec(text) ?? [];
  if (first === undefined || second === undefined) return undefined;
  const from = Number(first);
  const to = separator === '+' ? from + Number(second) : Number(second);
  return from >= 1 && to <= 65_535 && from <= to ? { from, to } : undefined;
}

function checkPortRange(text: string): string | undefined {
  return parsePortRange(text) === undefined ? 'must be a range of ports such as 30000-32767' : undefined;
}
