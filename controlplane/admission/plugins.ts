/**
 * Lists the admission plugins in the order in which they run, with those that are on by default, and builds the chain from the
 * flags. `start/admission.ts` calls it; the documentation is generated from the rows.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Namespace } from '../../api/machinery/kinds.ts';
import type { ResourceInfo, Schema } from '../../api/schema/schema.ts';
import type { Authorizer } from '../authorization/authorization.ts';
import type { RbacAuthorizer } from '../authorization/rbac.ts';
import {
  certificateApproval,
  certificateSigning,
  certificateSubjectRestriction,
  clusterTrustBundleAttest,
} from './certificates.ts';
import { alwaysAdmit, alwaysDeny } from './always.ts';
import { alwaysPullImages } from './always-pull-images.ts';
import { defaultIngressClass } from './default-ingress-class.ts';
import { defaultTolerationSeconds, type DefaultTolerationSecondsOptions } from './default-toleration-seconds.ts';
import { denyServiceExternalIps } from './deny-service-external-ips.ts';
import { extendedResourceToleration } from './extended-resource-toleration.ts';
import { limitPodHardAntiAffinity } from './limit-pod-hard-anti-affinity.ts';
import { limitRanger } from './limit-ranger.ts';
import { namespaceLifecycle } from './namespace-lifecycle.ts';
import { namespaceAutoProvision, namespaceExists } from './namespace-provision.ts';
import { nodeDeclaredFeatures } from './node-declared-features.ts';
import { nodeRestriction } from './node-restriction.ts';
import { taintNodesByCondition } from './node-taint.ts';
import { ownerReferencesPermissionEnforcement } from './owner-references.ts';
import { podNodeSelector } from './pod-node-selector.ts';
import { podSecurity, type PodSecurityMetrics } from './pod-security/pod-security.ts';
import { podTolerationRestriction } from './pod-toleration-restriction.ts';
import { podTopologyLabels } from './pod-topology-labels.ts';
import { paramsAuthorization } from './policy/params-authorization.ts';
import { priorityPlugin } from './priority.ts';
import { rbacEscalation } from './rbac-escalation.ts';
import { resourceQuota, type ResourceQuotaOptions } from './resource-quota.ts';
import { runtimeClassPlugin } from './runtime-class.ts';
import { securityContextDeny } from './security-context-deny.ts';
import { serviceAccountPlugin } from './service-account.ts';
import { defaultStorageClass, persistentVolumeClaimResize, storageObjectInUseProtection } from './storage-defaults.ts';
import type { WebhookCredentials } from './webhook/endpoint.ts';
import { mutatingAdmissionPolicy } from './policy/mutating-policy.ts';
import { validatingAdmissionPolicy } from './policy/validating-policy.ts';
import { mutatingWebhooks } from './webhook/mutating-webhooks.ts';
import { validatingWebhooks, type WebhooksOptions } from './webhook/webhooks.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { AdmissionConfiguration } from './admission-config.ts';
import type { Sources } from '../readers/sources.ts';
import { StartError } from '../model/start-error.ts';

export interface PluginsOptions {
  readonly sources: Sources;
  readonly clock: Clock;
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  /** Reads a namespace as it is stored now (NamespaceLifecycle). */
  readonly storedNamespace: (name: string) => Namespace | undefined;
  /** Creates a namespace (NamespaceAutoProvision). */
  readonly createNamespace: (name: string) => Promise<void>;
  /** Writes the status of a quota (ResourceQuota). */
  readonly updateQuotaStatus: ResourceQuotaOptions['updateStatus'];
  readonly webhooks: Omit<WebhooksOptions, 'sources' | 'clock' | 'reinvoke' | 'credentials'>;
  /** The resources of the server, as the CEL policies look them up. */
  readonly policies: { readonly schema: Schema; readonly resources: () => readonly ResourceInfo[] };
  /** `--admission-control-config-file`. */
  readonly configuration: AdmissionConfiguration;
  readonly tolerationSeconds: DefaultTolerationSecondsOptions;
  readonly podSecurityMetrics?: PodSecurityMetrics;
  /** `--enable-admission-plugins`, `--disable-admission-plugins`. */
  readonly enable: readonly string[];
  readonly disable: readonly string[];
}

export interface PluginRow {
  readonly name: string;
  readonly enabledByDefault: boolean;
  readonly summary: string;
  /** `earlier` are the plugins before this one, which run again when a webhook changed the object. */
  make(options: PluginsOptions, earlier: readonly AdmissionPlugin[]): AdmissionPlugin;
}

const on = (name: string, summary: string, make: PluginRow['make']): PluginRow => ({
  name,
  enabledByDefault: true,
  summary,
  make,
});
const off = (name: string, summary: string, make: PluginRow['make']): PluginRow => ({
  name,
  enabledByDefault: false,
  summary,
  make,
});

const credentialsOf = (credentials: WebhookCredentials | undefined): Pick<WebhooksOptions, 'credentials'> =>
  credentials === undefined ? {} : { credentials };

/**
 * The rows are in kube-apiserver's order: plugins that set defaults run before plugins that check them, and quota runs last.
 */
export const PLUGINS: readonly PluginRow[] = [
  off('AlwaysAdmit', 'lets everything through', () => alwaysAdmit()),
  off('NamespaceAutoProvision', 'makes a namespace that is named but missing', ({ sources, createNamespace }) =>
    namespaceAutoProvision(sources, createNamespace),
  ),
  on('NamespaceLifecycle', 'nothing new in a namespace that is missing or going away', (options) =>
    namespaceLifecycle(options.sources, options.clock, options.storedNamespace),
  ),
  off('NamespaceExists', 'refuses every write to a namespace that is missing', ({ sources }) =>
    namespaceExists(sources),
  ),
  off('SecurityContextDeny', 'refuses elevated security contexts', () => securityContextDeny()),
  off('LimitPodHardAntiAffinityTopology', 'pods keep others off their node at most', () => limitPodHardAntiAffinity()),
  on('LimitRanger', 'defaults and bounds of resources', ({ sources }) => limitRanger(sources)),
  on('ServiceAccount', 'every pod has an account and its token', ({ sources, clock }) =>
    serviceAccountPlugin(sources, clock),
  ),
  on('NodeRestriction', 'what node agents may write', ({ sources, authorizer }) =>
    nodeRestriction(sources, authorizer),
  ),
  on('NodeDeclaredFeatureValidator', 'pods change only as their node supports', ({ sources }) =>
    nodeDeclaredFeatures(sources),
  ),
  on('TaintNodesByCondition', 'new nodes take no pods yet', () => taintNodesByCondition()),
  off('AlwaysPullImages', 'every image is pulled anew, with the rights of its user', () => alwaysPullImages()),
  on('PodSecurity', 'the Pod Security levels of namespaces', ({ sources, configuration, podSecurityMetrics }) =>
    podSecurity(sources, configuration.podSecurity, podSecurityMetrics),
  ),
  off('PodNodeSelector', 'a namespace chooses the nodes of its pods', ({ sources, configuration }) =>
    podNodeSelector(sources, configuration.nodeSelectors),
  ),
  on('Priority', 'priority from the class', ({ sources }) => priorityPlugin(sources)),
  on('DefaultTolerationSeconds', 'pods stay a while on failing nodes', ({ tolerationSeconds }) =>
    defaultTolerationSeconds(tolerationSeconds),
  ),
  off('PodTolerationRestriction', 'default tolerations and whitelist of a namespace', ({ sources, configuration }) =>
    podTolerationRestriction(sources, configuration.tolerations ?? { clusterDefaults: [], clusterWhitelist: [] }),
  ),
  off('ExtendedResourceToleration', 'pods that ask for devices tolerate their taint', () =>
    extendedResourceToleration(),
  ),
  on('DefaultStorageClass', 'claims without a class get the default one', ({ sources }) =>
    defaultStorageClass(sources),
  ),
  on('StorageObjectInUseProtection', 'finalizers of claims and volumes', () => storageObjectInUseProtection()),
  off('OwnerReferencesPermissionEnforcement', 'changing owners needs the right to delete', ({ authorizer, policies }) =>
    ownerReferencesPermissionEnforcement(authorizer, policies.resources),
  ),
  on('PersistentVolumeClaimResize', 'claims grow only where their class allows it', ({ sources }) =>
    persistentVolumeClaimResize(sources),
  ),
  on('RuntimeClass', 'overhead and scheduling of the class', ({ sources }) => runtimeClassPlugin(sources)),
  on('CertificateApproval', 'approving needs the right for the signer', ({ authorizer }) =>
    certificateApproval(authorizer),
  ),
  on('CertificateSigning', 'signing needs the right for the signer', ({ authorizer }) =>
    certificateSigning(authorizer),
  ),
  on('ClusterTrustBundleAttest', 'trust bundles of a signer need the right to attest', ({ authorizer }) =>
    clusterTrustBundleAttest(authorizer),
  ),
  on('CertificateSubjectRestriction', 'no client certificates of system:masters', () =>
    certificateSubjectRestriction(),
  ),
  on('DefaultIngressClass', 'ingresses without a class get the default one', ({ sources }) =>
    defaultIngressClass(sources),
  ),
  off('DenyServiceExternalIPs', 'services get no external addresses', () => denyServiceExternalIps()),
  on('PodTopologyLabels', 'zone and region of the node on its pods', ({ sources }) => podTopologyLabels(sources)),
  on(
    'MutatingAdmissionPolicy',
    'policies in CEL that change objects',
    ({ sources, authorizer, webhooks, policies }, earlier) =>
      mutatingAdmissionPolicy({
        sources,
        authorizer,
        conversion: webhooks.conversion,
        ...policies,
        reinvoke: reinvocationOf(earlier),
      }),
  ),
  on(
    'MutatingAdmissionWebhook',
    'webhooks that change objects',
    ({ sources, clock, webhooks, configuration }, earlier) =>
      mutatingWebhooks({
        sources,
        clock,
        ...webhooks,
        ...credentialsOf(configuration.mutatingCredentials),
        reinvoke: reinvocationOf(earlier),
      }),
  ),
  on('ValidatingAdmissionPolicy', 'policies in CEL that judge objects', ({ sources, authorizer, webhooks, policies }) =>
    validatingAdmissionPolicy({ sources, authorizer, conversion: webhooks.conversion, ...policies }),
  ),
  on('ValidatingAdmissionWebhook', 'webhooks that judge objects', ({ sources, clock, webhooks, configuration }) =>
    validatingWebhooks({ sources, clock, ...webhooks, ...credentialsOf(configuration.validatingCredentials) }),
  ),
  on('ResourceQuota', 'what a namespace may hold', ({ sources, updateQuotaStatus, configuration }) =>
    resourceQuota({
      sources,
      updateStatus: updateQuotaStatus,
      ...(configuration.limitedResources === undefined ? {} : { limited: configuration.limitedResources }),
    }),
  ),
  off('AlwaysDeny', 'refuses everything', () => alwaysDeny()),
];

/** Runs the mutating plugins before the given one again, after that one changed the object. */
function reinvocationOf(earlier: readonly AdmissionPlugin[]) {
  return async (attributes: AdmissionAttributes, signal: AbortSignal): Promise<void> => {
    const isInner = attributes.isReinvocation === true;
    attributes.isReinvocation = true;
    try {
      for (const plugin of earlier) if (plugin.handles(attributes.operation)) await plugin.admit?.(attributes, signal);
    } finally {
      attributes.isReinvocation = isInner;
    }
  };
}

/** Throws if a name is not a plugin. */
export function buildPlugins(options: PluginsOptions): AdmissionPlugin[] {
  const known = new Set(PLUGINS.map((row) => row.name));
  for (const name of [...options.enable, ...options.disable]) {
    if (!known.has(name))
      throw new StartError(`unknown admission plugin "${name}"; there are ${[...known].sort().join(', ')}`);
  }
  const both = options.enable.find((name) => options.disable.includes(name));
  if (both !== undefined) throw new Error(`admission plugin "${both}" is both enabled and disabled`);
  const chosen = PLUGINS.filter(
    (row) => (row.enabledByDefault || options.enable.includes(row.name)) && !options.disable.includes(row.name),
  );
  const plugins: AdmissionPlugin[] = [];
  for (const row of chosen) plugins.push(row.make(options, [...plugins]));
  const { sources, authorizer, policies } = options;
  return [
    ...plugins,
    rbacEscalation(options.rbac, authorizer),
    paramsAuthorization({ sources, authorizer, resources: policies.resources }),
  ];
}
