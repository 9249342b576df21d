/** The parts of the control plane that `main.ts` puts together in the order of the start: plugins, reviews, custom resources, aggregation. */
import { parseJson } from '../../api/codec/json.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import type { Dialer } from '../../api/machinery/dialer.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import type { Secret } from '../../api/machinery/kinds.ts';
import {
  apiServices,
  customResourceDefinitions,
  endpointSlices,
  services,
  namespaces,
  resourceQuotas,
  secrets,
} from '../../api/machinery/resources.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import type { Schema } from '../../api/schema/schema.ts';
import type { AdmissionChain, AdmissionPlugin } from '../admission/admission.ts';
import type { AdmissionConfiguration } from '../admission/admission-config.ts';
import { podSecurityMetrics, webhookMetrics } from '../admission/admission-metrics.ts';
import { buildPlugins } from '../admission/plugins.ts';
import type { Sources } from '../readers/sources.ts';
import { celTypeOf } from '../custom-resources/rule-types.ts';
import { startTypeChecking, typeOfStruct } from '../admission/policy/type-checking.ts';
import { aggregationMetrics } from '../aggregation/aggregation-metrics.ts';
import { Aggregator } from '../aggregation/aggregator.ts';
import { startAutoRegistration } from '../aggregation/auto-registration.ts';
import { endpointOf } from '../admission/webhook/endpoint.ts';
import type { CallConversion } from '../custom-resources/webhook-conversion.ts';
import { webhookConditions } from '../admission/policy/match-conditions.ts';
import { catalogConversion } from '../admission/webhook/catalog-conversion.ts';
import { WebhookClient } from '../authentication/webhook-client.ts';
import { reconcileBootstrapPolicy } from '../authorization/bootstrap-reconcile.ts';
import type { Encryption } from '../encryption/build.ts';
import { ensureDefaultObjects } from '../bootstrap/default-objects.ts';
import { ensureNodeServices } from '../bootstrap/node-services.ts';
import { ensureNodeBootstrap } from '../bootstrap/node-bootstrap.ts';
import { createAgentSummaries } from '../metrics-api/agent-summaries.ts';
import { METRICS_API, metricsRests } from '../metrics-api/metrics-api.ts';
import type { ControlPlaneFlags } from '../options/controlplane-options.ts';
import type { Pki } from '../pki/pki.ts';
import { CustomResources } from '../custom-resources/custom-resources.ts';
import { createDecoder } from '../registry/object-decoding.ts';
import { createFieldManagement } from '../registry/managed-fields.ts';
import type { Registry, RegistryOptions, Stores } from '../registry/registry.ts';
import type { Rest } from '../model/rest.ts';
import { lateReviewers } from '../reviews/reviewers.ts';
import { reviewRests, type ReviewRestsOptions } from '../reviews/review-rest.ts';
import type { Security } from './security.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { fetchAggregated } from '../server/connect/aggregated.ts';
import type { AuditSink } from '../server/filters/audit.ts';
import type { StartHooks } from './start-hooks.ts';
import type { Storage } from '../storage/storage.ts';

export interface Parts {
  readonly flags: ControlPlaneFlags;
  readonly clock: Clock;
  /** Of the clients and the loops of this process. */
  readonly turns: LoopTurns;
  readonly logger: Logger;
  readonly schema: Schema;
  readonly registry: Registry;
  readonly security: Security;
  readonly sources: Sources;
  readonly pki: Pki;
  readonly dialer: Dialer;
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

export interface ExtensionOptions extends ReviewRestsOptions {
  readonly dialer: Dialer;
}

/** Endpoints beside the stored resources: reviews and tokens. The parts are there when the first request comes. */
export function extensions(stores: Stores, parts: () => Parts, options: ExtensionOptions): readonly Rest[] {
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
  return [...reviewRests(reviews, options), ...usageRests(stores, parts, options)];
}

/** What nodes and pods use, told by the agents. */
function usageRests(
  stores: Stores,
  parts: () => Parts,
  { clock, dialer }: Pick<ExtensionOptions, 'clock' | 'dialer'>,
): readonly Rest[] {
  const summaries = createAgentSummaries({
    clock,
    dialer,
    onFailure: (node, error) => parts().logger.debug({ err: error, node }, 'A node does not tell what it uses'),
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
  dialer,
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
      client: new WebhookClient('kube-apiserver-admission', dialer),
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
  parts: Pick<Parts, 'registry' | 'clock' | 'logger' | 'sources' | 'schema' | 'clientFor' | 'dialer'>,
  storage: Storage,
  admission: AdmissionChain,
  signal: AbortSignal,
): CustomResources {
  const { registry, clock, logger, sources, schema, clientFor, dialer } = parts;
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
    callConversion: conversionCalls(sources, dialer),
  });
}

const CONVERSION_TIMEOUT_SECONDS = 30;

/** Calls of conversion webhooks, found as those of admission are. */
function conversionCalls(sources: Sources, dialer: Dialer): CallConversion {
  const found = { services: sources.of(services), endpointSlices: sources.of(endpointSlices), random: Math.random };
  const client = new WebhookClient('kube-apiserver-conversion', dialer);
  return async (config, body) => {
    const endpoint = await endpointOf(config, CONVERSION_TIMEOUT_SECONDS, found);
    const signal = AbortSignal.timeout(CONVERSION_TIMEOUT_SECONDS * 1000);
    const answer = await client.call(endpoint, { method: 'POST', body, signal });
    if (answer.status !== 200) throw new Error(`the server answered ${answer.status}`);
    return parseJson(answer.body).value;
  };
}

export function aggregatorOf(
  { sources, clientFor, clock, logger, pki, metrics, dialer }: Parts,
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
    fetchJson: (target, path, headers) => fetchAggregated(dialer, target, path, headers),
  });
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
