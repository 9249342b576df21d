/** The parts of the control plane that `main.ts` puts together in the order of the start: server, plugins, loops. */
import type { Logger } from '../api/component/logger.ts';
import { createProtobufCodec } from '../api/codec/protobuf.ts';
import { stringifyYaml } from '../api/codec/yaml.ts';
import type { Client } from '../api/machinery/client.ts';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Clock, formatTime } from '../api/machinery/clock.ts';
import type { Secret } from '../api/machinery/kinds.ts';
import {
  apiServices,
  customResourceDefinitions,
  endpointSlices,
  services,
  namespaces,
  resourceQuotas,
  secrets,
} from '../api/machinery/resources.ts';
import { builtinResources } from '../api/schema/resources.ts';
import type { Schema } from '../api/schema/schema.ts';
import type { AdmissionChain, AdmissionPlugin } from './admission/admission.ts';
import type { AdmissionConfiguration } from './admission/admission-config.ts';
import { podSecurityMetrics, webhookMetrics } from './admission/admission-metrics.ts';
import { buildPlugins } from './admission/plugins.ts';
import type { Sources } from './admission/sources.ts';
import { celTypeOf } from './registry/custom-resources/rule-types.ts';
import { startTypeChecking, typeOfStruct } from './admission/policy/type-checking.ts';
import { aggregationMetrics } from './aggregation/aggregation-metrics.ts';
import { Aggregator } from './aggregation/aggregator.ts';
import { startAutoRegistration } from './aggregation/auto-registration.ts';
import { endpointOf } from './admission/webhook/endpoint.ts';
import type { CallConversion } from './registry/custom-resources/webhook-conversion.ts';
import { webhookConditions } from './admission/policy/match-conditions.ts';
import { catalogConversion } from './admission/webhook/catalog-conversion.ts';
import { WebhookClient } from './authentication/webhook-client.ts';
import { reconcileBootstrapPolicy } from './authorization/bootstrap-reconcile.ts';
import type { Encryption } from './encryption/build.ts';
import { installBackup } from './backup/backup.ts';
import { installReencrypt } from './encryption/reencrypt.ts';
import { primaryAddress } from './host-address.ts';
import { ensureDefaultObjects } from './default-objects.ts';
import { ensureNodeServices } from './node-services.ts';
import { ensureNodeBootstrap } from './node-bootstrap.ts';
import { createAgentSummaries } from './metrics-api/agent-summaries.ts';
import { METRICS_API, metricsRests } from './metrics-api/metrics-api.ts';
import type { ControlPlaneFlags } from './options.ts';
import type { Pki, PkiMaterial } from './pki/pki.ts';
import { CustomResources } from './registry/custom-resources/custom-resources.ts';
import { publishedSchema } from './registry/custom-resources/published-schema.ts';
import { createDecoder } from './registry/object-decoding.ts';
import { createEncodings } from './registry/encodings.ts';
import { createFieldManagement } from './registry/managed-fields.ts';
import type { Registry, RegistryOptions, Stores } from './registry/registry.ts';
import type { Rest } from './registry/rest.ts';
import { lateReviewers } from './reviews/reviewers.ts';
import { reviewRests, type ReviewRestsOptions } from './reviews/review-rest.ts';
import type { Security } from './security.ts';
import type { MetricsRegistry } from '../api/component/metrics.ts';
import { builtinDeprecation } from './server/deprecations.ts';
import { fetchAggregated, passAggregated } from './server/connect/aggregated.ts';
import { createConnector } from './server/connect/connector.ts';
import { installDiscovery } from './server/discovery.ts';
import type { AuditSink } from './server/filters/audit.ts';
import { type HealthOptions, installHealth } from './server/health.ts';
import { installIssuer } from './server/issuer-paths.ts';
import type { ServingCertificate } from './server/listener.ts';
import { installIndex } from './server/index-page.ts';
import { installOpenApi } from './server/openapi/openapi.ts';
import { PathHandlers } from './server/path-handlers.ts';
import { createRequestMetrics, installMetrics } from './server/request-metrics.ts';
import { type ApiServer, createServer } from './server/server.ts';
import type { StartHooks } from './start-hooks.ts';
import type { Storage } from './storage/storage.ts';
import { textDecoders } from './server/text-decoders.ts';
import { installVersion } from './server/version.ts';

/** The release of the API that is spoken. */
export const API_VERSION = {
  major: '1',
  minor: '36',
  gitVersion: 'v1.36.2',
  gitCommit: '',
  gitTreeState: 'clean',
  buildDate: '2026-06-09T00:00:00Z',
  goVersion: 'go1.26.4',
  compiler: 'gc',
  platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
} as const;

export interface Parts {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly schema: Schema;
  readonly registry: Registry;
  readonly security: Security;
  readonly sources: Sources;
  readonly pki: Pki;
  readonly customResources: CustomResources;
  readonly metrics: MetricsRegistry;
  /** `--admission-control-config-file`. */
  readonly admissionConfiguration: AdmissionConfiguration;
  readonly storage: Storage;
  /** `undefined`: nothing is audited. */
  readonly audit: AuditSink | undefined;
  /** `undefined`: values are kept as they are. */
  readonly encryption: Encryption | undefined;
  readonly startHooks: StartHooks;
  /** Whether the server is being closed. */
  readonly isClosing: () => boolean;
  /** A client in this process for a user. `shared`: its lists and watches give the caches' own objects, never to be changed. */
  readonly clientFor: (user: string, groups: readonly string[], fieldManager?: string, shared?: boolean) => Client;
}

export function fieldManagement(clock: Clock): RegistryOptions['fieldManagement'] {
  return (expected) => createFieldManagement(clock, expected);
}

/** Endpoints beside the stored resources: reviews and tokens. The parts are there when the first request comes. */
export function extensions(stores: Stores, parts: () => Parts, options: ReviewRestsOptions): readonly Rest[] {
  const reviews = lateReviewers(() => {
    const { flags, clock, sources, security } = parts();
    return {
      clock,
      sources,
      authorizer: security.authorizers.authorizer,
      rules: security.authorizers.rules,
      tokens: security.authenticators.tokens,
      apiAudiences: security.audiences,
      issuer: security.issuer,
      extendExpiration: flags.serviceAccountExtendTokenExpiration,
      maxExpirationSeconds: flags.serviceAccountMaxTokenExpiration / 1000,
    };
  });
  return [...reviewRests(reviews, options), ...usageRests(stores, options.clock, parts)];
}

/** What nodes and pods use, told by the agents. */
function usageRests(stores: Stores, clock: Clock, parts: () => Parts): readonly Rest[] {
  const summaries = createAgentSummaries({
    clock,
    onFailure: (node, error) => parts().logger.debug({ error, node }, 'A node does not tell what it uses'),
    credentials: () => {
      const { kubeletClient } = parts().pki.material();
      return { cert: kubeletClient.certificatePem, key: kubeletClient.privateKeyPem };
    },
  });
  return metricsRests({ nodes: stores.get('', 'nodes'), pods: stores.get('', 'pods'), summaries });
}

export function admissionPlugins({
  flags,
  sources,
  clock,
  schema,
  registry,
  security,
  metrics,
  admissionConfiguration,
  customResources,
  clientFor,
}: Parts): readonly AdmissionPlugin[] {
  const { authorizer, rbac } = security.authorizers;
  const system = clientFor('system:apiserver', ['system:masters', 'system:authenticated'], 'kube-apiserver');
  return buildPlugins({
    sources,
    clock,
    authorizer,
    rbac,
    createNamespace: async (name) => {
      await system.create(namespaces, '', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    },
    policies: { schema, resources: () => registry.catalog.resources() },
    webhooks: {
      client: new WebhookClient('kube-apiserver-admission'),
      random: Math.random,
      matchConditions: webhookConditions(() => authorizer),
      conversion: catalogConversion(
        registry.catalog,
        schema,
        (object, kind) => customResources.convert(object, kind) ?? registry.convert(object, kind),
        (object) => {
          if (!customResources.applyDefaults(object)) registry.applyDefaults(object);
        },
      ),
      metrics: webhookMetrics(metrics),
    },
    configuration: admissionConfiguration,
    podSecurityMetrics: podSecurityMetrics(metrics),
    updateQuotaStatus: (quota) => system.update(resourceQuotas, quota, { subresource: 'status' }),
    tolerationSeconds: {
      notReadySeconds: flags.defaultNotReadyTolerationSeconds,
      unreachableSeconds: flags.defaultUnreachableTolerationSeconds,
    },
    enable: flags.enableAdmissionPlugins,
    disable: flags.disableAdmissionPlugins,
  });
}

/** What a cluster has from the start: its namespaces, and the default roles and bindings. */
export async function bootstrap(parts: Parts): Promise<void> {
  const client = parts.clientFor('system:apiserver', ['system:masters', 'system:authenticated'], 'kube-apiserver');
  await reconcileBootstrapPolicy(client);
  await ensureNodeBootstrap(client);
  await ensureDefaultObjects(client, {
    groupVersions: [
      ...builtinResources().filter(
        ({ group, version, resource }) => parts.registry.catalog.find(group, version, resource, '') !== undefined,
      ),
      METRICS_API,
    ],
    serviceClusterCidrs: parts.flags.serviceClusterIpRange,
    nowMs: parts.clock.now(),
  });
  if (parts.flags.nodeServices)
    await ensureNodeServices(client, {
      serviceClusterCidrs: parts.flags.serviceClusterIpRange,
      logger: parts.logger,
    });
}

/** Says in the status of policies which of their expressions cannot be right for the kinds that they are for. */
export function checkPolicies(
  { sources, clientFor, logger, registry, schema, customResources }: Parts,
  signal: AbortSignal,
): void {
  startTypeChecking({
    sources,
    client: clientFor(
      'system:serviceaccount:kube-system:validatingadmissionpolicy-status-controller',
      ['system:masters', 'system:authenticated'],
      'kube-controller-manager',
    ),
    logger,
    signal,
    resources: () => registry.catalog.resources(),
    typeOfKind({ group, version, kind }) {
      const struct = schema.kind(group, version, kind);
      if (struct !== undefined) return typeOfStruct(struct);
      const info = registry.catalog
        .resources()
        .find((one) => one.group === group && one.version === version && one.kind === kind);
      const own = info === undefined ? undefined : customResources.schemaOf(info);
      return own === undefined ? undefined : celTypeOf(own, true);
    },
  });
}

/** Made before the server, which asks it for columns and schemas; nothing is served before `start`. */
export function customResourcesOf(
  parts: Pick<Parts, 'registry' | 'clock' | 'logger' | 'sources' | 'schema' | 'clientFor'>,
  storage: Storage,
  admission: AdmissionChain,
  signal: AbortSignal,
): CustomResources {
  const { registry, clock, logger, sources, schema, clientFor } = parts;
  const metadata = schema.struct('io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta');
  if (metadata === undefined) throw new Error('the schema lacks ObjectMeta');
  return new CustomResources({
    catalog: registry.catalog,
    storage,
    admission,
    clock,
    logger,
    definitions: sources.of(customResourceDefinitions),
    client: clientFor('system:apiserver', ['system:masters', 'system:authenticated'], 'kube-apiserver'),
    signal,
    schema,
    decoder: createDecoder(schema),
    fieldManagement: fieldManagement(clock),
    metadata,
    callConversion: conversionCalls(sources),
  });
}

const CONVERSION_TIMEOUT_SECONDS = 30;

/** Calls of conversion webhooks, found as those of admission are. */
function conversionCalls(sources: Sources): CallConversion {
  const found = { services: sources.of(services), endpointSlices: sources.of(endpointSlices), random: Math.random };
  const client = new WebhookClient('kube-apiserver-conversion');
  return async (config, body) => {
    const endpoint = await endpointOf(config, CONVERSION_TIMEOUT_SECONDS, found);
    const signal = AbortSignal.timeout(CONVERSION_TIMEOUT_SECONDS * 1000);
    const answer = await client.call(endpoint, { method: 'POST', body, signal });
    if (answer.status !== 200) throw new Error(`the server answered ${answer.status}`);
    return JSON.parse(answer.body.toString('utf8')) as unknown;
  };
}

export function aggregatorOf(
  { sources, clientFor, clock, logger, pki, metrics }: Parts,
  signal: AbortSignal,
): Aggregator {
  const client = clientFor('system:apiserver', ['system:masters', 'system:authenticated'], 'kube-aggregator');
  const definitions = sources.of(customResourceDefinitions);
  startAutoRegistration({ definitions, services: sources.of(apiServices), client, clock, logger, signal });
  return new Aggregator({
    definitions: sources.of(apiServices),
    services: sources.of(services),
    endpointSlices: sources.of(endpointSlices),
    client,
    clock,
    logger,
    signal,
    random: Math.random,
    metrics: aggregationMetrics(metrics),
    frontProxy() {
      const { frontProxyClient } = pki.material();
      return { cert: frontProxyClient.certificatePem, key: frontProxyClient.privateKeyPem };
    },
    fetchJson: fetchAggregated,
  });
}

export function createApiServer(parts: Parts, aggregator: Aggregator): ApiServer {
  const { flags, clock, logger, registry, security, pki, schema, customResources, metrics } = parts;
  const protobuf = createProtobufCodec(schema);
  const encodings = createEncodings({
    schema,
    columnsOf: (info) => customResources.strategyOf(info)?.columns ?? registry.columnsOf(info),
    protobuf,
    yaml: stringifyYaml,
  });
  const paths = new PathHandlers();
  const { catalog } = registry;
  installVersion(paths, API_VERSION);
  installDiscovery(paths, {
    catalog,
    aggregated: aggregator,
    protobuf,
    serverAddress: `${flags.advertiseAddress || primaryAddress()}:${flags.securePort}`,
  });
  installOpenApi(paths, {
    catalog,
    aggregated: aggregator,
    schema,
    release: API_VERSION.gitVersion,
    customSchema(info) {
      const own = customResources.schemaOf(info);
      return own === undefined ? undefined : publishedSchema(info, own);
    },
  });
  installHealth(paths, { logger, ...healthChecks(parts) });
  installIssuer(paths, security.issuer);
  installReencrypt(paths, parts.storage, parts.encryption?.values);
  installBackup(paths, parts.storage, resolve(flags.dataDir));
  installMetrics(paths, metrics);
  installIndex(paths, catalog);
  const serving = servingCertificate(flags) ?? ownCertificate(pki.material());
  const server = createServer({
    catalog,
    authenticator: security.authenticators.authenticator,
    authorizer: security.authorizers.authorizer,
    clock,
    logger,
    tls: {
      ...serving,
      clientCa: [security.clientCa.pem(), security.frontProxyCa.pem()],
      minVersion: flags.tlsMinVersion === 'VersionTLS13' ? 'TLSv1.3' : 'TLSv1.2',
      ...(flags.tlsCipherSuites.length === 0 ? {} : { ciphers: flags.tlsCipherSuites.join(':') }),
    },
    encodings,
    decoders: textDecoders,
    paths,
    connector: createConnector({
      agentCredentials: () => {
        const { kubeletClient } = pki.material();
        return { cert: kubeletClient.certificatePem, key: kubeletClient.privateKeyPem };
      },
      clock,
      logger,
    }),
    observer: createRequestMetrics(metrics, clock),
    ...(parts.audit === undefined ? {} : { audit: parts.audit }),
    aggregated: passAggregated(aggregator, clock),
    deprecation: (group, version, resource) =>
      builtinDeprecation(group, version, resource) ||
      (catalog.find(group, version, resource, '')?.info.custom?.deprecation ?? ''),
    requestTimeoutMs: flags.requestTimeout,
    maxReading: flags.maxRequestsInflight,
    maxMutating: flags.maxMutatingRequestsInflight,
  });
  if (servingCertificate(flags) === undefined)
    pki.onChange((material) => server.replaceCertificate(ownCertificate(material)));
  return server;
}

const ownCertificate = ({ apiserver }: PkiMaterial): ServingCertificate => ({
  cert: apiserver.certificatePem,
  key: apiserver.privateKeyPem,
});

/** `--tls-cert-file` and `--tls-private-key-file`. */
function servingCertificate({ tlsCertFile, tlsPrivateKeyFile }: ControlPlaneFlags): ServingCertificate | undefined {
  if (tlsCertFile === '' || tlsPrivateKeyFile === '') return undefined;
  return { cert: readFileSync(tlsCertFile), key: readFileSync(tlsPrivateKeyFile) };
}

/** By the names that probes of the reference ask for. */
function healthChecks({
  storage,
  sources,
  encryption,
  startHooks,
  isClosing,
}: Parts): Pick<HealthOptions, 'checks' | 'readiness'> {
  return {
    checks: [
      // The log is written where requests are answered: whoever gets this answer knows that it can be.
      { name: 'log', check: () => undefined },
      {
        name: 'etcd',
        check: async () => {
          await storage.get('/core/namespaces/kube-system');
        },
      },
      ...(encryption?.checks ?? []),
      ...startHooks.checks,
    ],
    readiness: [
      { name: 'informer-sync', check: () => sources.synced() },
      {
        name: 'shutdown',
        check: () => {
          if (isClosing()) throw new Error('process is shutting down');
        },
      },
    ],
  };
}

/** A token of a Secret was used: the Secret says on which day that was last. */
export function legacyTokenMarker(parts: () => Parts): (secret: Secret) => void {
  return (secret) => {
    const { clientFor, clock, logger } = parts();
    const { namespace = '', name = '' } = secret.metadata;
    const body = {
      metadata: { labels: { 'kubernetes.io/legacy-token-last-used': formatTime(clock.now()).slice(0, 10) } },
    };
    clientFor('system:apiserver', ['system:masters', 'system:authenticated'], 'kube-apiserver')
      .patch(secrets, namespace, name, 'merge', body)
      .catch((error: unknown) => logger.warn({ err: error, namespace, name }, 'A used token could not be marked'));
  };
}
