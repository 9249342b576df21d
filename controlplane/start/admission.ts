/** Runs the fourth phase of the start: the admission plugins and their chain. */
import { networkInterfaces } from 'node:os';
import { clientMetrics } from '../../api/client/client-metrics.ts';
import { namespaces, resourceQuotas } from '../../api/client/resources.ts';
import type { GroupVersionKind } from '../../api/meta/object.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { loadAdmissionConfiguration } from '../security/admission/admission-config.ts';
import { chainMetrics, podSecurityMetrics, webhookMetrics } from '../security/admission/admission-metrics.ts';
import type { AdmissionChain } from '../security/admission/admission.ts';
import { admissionChain } from '../security/admission/chain.ts';
import { buildPlugins } from '../security/admission/plugins.ts';
import { webhookConditions } from '../security/admission/policy/match-conditions.ts';
import { catalogConversion } from '../security/admission/webhook/catalog-conversion.ts';
import { WebhookClient } from '../security/webhooks/webhook-client.ts';
import type { ReadersPhase } from './readers.ts';
import type { SecurityPhase } from './security.ts';
import type { Setting } from './setting.ts';
import type { StoresPhase } from './stores.ts';

/** What this phase adds for the phases after it. */
export interface AdmissionPhase {
  readonly admission: AdmissionChain;
}

type Before = Setting & StoresPhase & ReadersPhase & SecurityPhase;

/**
 * Builds the admission plugins. Resolves when the plugins have read what they need. Rejects if the admission configuration
 * cannot be read or is invalid.
 */
export async function buildAdmission(before: Before): Promise<AdmissionPhase> {
  const { flags, clock, logger, metrics, dialer, schema, listers, registry, definitions, security, clients } = before;
  const { authorizer, rbac } = security.authorizers;
  const configuration = await loadAdmissionConfiguration(flags.admissionControlConfigFile, clock);
  if (configuration.ignored.length > 0)
    logger.warn(
      { plugins: configuration.ignored },
      'Ignoring the configurations of admission plugins that cannot be configured',
    );
  const plugins = buildPlugins({
    listers,
    clock,
    authorizer,
    rbac,
    storedNamespace: (name) => registry.stores.get('', 'namespaces').cache.get('', name)?.object,
    createNamespace: async (name) => {
      await clients.system.create(namespaces, '', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    },
    policies: {
      structOf: (kind) =>
        registry.catalog.resources().some((resource) => isDocumentedWith(resource, kind))
          ? (schema.kind(kind.group, kind.version, kind.kind) ?? definitions.structOf(kind))
          : undefined,
      resources: () => registry.catalog.resources(),
    },
    webhooks: {
      client: new WebhookClient('kube-apiserver-admission', {
        dialer,
        measured: { observer: clientMetrics(metrics), clock },
      }),
      random: Math.random,
      matchConditions: webhookConditions(() => authorizer),
      conversion: catalogConversion(
        registry.catalog,
        schema,
        (object, kind) => definitions.convert(object, kind) ?? registry.convert(object, kind),
        (object) => {
          if (!definitions.applyDefaults(object)) registry.applyDefaults(object);
        },
      ),
      metrics: webhookMetrics(metrics),
    },
    configuration,
    podSecurityMetrics: podSecurityMetrics(metrics),
    updateQuotaStatus: (quota) => clients.system.update(resourceQuotas, quota, { subresource: 'status' }),
    tolerationSeconds: {
      notReadySeconds: flags.defaultNotReadyTolerationSeconds,
      unreachableSeconds: flags.defaultUnreachableTolerationSeconds,
    },
    claims: flags.nodeServices
      ? {
          now: () => clock.now(),
          hostAddresses: () =>
            Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
          assignsRanges: flags.clusterCidr.length > 0,
        }
      : undefined,
    enable: flags.enableAdmissionPlugins,
    disable: flags.disableAdmissionPlugins,
  });
  await listers.synced();
  return { admission: admissionChain(plugins, chainMetrics(metrics), () => clock.monotonic()) };
}

/**
 * Whether the OpenAPI document of the kind's group and version describes the kind, in which kube-apiserver looks up the
 * type of an apply configuration. Scale is described with the resources that have it as a subresource.
 */
function isDocumentedWith(resource: ResourceInfo, { group, version, kind }: GroupVersionKind): boolean {
  if (resource.group !== group || resource.version !== version) return false;
  return (
    resource.kind === kind ||
    resource.subresources.some((one) => one.kind === kind && one.group === group && one.version === version)
  );
}
