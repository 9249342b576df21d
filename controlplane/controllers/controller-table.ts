/**
 * Lists the controllers in a table: the name of each, its service account, how to load the function that runs it, and whether
 * it is on by default. Controllers are loaded after the server listens, because no request needs them.
 */
import { newStatusError } from '../../api/meta/status-error.ts';
import type { KindTypes } from './admission-policy/type-checking.ts';
import type { RawGet } from './autoscaler/metrics-client.ts';
import type { CertificateSigner } from './certificates/certificate-signer.ts';
import type { RunController } from './controller.ts';
import type { ControllerName } from './controller-names.ts';
import type { LegacyTokenSigner } from './service-account/token-secrets.ts';
import type { ServiceLoadBalancersOptions } from './service/service-load-balancers.ts';
import type { VolumeAgents } from './storage/local-volumes.ts';

/** Parts that some controllers need beside the API. Without its part, a controller does not run, except for the autoscaler. */
export interface ControllerKeys {
  readonly rootCaPem?: string;
  readonly tokenSigner?: LegacyTokenSigner;
  readonly certificateSigner?: CertificateSigner;
  /**
   * Sends a GET to a path of the API as the autoscaler's service account; adapters serve custom and external metrics there. If
   * it is absent, there are no such metrics.
   */
  readonly getMetrics?: RawGet;
  /** The agents, which create and remove local volumes. */
  readonly volumeAgents?: VolumeAgents;
  /** The options of load balancers, for which the nodes answer at their own addresses. */
  readonly loadBalancers?: ServiceLoadBalancersOptions;
  /** The kinds for which expressions of policies are checked. */
  readonly kindTypes?: KindTypes;
}

interface ControllerRow {
  readonly name: ControllerName;
  /** The service account in kube-system; '' for the user of the controller manager. */
  readonly account: string;
  /** Loads the modules of the controller, which takes milliseconds, and returns the function that runs it. */
  readonly load: () => Promise<RunController>;
  readonly offByDefault?: boolean;
}

/** Rejects as the API does if no metrics are served. */
const noMetrics: RawGet = () =>
  Promise.reject(newStatusError(404, 'NotFound', 'the server could not find the requested resource'));

const withPart = <T>(part: T | undefined, rowOf: (part: T) => ControllerRow): readonly ControllerRow[] =>
  part === undefined ? [] : [rowOf(part)];

/** The controllers that need nothing but the API. */
const CONTROLLERS: readonly ControllerRow[] = [
  {
    name: 'serviceaccount-controller',
    account: 'service-account-controller',
    load: async () => (await import('./service-account/service-accounts.ts')).runServiceAccounts,
  },
  {
    name: 'namespace-controller',
    account: 'namespace-controller',
    load: async () => (await import('./namespace/namespace.ts')).runNamespaces,
  },
  {
    name: 'garbage-collector-controller',
    account: 'generic-garbage-collector',
    load: async () => (await import('./garbage-collector/garbage-collector.ts')).runGarbageCollector,
  },
  {
    name: 'replicaset-controller',
    account: 'replicaset-controller',
    load: async () => (await import('./replica-set/replica-set.ts')).runReplicaSets,
  },
  {
    name: 'replicationcontroller-controller',
    account: 'replication-controller',
    load: async () => (await import('./replica-set/replica-set.ts')).runReplicationControllers,
  },
  {
    name: 'deployment-controller',
    account: 'deployment-controller',
    load: async () => (await import('./deployment/deployment.ts')).runDeployments,
  },
  {
    name: 'statefulset-controller',
    account: 'statefulset-controller',
    load: async () => (await import('./stateful-set/stateful-set.ts')).runStatefulSets,
  },
  {
    name: 'daemonset-controller',
    account: 'daemon-set-controller',
    load: async () => (await import('./daemon-set/daemon-set.ts')).runDaemonSets,
  },
  { name: 'job-controller', account: 'job-controller', load: async () => (await import('./job/job.ts')).runJobs },
  {
    name: 'cronjob-controller',
    account: 'cronjob-controller',
    load: async () => (await import('./cron-job/cron-job.ts')).runCronJobs,
  },
  {
    name: 'clusterrole-aggregation-controller',
    account: 'clusterrole-aggregation-controller',
    load: async () => (await import('./cluster-role/cluster-role-aggregation.ts')).runClusterRoleAggregation,
  },
  {
    name: 'bootstrap-signer-controller',
    account: 'bootstrap-signer',
    load: async () => (await import('./bootstrap/bootstrap-signer.ts')).runBootstrapSigner,
  },
  {
    name: 'disruption-controller',
    account: 'disruption-controller',
    load: async () => (await import('./disruption/disruption.ts')).runDisruption,
  },
  {
    name: 'persistentvolumeclaim-protection-controller',
    account: 'pvc-protection-controller',
    load: async () => (await import('./storage/protection.ts')).runClaimProtection,
  },
  {
    name: 'persistentvolume-protection-controller',
    account: 'pv-protection-controller',
    load: async () => (await import('./storage/protection.ts')).runVolumeProtection,
  },
  {
    name: 'volumeattributesclass-protection-controller',
    account: 'volumeattributesclass-protection-controller',
    load: async () => (await import('./storage/protection.ts')).runAttributesClassProtection,
  },
  {
    name: 'persistentvolume-binder-controller',
    account: 'persistent-volume-binder',
    load: async () => (await import('./storage/volume-binder.ts')).runVolumeBinder,
  },
  {
    name: 'persistentvolume-expander-controller',
    account: 'expand-controller',
    load: async () => (await import('./storage/volume-expander.ts')).runVolumeExpander,
  },
  {
    name: 'persistentvolume-attach-detach-controller',
    account: 'attachdetach-controller',
    load: async () => (await import('./storage/attach-detach.ts')).runAttachDetach,
  },
  {
    name: 'ephemeral-volume-controller',
    account: 'ephemeral-volume-controller',
    load: async () => (await import('./storage/ephemeral-volumes.ts')).runEphemeralVolumes,
  },
  {
    name: 'token-cleaner-controller',
    account: 'token-cleaner',
    load: async () => (await import('./bootstrap/token-cleaner.ts')).runTokenCleaner,
  },
  {
    name: 'ttl-after-finished-controller',
    account: 'ttl-after-finished-controller',
    load: async () => (await import('./job/ttl-after-finished.ts')).runTtlAfterFinished,
  },
  {
    name: 'resourcequota-controller',
    account: 'resourcequota-controller',
    load: async () => (await import('./resource-quota/resource-quota.ts')).runResourceQuota,
  },
  {
    name: 'resourceclaim-controller',
    account: 'resource-claim-controller',
    load: async () => (await import('./resource-claim/resource-claim.ts')).runResourceClaims,
  },
  {
    name: 'endpoints-controller',
    account: 'endpoint-controller',
    load: async () => (await import('./endpoints/endpoints.ts')).runEndpoints,
  },
  {
    name: 'endpointslice-controller',
    account: 'endpointslice-controller',
    load: async () => (await import('./endpoints/endpoint-slices.ts')).runEndpointSlices,
  },
  {
    name: 'endpointslice-mirroring-controller',
    account: 'endpointslicemirroring-controller',
    load: async () => (await import('./endpoints/slice-mirroring.ts')).runSliceMirroring,
  },
  {
    name: 'service-cidr-controller',
    account: 'service-cidrs-controller',
    load: async () => (await import('./service-cidrs/service-cidrs.ts')).runServiceCidrs,
  },
  {
    name: 'ttl-controller',
    account: 'ttl-controller',
    load: async () => (await import('./node/node-ttl.ts')).runNodeTtl,
  },
  {
    name: 'legacy-serviceaccount-token-cleaner-controller',
    account: 'legacy-service-account-token-cleaner',
    load: async () => (await import('./service-account/legacy-token-cleaner.ts')).runLegacyTokenCleaner,
  },
  {
    name: 'node-lifecycle-controller',
    account: 'node-controller',
    load: async () => (await import('./node/node-lifecycle.ts')).runNodeLifecycle,
  },
  {
    name: 'node-ipam-controller',
    account: 'node-controller',
    load: async () => (await import('./node/node-ipam.ts')).runNodeIpam,
  },
  {
    name: 'taint-eviction-controller',
    account: 'node-controller',
    load: async () => (await import('./node/taint-eviction.ts')).runTaintEviction,
  },
  {
    name: 'device-taint-eviction-controller',
    account: 'device-taint-eviction-controller',
    load: async () => (await import('./device-taint-eviction/device-taint-eviction.ts')).runDeviceTaintEviction,
  },
  {
    name: 'pod-garbage-collector-controller',
    account: 'pod-garbage-collector',
    load: async () => (await import('./pod/pod-garbage-collector.ts')).runPodGarbageCollector,
  },
  {
    name: 'certificatesigningrequest-approving-controller',
    account: 'certificate-controller',
    load: async () => (await import('./certificates/certificate-approver.ts')).runCertificateApprover,
  },
  {
    name: 'certificatesigningrequest-cleaner-controller',
    account: 'certificate-controller',
    load: async () => (await import('./certificates/certificate-cleaner.ts')).runCertificateCleaner,
  },
];

/** Returns the rows of the controllers with what each needs. */
export function controllerTable({
  rootCaPem,
  tokenSigner,
  certificateSigner: signer,
  getMetrics = noMetrics,
  volumeAgents,
  loadBalancers,
  kindTypes,
}: ControllerKeys): ControllerRow[] {
  const token = tokenSigner && rootCaPem !== undefined ? { signer: tokenSigner, rootCaPem } : undefined;
  return [
    ...CONTROLLERS,
    ...withPart(token, (part) => ({
      name: 'serviceaccount-token-controller',
      account: '',
      load: async () => (await import('./service-account/token-secrets.ts')).tokenSecrets(part),
    })),
    ...withPart(rootCaPem, (part) => ({
      name: 'root-ca-certificate-publisher-controller',
      account: 'root-ca-cert-publisher',
      load: async () => (await import('./service-account/root-ca.ts')).rootCaPublisher(part),
    })),
    ...withPart(volumeAgents, (part) => ({
      name: 'local-volume-controller',
      account: 'local-volume-provisioner',
      load: async () => (await import('./storage/local-volumes.ts')).localVolumes(part),
    })),
    ...withPart(loadBalancers, (part) => ({
      name: 'service-load-balancer-controller',
      account: 'service-controller',
      load: async () => (await import('./service/service-load-balancers.ts')).serviceLoadBalancers(part),
    })),
    ...withPart(kindTypes, (part) => ({
      name: 'validatingadmissionpolicy-status-controller',
      account: 'validatingadmissionpolicy-status-controller',
      load: async () => (await import('./admission-policy/policy-status.ts')).policyStatuses(part),
    })),
    {
      name: 'horizontal-pod-autoscaler-controller',
      account: 'horizontal-pod-autoscaler',
      load: async () => (await import('./autoscaler/horizontal-autoscaler.ts')).horizontalAutoscaler(getMetrics),
    },
    ...withPart(signer, (part) => ({
      name: 'certificatesigningrequest-signing-controller',
      account: 'certificate-controller',
      load: async () => (await import('./certificates/certificate-signer.ts')).certificateSigner(part),
    })),
  ];
}
