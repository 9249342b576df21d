/**
 * Lists the admission plugins in the order in which they run, with those that are on by default, and builds the chain from the
 * flags. The table of `docs/security.md` has the same rows.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Namespace } from '../../../api/kinds/kinds.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
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
import { nodeClaims, type NodeClaimsOptions } from './node-claims.ts';
import { nodeRestriction } from './node-restriction.ts';
import { taintNodesByCondition } from './node-taint.ts';
import { ownerReferencesPermissionEnforcement } from './owner-references.ts';
import { podNodeSelector } from './pod-node-selector.ts';
import { podSecurity, type PodSecurityMetrics } from './pod-security/pod-security.ts';
import { podTolerationRestriction } from './pod-toleration-restriction.ts';
import { podTopologyLabels } from './pod-topology-labels.ts';
import { paramsAuthorization } from './policy/params-authorization.ts';
import type { PluginName } from './plugin-names.ts';
import { priorityPlugin } from './priority.ts';
import { claimStatusAuthorization } from './claim-status.ts';
import { rbacEscalation } from './rbac-escalation.ts';
import { resourceQuota, type ResourceQuotaOptions } from './resource-quota.ts';
import { runtimeClassPlugin } from './runtime-class.ts';
import { securityContextDeny } from './security-context-deny.ts';
import { serviceAccountPlugin } from './service-account.ts';
import { defaultStorageClass, persistentVolumeClaimResize, storageObjectInUseProtection } from './storage-defaults.ts';
import type { WebhookCredentials } from './webhook/endpoint.ts';
import { mutatingAdmissionPolicy, type MutatingPolicyOptions } from './policy/mutating-policy.ts';
import { validatingAdmissionPolicy } from './policy/validating-policy.ts';
import { mutatingWebhooks } from './webhook/mutating-webhooks.ts';
import { validatingWebhooks, type WebhooksOptions } from './webhook/webhooks.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import type { AdmissionConfiguration } from './admission-config.ts';
import type { Listers } from '../../model/listers.ts';
import { StartError } from '../../model/start-error.ts';

interface PluginsOptions {
  readonly listers: Listers;
  readonly clock: Clock;
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  /** Reads a namespace as it is stored now (NamespaceLifecycle). */
  readonly storedNamespace: (name: string) => Namespace | undefined;
  /** Creates a namespace (NamespaceAutoProvision). */
  readonly createNamespace: (name: string) => Promise<void>;
  /** Writes the status of a quota (ResourceQuota). */
  readonly updateQuotaStatus: ResourceQuotaOptions['updateStatus'];
  readonly webhooks: Omit<WebhooksOptions, 'listers' | 'clock' | 'reinvoke' | 'credentials'>;
  /** The resources of the server, as the CEL policies look them up. */
  readonly policies: Pick<MutatingPolicyOptions, 'structOf'> & { readonly resources: () => readonly ResourceInfo[] };
  /** The value of `--admission-control-config-file`. */
  readonly configuration: AdmissionConfiguration;
  readonly tolerationSeconds: DefaultTolerationSecondsOptions;
  /** What NodeRestriction records of nodes; `undefined` in clusters without the services of nodes. */
  readonly claims?: NodeClaimsOptions | undefined;
  readonly podSecurityMetrics?: PodSecurityMetrics;
  /** The values of `--enable-admission-plugins` and `--disable-admission-plugins`. */
  readonly enable: readonly string[];
  readonly disable: readonly string[];
}

interface PluginRow {
  readonly name: PluginName;
  readonly enabledByDefault: boolean;
  /** What the plugin does, in the table of `docs/security.md`. */
  readonly summary: string;
  /** Creates the plugin. `earlier` are the plugins before this one, which run again after a change by a policy or a webhook. */
  make(options: PluginsOptions, earlier: readonly AdmissionPlugin[]): AdmissionPlugin;
}

const on = (name: PluginName, summary: string, make: PluginRow['make']): PluginRow => ({
  name,
  enabledByDefault: true,
  summary,
  make,
});
const off = (name: PluginName, summary: string, make: PluginRow['make']): PluginRow => ({
  name,
  enabledByDefault: false,
  summary,
  make,
});

const credentialsOf = (credentials: WebhookCredentials | undefined): Pick<WebhooksOptions, 'credentials'> =>
  credentials === undefined ? {} : { credentials };

/** The plugins in kube-apiserver's order. Of those that are on by default, quota runs last. */
export const PLUGINS: readonly PluginRow[] = [
  off('AlwaysAdmit', 'accepts everything', () => alwaysAdmit()),
  off(
    'NamespaceAutoProvision',
    'creates a missing namespace when an object is created in it',
    ({ listers, createNamespace }) => namespaceAutoProvision(listers, createNamespace),
  ),
  on('NamespaceLifecycle', 'refuses new objects in missing and terminating namespaces', (options) =>
    namespaceLifecycle(options.listers, options.clock, options.storedNamespace),
  ),
  off('NamespaceExists', 'refuses every write to a missing namespace', ({ listers }) => namespaceExists(listers)),
  off('SecurityContextDeny', 'refuses security contexts that set users, groups or SELinux labels', () =>
    securityContextDeny(),
  ),
  off('LimitPodHardAntiAffinityTopology', 'limits required pod anti-affinity to the node', () =>
    limitPodHardAntiAffinity(),
  ),
  on('LimitRanger', 'applies the defaults and limits of LimitRanges', ({ listers }) => limitRanger(listers)),
  on('ServiceAccount', 'sets the service account of pods and mounts its token', ({ listers, clock }) =>
    serviceAccountPlugin(listers, clock),
  ),
  on('NodeRestriction', 'restricts what node agents can write', ({ listers, authorizer, claims }) =>
    nodeRestriction(listers, authorizer, claims === undefined ? undefined : nodeClaims(listers, claims)),
  ),
  on('NodeDeclaredFeatureValidator', 'refuses changes of pods that their node does not support', ({ listers }) =>
    nodeDeclaredFeatures(listers),
  ),
  on('TaintNodesByCondition', 'taints new nodes as not ready', () => taintNodesByCondition()),
  off('AlwaysPullImages', 'makes pods pull every image with their own credentials', () => alwaysPullImages()),
  on(
    'PodSecurity',
    'enforces the Pod Security levels of namespaces',
    ({ listers, configuration, podSecurityMetrics }) =>
      podSecurity(listers, configuration.podSecurity, podSecurityMetrics),
  ),
  off('PodNodeSelector', 'adds the node selector of a namespace to its pods', ({ listers, configuration }) =>
    podNodeSelector(listers, configuration.nodeSelectors),
  ),
  on('Priority', 'sets the priority of pods from their class', ({ listers }) => priorityPlugin(listers)),
  on('DefaultTolerationSeconds', 'makes pods tolerate failing nodes for some time', ({ tolerationSeconds }) =>
    defaultTolerationSeconds(tolerationSeconds),
  ),
  off(
    'PodTolerationRestriction',
    'applies the default tolerations and the whitelist of a namespace',
    ({ listers, configuration }) =>
      podTolerationRestriction(listers, configuration.tolerations ?? { clusterDefaults: [], clusterWhitelist: [] }),
  ),
  off('ExtendedResourceToleration', 'makes pods that request devices tolerate the taint of the resource', () =>
    extendedResourceToleration(),
  ),
  on('DefaultStorageClass', 'sets the default class of claims without a class', ({ listers }) =>
    defaultStorageClass(listers),
  ),
  on('StorageObjectInUseProtection', 'adds the protection finalizers to claims and volumes', () =>
    storageObjectInUseProtection(),
  ),
  off(
    'OwnerReferencesPermissionEnforcement',
    'requires the permission to delete for changes of owner references',
    ({ authorizer, policies }) => ownerReferencesPermissionEnforcement(authorizer, policies.resources),
  ),
  on('PersistentVolumeClaimResize', 'allows claims to grow only if their class does', ({ listers }) =>
    persistentVolumeClaimResize(listers),
  ),
  on('RuntimeClass', 'applies the overhead and scheduling constraints of a runtime class', ({ listers }) =>
    runtimeClassPlugin(listers),
  ),
  on('CertificateApproval', 'requires the permission for the signer to approve requests', ({ authorizer }) =>
    certificateApproval(authorizer),
  ),
  on('CertificateSigning', 'requires the permission for the signer to sign requests', ({ authorizer }) =>
    certificateSigning(authorizer),
  ),
  on(
    'ClusterTrustBundleAttest',
    'requires the permission for the signer to write its trust bundles',
    ({ authorizer }) => clusterTrustBundleAttest(authorizer),
  ),
  on('CertificateSubjectRestriction', 'refuses client certificates of system:masters', () =>
    certificateSubjectRestriction(),
  ),
  on('DefaultIngressClass', 'sets the default class of ingresses without a class', ({ listers }) =>
    defaultIngressClass(listers),
  ),
  off('DenyServiceExternalIPs', 'refuses external IPs of services', () => denyServiceExternalIps()),
  on('PodTopologyLabels', 'copies the zone and region of the node to its pods', ({ listers }) =>
    podTopologyLabels(listers),
  ),
  on(
    'MutatingAdmissionPolicy',
    'evaluates CEL policies that change objects',
    ({ listers, clock, authorizer, webhooks, policies }, earlier) =>
      mutatingAdmissionPolicy({
        listers,
        clock,
        authorizer,
        conversion: webhooks.conversion,
        ...policies,
        reinvoke: reinvocationOf(earlier),
      }),
  ),
  on(
    'MutatingAdmissionWebhook',
    'calls webhooks that change objects',
    ({ listers, clock, webhooks, configuration }, earlier) =>
      mutatingWebhooks({
        listers,
        clock,
        ...webhooks,
        ...credentialsOf(configuration.mutatingCredentials),
        reinvoke: reinvocationOf(earlier),
      }),
  ),
  on(
    'ValidatingAdmissionPolicy',
    'evaluates CEL policies that validate objects',
    ({ listers, clock, authorizer, webhooks, policies }) =>
      validatingAdmissionPolicy({ listers, clock, authorizer, conversion: webhooks.conversion, ...policies }),
  ),
  on(
    'ValidatingAdmissionWebhook',
    'calls webhooks that validate objects',
    ({ listers, clock, webhooks, configuration }) =>
      validatingWebhooks({ listers, clock, ...webhooks, ...credentialsOf(configuration.validatingCredentials) }),
  ),
  on('ResourceQuota', 'enforces the quotas of namespaces', ({ listers, updateQuotaStatus, configuration }) =>
    resourceQuota({
      listers,
      updateStatus: updateQuotaStatus,
      ...(configuration.limitedResources === undefined ? {} : { limited: configuration.limitedResources }),
    }),
  ),
  off('AlwaysDeny', 'refuses everything', () => alwaysDeny()),
];

/** Returns the function by which a plugin that has changed the object runs the mutating plugins before it again. */
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

/**
 * Builds the plugins that are enabled, in their order, and after them three checks that no flag turns off. Throws a
 * `StartError` if a plugin is both enabled and disabled.
 */
export function buildPlugins(options: PluginsOptions): AdmissionPlugin[] {
  const both = options.enable.find((name) => options.disable.includes(name));
  if (both !== undefined)
    throw new StartError(
      `admission plugin "${both}" is in both --enable-admission-plugins and --disable-admission-plugins; remove it from one`,
    );
  const chosen = PLUGINS.filter(
    (row) => (row.enabledByDefault || options.enable.includes(row.name)) && !options.disable.includes(row.name),
  );
  const plugins: AdmissionPlugin[] = [];
  for (const row of chosen) plugins.push(row.make(options, [...plugins]));
  const { listers, authorizer, policies, storedNamespace } = options;
  return [
    ...plugins,
    rbacEscalation(options.rbac, authorizer, options.clock),
    claimStatusAuthorization({ authorizer, storedNamespace }),
    paramsAuthorization({ listers, authorizer, resources: policies.resources }),
  ];
}
