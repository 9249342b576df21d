/**
 * The table of controllers: the name of each, its service account, the function that runs it, and whether it is on by default.
 */
import { newStatusError } from '../../api/meta/status-error.ts';
import { runBootstrapSigner } from './bootstrap/bootstrap-signer.ts';
import { runTokenCleaner } from './bootstrap/token-cleaner.ts';
import { horizontalAutoscaler } from './autoscaler/horizontal-autoscaler.ts';
import type { RawGet } from './autoscaler/metrics-client.ts';
import { runCertificateApprover } from './certificates/certificate-approver.ts';
import { runCertificateCleaner } from './certificates/certificate-cleaner.ts';
import { certificateSigner, type CertificateSigner } from './certificates/certificate-signer.ts';
import { runClusterRoleAggregation } from './cluster-role/cluster-role-aggregation.ts';
import type { RunController } from './controller.ts';
import type { ControllerName } from './controller-names.ts';
import { runCronJobs } from './cron-job/cron-job.ts';
import { runDaemonSets } from './daemon-set/daemon-set.ts';
import { runDeployments } from './deployment/deployment.ts';
import { runDisruption } from './disruption/disruption.ts';
import { runEndpointSlices } from './endpoints/endpoint-slices.ts';
import { runSliceMirroring } from './endpoints/slice-mirroring.ts';
import { runEndpoints } from './endpoints/endpoints.ts';
import { runGarbageCollector } from './garbage-collector/garbage-collector.ts';
import { runJobs } from './job/job.ts';
import { runTtlAfterFinished } from './job/ttl-after-finished.ts';
import { runNamespaces } from './namespace/namespace.ts';
import { runNodeIpam } from './node/node-ipam.ts';
import { runNodeLifecycle } from './node/node-lifecycle.ts';
import { runNodeTtl } from './node/node-ttl.ts';
import { runTaintEviction } from './node/taint-eviction.ts';
import { runPodGarbageCollector } from './pod/pod-garbage-collector.ts';
import { runResourceClaims } from './resource-claim/resource-claim.ts';
import { runResourceQuota } from './resource-quota/resource-quota.ts';
import { runReplicaSets, runReplicationControllers } from './replica-set/replica-set.ts';
import { rootCaPublisher } from './service-account/root-ca.ts';
import { runLegacyTokenCleaner } from './service-account/legacy-token-cleaner.ts';
import { runServiceAccounts } from './service-account/service-accounts.ts';
import { tokenSecrets, type LegacyTokenSigner } from './service-account/token-secrets.ts';
import { serviceLoadBalancers, type ServiceLoadBalancersOptions } from './service/service-load-balancers.ts';
import { runServiceCidrs } from './service-cidrs/service-cidrs.ts';
import { runAttachDetach } from './storage/attach-detach.ts';
import { localVolumes, type VolumeAgents } from './storage/local-volumes.ts';
import { runEphemeralVolumes } from './storage/ephemeral-volumes.ts';
import { runAttributesClassProtection, runClaimProtection, runVolumeProtection } from './storage/protection.ts';
import { runVolumeBinder } from './storage/volume-binder.ts';
import { runVolumeExpander } from './storage/volume-expander.ts';
import { runStatefulSets } from './stateful-set/stateful-set.ts';

/** Parts that some controllers need beside the API; a controller without its part does not run. */
export interface ControllerKeys {
  readonly rootCaPem?: string;
  readonly tokenSigner?: LegacyTokenSigner;
  readonly certificateSigner?: CertificateSigner;
  /**
   * Sends a GET to a path of the API as the autoscaler's service account; adapters serve custom and external metrics there. If
   * it is absent, there are no such metrics.
   */
  readonly getMetrics?: RawGet;
  /** Local volumes are made and removed by the agents. */
  readonly volumeAgents?: VolumeAgents;
  /** The nodes answer at their addresses for services of type LoadBalancer. */
  readonly loadBalancers?: ServiceLoadBalancersOptions;
}

export interface ControllerRow {
  readonly name: ControllerName;
  /** The service account in kube-system; '' for the user of the controller manager. */
  readonly account: string;
  readonly run: RunController;
  readonly offByDefault?: boolean;
}

/** Rejects like the API if no metrics are served. */
const noMetrics: RawGet = () =>
  Promise.reject(newStatusError(404, 'NotFound', 'the server could not find the requested resource'));

const present = (row: ControllerRow | undefined): readonly ControllerRow[] => (row === undefined ? [] : [row]);

/** The controllers that need nothing but the API. */
const CONTROLLERS: readonly ControllerRow[] = [
  { name: 'serviceaccount-controller', account: 'service-account-controller', run: runServiceAccounts },
  { name: 'namespace-controller', account: 'namespace-controller', run: runNamespaces },
  { name: 'garbage-collector-controller', account: 'generic-garbage-collector', run: runGarbageCollector },
  { name: 'replicaset-controller', account: 'replicaset-controller', run: runReplicaSets },
  { name: 'replicationcontroller-controller', account: 'replication-controller', run: runReplicationControllers },
  { name: 'deployment-controller', account: 'deployment-controller', run: runDeployments },
  { name: 'statefulset-controller', account: 'statefulset-controller', run: runStatefulSets },
  { name: 'daemonset-controller', account: 'daemon-set-controller', run: runDaemonSets },
  { name: 'job-controller', account: 'job-controller', run: runJobs },
  { name: 'cronjob-controller', account: 'cronjob-controller', run: runCronJobs },
  {
    name: 'clusterrole-aggregation-controller',
    account: 'clusterrole-aggregation-controller',
    run: runClusterRoleAggregation,
  },
  { name: 'bootstrap-signer-controller', account: 'bootstrap-signer', run: runBootstrapSigner },
  { name: 'disruption-controller', account: 'disruption-controller', run: runDisruption },
  {
    name: 'persistentvolumeclaim-protection-controller',
    account: 'pvc-protection-controller',
    run: runClaimProtection,
  },
  { name: 'persistentvolume-protection-controller', account: 'pv-protection-controller', run: runVolumeProtection },
  {
    name: 'volumeattributesclass-protection-controller',
    account: 'volumeattributesclass-protection-controller',
    run: runAttributesClassProtection,
  },
  { name: 'persistentvolume-binder-controller', account: 'persistent-volume-binder', run: runVolumeBinder },
  { name: 'persistentvolume-expander-controller', account: 'expand-controller', run: runVolumeExpander },
  {
    name: 'persistentvolume-attach-detach-controller',
    account: 'attachdetach-controller',
    run: runAttachDetach,
  },
  { name: 'ephemeral-volume-controller', account: 'ephemeral-volume-controller', run: runEphemeralVolumes },
  { name: 'token-cleaner-controller', account: 'token-cleaner', run: runTokenCleaner },
  { name: 'ttl-after-finished-controller', account: 'ttl-after-finished-controller', run: runTtlAfterFinished },
  { name: 'resourcequota-controller', account: 'resourcequota-controller', run: runResourceQuota },
  { name: 'resourceclaim-controller', account: 'resource-claim-controller', run: runResourceClaims },
  { name: 'endpoints-controller', account: 'endpoint-controller', run: runEndpoints },
  { name: 'endpointslice-controller', account: 'endpointslice-controller', run: runEndpointSlices },
  {
    name: 'endpointslice-mirroring-controller',
    account: 'endpointslicemirroring-controller',
    run: runSliceMirroring,
  },
  { name: 'service-cidr-controller', account: 'service-cidrs-controller', run: runServiceCidrs },
  { name: 'ttl-controller', account: 'ttl-controller', run: runNodeTtl },
  {
    name: 'legacy-serviceaccount-token-cleaner-controller',
    account: 'legacy-service-account-token-cleaner',
    run: runLegacyTokenCleaner,
  },
  { name: 'node-lifecycle-controller', account: 'node-controller', run: runNodeLifecycle },
  { name: 'node-ipam-controller', account: 'node-controller', run: runNodeIpam },
  { name: 'taint-eviction-controller', account: 'node-controller', run: runTaintEviction },
  { name: 'pod-garbage-collector-controller', account: 'pod-garbage-collector', run: runPodGarbageCollector },
  {
    name: 'certificatesigningrequest-approving-controller',
    account: 'certificate-controller',
    run: runCertificateApprover,
  },
  {
    name: 'certificatesigningrequest-cleaner-controller',
    account: 'certificate-controller',
    run: runCertificateCleaner,
  },
];

/** The order of the rows has no meaning, because all controllers run at the same time. */
export function controllerTable({
  rootCaPem,
  tokenSigner,
  certificateSigner: signer,
  getMetrics = noMetrics,
  volumeAgents,
  loadBalancers,
}: ControllerKeys): ControllerRow[] {
  return [
    ...CONTROLLERS,
    ...present(
      tokenSigner === undefined || rootCaPem === undefined
        ? undefined
        : {
            name: 'serviceaccount-token-controller',
            account: '',
            run: tokenSecrets({ signer: tokenSigner, rootCaPem }),
          },
    ),
    ...present(
      rootCaPem === undefined
        ? undefined
        : {
            name: 'root-ca-certificate-publisher-controller',
            account: 'root-ca-cert-publisher',
            run: rootCaPublisher(rootCaPem),
          },
    ),
    ...present(
      volumeAgents === undefined
        ? undefined
        : {
            name: 'local-volume-controller',
            account: 'local-volume-provisioner',
            run: localVolumes(volumeAgents),
          },
    ),
    ...present(
      loadBalancers === undefined
        ? undefined
        : {
            name: 'service-load-balancer-controller',
            account: 'service-controller',
            run: serviceLoadBalancers(loadBalancers),
          },
    ),
    {
      name: 'horizontal-pod-autoscaler-controller',
      account: 'horizontal-pod-autoscaler',
      run: horizontalAutoscaler(getMetrics),
    },
    ...present(
      signer === undefined
        ? undefined
        : {
            name: 'certificatesigningrequest-signing-controller',
            account: 'certificate-controller',
            run: certificateSigner(signer),
          },
    ),
  ];
}
