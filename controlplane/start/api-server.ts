/** Creates the API server of the control plane: its paths, its serving certificate and its health checks. */
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { createYamlThread } from '../../api/codec/yaml-thread.ts';
import { yamlParts } from '../../api/codec/yaml.ts';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Aggregator } from '../registry/aggregation/aggregator.ts';
import { installBackup } from '../server/endpoints/backup-endpoint.ts';
import { installReencrypt } from '../server/endpoints/reencrypt-endpoint.ts';
import { startFlowControl } from './flow-control-loop.ts';
import { primaryAddress } from './host-address.ts';
import { peersOf } from './peers.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import { flagz } from '../options/flagz.ts';
import type { PkiMaterial } from '../security/pki/pki.ts';
import { type OpenApiSource, typeTexts } from '../server/openapi/source.ts';
import { publishedSchema } from '../registry/schemas/published-schema.ts';
import { createEncodings } from '../registry/encodings.ts';
import { passAggregated } from '../server/connect/aggregated.ts';
import { createConnector } from '../server/connect/connector.ts';
import { ForwardedConnections } from '../server/connect/forwarded-connections.ts';
import { strippedHeaders } from '../server/connect/forwarded-headers.ts';
import { installFlowControlDumps } from '../server/flowcontrol/flow-control-dumps.ts';
import { installDiscovery } from '../server/discovery.ts';
import type { HealthCheck } from '../model/health-check.ts';
import { type HealthOptions, installHealth } from '../server/health.ts';
import { installIssuer } from '../server/issuer-paths.ts';
import type { ServingCertificate } from '../server/listener.ts';
import { installIndex } from '../server/index-page.ts';
import { installOpenApi } from '../server/openapi/openapi.ts';
import { PathHandlers } from '../server/path-handlers.ts';
import { createRequestMetrics, installMetrics } from '../server/request-metrics.ts';
import { type ApiServer, createServer } from '../server/server.ts';
import { createTextDecoders } from '../server/text-decoders.ts';
import { installVersion } from '../server/version.ts';
import { installZpages } from '../server/zpages.ts';
import type { AuditSink } from '../server/filters/audit.ts';
import { registerServerMetrics } from './server-metrics.ts';
import { allStorages } from '../storage/storages.ts';
import type { Parts } from './parts.ts';
import { StartError } from '../model/start-error.ts';

/** The release of the API that is served. */
export const API_VERSION = {
  major: '1',
  minor: '36',
  emulationMajor: '1',
  emulationMinor: '36',
  minCompatibilityMajor: '1',
  minCompatibilityMinor: '35',
  gitVersion: 'v1.36.2',
  gitCommit: '',
  gitTreeState: 'clean',
  buildDate: '2026-06-09T00:00:00Z',
  goVersion: 'go1.26.4',
  compiler: 'gc',
  platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
} as const;

/**
 * Creates the API server, which does not listen yet. `audit` is `undefined` if nothing is audited. Throws a `StartError` if
 * flags do not fit together, and the system's error if a file of the serving certificate cannot be read.
 */
export function createApiServer(parts: Parts, aggregator: Aggregator, audit: AuditSink | undefined): ApiServer {
  const { flags, clock, logger, registry, security, metrics } = parts;
  const { catalog } = registry;
  const connections = new ForwardedConnections();
  const stripped = strippedHeaders({
    names: [
      ...flags.requestheaderUsernameHeaders,
      ...flags.requestheaderUidHeaders,
      ...flags.requestheaderGroupHeaders,
    ],
    prefixes: flags.requestheaderExtraHeadersPrefix,
  });
  const protobuf = createProtobufCodec(parts.schema, { writesZeros: true });
  const fairness = startFlowControl(parts);
  const configured = servingCertificate(flags);
  const serverMetrics = registerServerMetrics(parts, API_VERSION);
  const server = createServer({
    catalog,
    authenticator: security.authenticators.authenticator,
    authorizer: security.authorizers.authorizer,
    clock,
    logger,
    tls: {
      ...(configured ?? pkiCertificate(security.pki.material())),
      clientCa: [security.clientCa.pem(), security.frontProxyCa.pem()],
      minVersion: flags.tlsMinVersion === 'VersionTLS13' ? 'TLSv1.3' : 'TLSv1.2',
      ...(flags.tlsCipherSuites.length === 0 ? {} : { ciphers: flags.tlsCipherSuites.join(':') }),
    },
    encodings: createEncodings({
      schema: parts.schema,
      columnsOf: (info) => parts.definitions.strategyOf(info)?.columns ?? registry.columnsOf(info),
      protobuf,
      yaml: yamlParts,
    }),
    decoders: createTextDecoders(createYamlThread({ clock })),
    paths: pathsOf(parts, aggregator, { protobuf, fairness }),
    connector: createConnector({
      dialer: parts.dialer,
      stripped,
      agentCredentials: security.agentCredentials,
      clock,
      logger,
      connections,
    }),
    observer: createRequestMetrics(metrics, clock),
    onHandshakeError: serverMetrics.onHandshakeError,
    ...(audit === undefined ? {} : { audit }),
    peers: peersOf(parts),
    aggregated: passAggregated(aggregator, { clock, stripped, dialer: parts.dialer, connections }),
    requestTimeoutMs: flags.requestTimeout,
    ...(fairness === undefined ? {} : { fairness }),
    maxReading: flags.maxRequestsInflight,
    maxMutating: flags.maxMutatingRequestsInflight,
  });
  if (configured === undefined)
    security.pki.onChange((material) => server.replaceCertificate(pkiCertificate(material)));
  return server;
}

interface PathParts {
  readonly protobuf: ReturnType<typeof createProtobufCodec>;
  readonly fairness: ReturnType<typeof startFlowControl>;
}

/** Returns the handlers of all paths that are not those of resources. */
function pathsOf(parts: Parts, aggregator: Aggregator, { protobuf, fairness }: PathParts): PathHandlers {
  const { flags, clock, logger, registry, security, schema, definitions } = parts;
  const { catalog } = registry;
  const paths = new PathHandlers();
  const texts = typeTexts(schema);
  installVersion(paths, API_VERSION);
  installDiscovery(paths, {
    catalog,
    aggregated: aggregator,
    protobuf,
    serverAddress: `${flags.advertiseAddress || primaryAddress()}:${flags.securePort}`,
  });
  const openApi: OpenApiSource = {
    catalog,
    aggregated: aggregator,
    schema,
    release: `${API_VERSION.major}.${API_VERSION.minor}`,
    // kube-apiserver documents that the deletion of a namespace returns a Status, although it returns the namespace.
    returnsDeleted: (info) =>
      info.resource !== 'namespaces' && registry.storeOf(info)?.strategy.returnsDeleted === true,
    customSchema(info) {
      const served = definitions.servedSet(info);
      if (served === undefined) return undefined;
      const selectableFields = Object.keys(served.strategy.selectableFields ?? {});
      return publishedSchema(info, served.schema, { revision: served.revision, selectableFields, texts });
    },
  };
  installOpenApi(paths, openApi, clock);
  installHealth(paths, { logger, clock, ...healthChecks(parts) });
  installIssuer(paths, security.issuer);
  const reencryptOptions = { clock, eventTtlMs: flags.eventTtl };
  installReencrypt(paths, allStorages(parts), parts.encryption?.values, reencryptOptions);
  installBackup(paths, parts.storage, resolve(flags.dataDir));
  installMetrics(paths, parts.metrics);
  if (fairness !== undefined) installFlowControlDumps(paths, fairness.control);
  const startedAtMs = clock.now() - process.uptime() * 1000;
  installZpages(paths, {
    statusz: () => ({ startedAtMs, nowMs: clock.now(), version: API_VERSION.gitVersion.slice(1) }),
    flagz: () => flagz(flags),
  });
  installIndex(paths, catalog);
  return paths;
}

const pkiCertificate = ({ apiserver }: PkiMaterial): ServingCertificate => ({
  cert: apiserver.certificatePem,
  key: apiserver.privateKeyPem,
});

/**
 * Reads the certificate of `--tls-cert-file` and `--tls-private-key-file`. Returns `undefined` without the flags. Throws a
 * `StartError` if only one is given.
 */
function servingCertificate({ tlsCertFile, tlsPrivateKeyFile }: ControlPlaneFlags): ServingCertificate | undefined {
  if (tlsCertFile === '' && tlsPrivateKeyFile === '') return undefined;
  if (tlsCertFile === '' || tlsPrivateKeyFile === '')
    throw new StartError('--tls-cert-file and --tls-private-key-file belong together: give both or neither');
  return { cert: readFileSync(tlsCertFile), key: readFileSync(tlsPrivateKeyFile) };
}

/**
 * Returns the health checks, by the names that probes of kube-apiserver use. A full disk fails only `/readyz`, because reads
 * still work and a restart would not help. A storage that failed, or whose thread does not respond, fails `/livez` as well.
 */
function healthChecks({
  clock,
  logger,
  storage,
  security,
  overrides,
  listers,
  encryption,
  startHooks,
  isClosing,
}: Parts): Pick<HealthOptions, 'live' | 'ready'> {
  const log: HealthCheck = { name: 'log', check: () => logger.check?.() };
  /** Clients of this host get this certificate, and refuse it once it is expired. */
  const certificate: HealthCheck = {
    name: 'loopback-serving-certificate',
    check: () => {
      if (clock.now() > security.pki.material().apiserver.certificate.notAfterMs)
        throw new Error('loopback serving certificate is expired');
    },
  };
  const liveAndReady: readonly HealthCheck[] = [
    { name: 'etcd', check: () => storage.check({ writes: false }) },
    ...overrides.map((one, i) => ({ name: `etcd-override-${i}`, check: () => one.storage.check({ writes: false }) })),
    ...(encryption?.checks ?? []),
  ];
  const ready: readonly HealthCheck[] = [
    { name: 'etcd-readiness', check: () => storage.check({ writes: true }) },
    ...overrides.map((one, i) => ({
      name: `etcd-override-readiness-${i}`,
      check: () => one.storage.check({ writes: true }),
    })),
    { name: 'informer-sync', check: () => listers.synced() },
  ];
  const shutdown: HealthCheck = {
    name: 'shutdown',
    check: () => {
      if (isClosing()) throw new Error('process is shutting down');
    },
  };
  return {
    live: [log, certificate, ...liveAndReady, ...startHooks.checks],
    ready: [log, ...liveAndReady, ...ready, ...startHooks.checks, shutdown],
  };
}
