/**
 * Lists the names in `--controllers`, and selects controllers by such a list. This file imports no controller, because the flag
 * table imports it.
 */
import { quoteText } from '../../api/meta/quote.ts';

/** The names in the order of the table of controllers. */
const CONTROLLER_NAMES = [
  'serviceaccount-controller',
  'serviceaccount-token-controller',
  'root-ca-certificate-publisher-controller',
  'namespace-controller',
  'garbage-collector-controller',
  'replicaset-controller',
  'replicationcontroller-controller',
  'deployment-controller',
  'statefulset-controller',
  'daemonset-controller',
  'job-controller',
  'cronjob-controller',
  'clusterrole-aggregation-controller',
  'bootstrap-signer-controller',
  'disruption-controller',
  'persistentvolumeclaim-protection-controller',
  'persistentvolume-protection-controller',
  'volumeattributesclass-protection-controller',
  'persistentvolume-binder-controller',
  'persistentvolume-expander-controller',
  'persistentvolume-attach-detach-controller',
  'ephemeral-volume-controller',
  'local-volume-controller',
  'horizontal-pod-autoscaler-controller',
  'token-cleaner-controller',
  'ttl-after-finished-controller',
  'resourcequota-controller',
  'resourceclaim-controller',
  'endpoints-controller',
  'endpointslice-controller',
  'endpointslice-mirroring-controller',
  'service-cidr-controller',
  'service-load-balancer-controller',
  'ttl-controller',
  'legacy-serviceaccount-token-cleaner-controller',
  'node-lifecycle-controller',
  'node-ipam-controller',
  'taint-eviction-controller',
  'device-taint-eviction-controller',
  'pod-garbage-collector-controller',
  'certificatesigningrequest-approving-controller',
  'certificatesigningrequest-signing-controller',
  'certificatesigningrequest-cleaner-controller',
  'validatingadmissionpolicy-status-controller',
] as const;

/** A name in `--controllers`. */
export type ControllerName = (typeof CONTROLLER_NAMES)[number];

/** Names that `--controllers` took before 1.28 and still takes. */
const ALIASES: ReadonlyMap<string, ControllerName> = new Map(
  Object.entries({
    serviceaccount: 'serviceaccount-controller',
    'serviceaccount-token': 'serviceaccount-token-controller',
    'root-ca-cert-publisher': 'root-ca-certificate-publisher-controller',
    namespace: 'namespace-controller',
    garbagecollector: 'garbage-collector-controller',
    replicaset: 'replicaset-controller',
    replicationcontroller: 'replicationcontroller-controller',
    deployment: 'deployment-controller',
    statefulset: 'statefulset-controller',
    daemonset: 'daemonset-controller',
    job: 'job-controller',
    cronjob: 'cronjob-controller',
    endpoint: 'endpoints-controller',
    endpointslice: 'endpointslice-controller',
    endpointslicemirroring: 'endpointslice-mirroring-controller',
    nodelifecycle: 'node-lifecycle-controller',
    nodeipam: 'node-ipam-controller',
    podgc: 'pod-garbage-collector-controller',
    csrapproving: 'certificatesigningrequest-approving-controller',
    csrsigning: 'certificatesigningrequest-signing-controller',
    csrcleaner: 'certificatesigningrequest-cleaner-controller',
    disruption: 'disruption-controller',
    resourcequota: 'resourcequota-controller',
    'resource-claim-controller': 'resourceclaim-controller',
    ttl: 'ttl-controller',
    'legacy-service-account-token-cleaner': 'legacy-serviceaccount-token-cleaner-controller',
    'ttl-after-finished': 'ttl-after-finished-controller',
    bootstrapsigner: 'bootstrap-signer-controller',
    tokencleaner: 'token-cleaner-controller',
    'clusterrole-aggregation': 'clusterrole-aggregation-controller',
    'pvc-protection': 'persistentvolumeclaim-protection-controller',
    'pv-protection': 'persistentvolume-protection-controller',
    'persistentvolume-binder': 'persistentvolume-binder-controller',
    'persistentvolume-expander': 'persistentvolume-expander-controller',
    attachdetach: 'persistentvolume-attach-detach-controller',
    'ephemeral-volume': 'ephemeral-volume-controller',
    horizontalpodautoscaling: 'horizontal-pod-autoscaler-controller',
  }),
);

/** Controllers of kube-controller-manager that do not exist here; a list may disable them. */
const ABSENT: ReadonlySet<string> = new Set([
  'cloud-node-lifecycle-controller',
  'kube-apiserver-serving-clustertrustbundle-publisher-controller',
  'node-route-controller',
  'podcertificaterequest-cleaner-controller',
  'selinux-warning-controller',
  'service-lb-controller',
  'storage-version-migrator-controller',
  'storageversion-garbage-collector-controller',
  // The names below are those before 1.28.
  'cloud-node-lifecycle',
  'route',
  'service',
  'storage-version-gc',
]);

const validNames: ReadonlySet<string> = new Set([...CONTROLLER_NAMES, ...ALIASES.keys()]);

/** Returns why the list is invalid; `undefined` if it is valid. */
export function checkControllers(selection: readonly string[]): string | undefined {
  for (const entry of selection) {
    const name = entry.replace(/^-/, '');
    // kube-controller-manager refuses `-*`, but scripts write it for none, and it cannot mean anything else.
    if (name === '*' || validNames.has(name) || (entry !== name && ABSENT.has(name))) continue;
    return `${quoteText(name)} is not in the list of known controllers`;
  }
  return undefined;
}

/** Whether a list enables any controller. */
export function enablesAny(selection: readonly string[]): boolean {
  return CONTROLLER_NAMES.some((name) => isEnabled({ name }, selection));
}

/** Whether a list enables the controller. A name in the list has precedence over `*`. */
export function isEnabled(
  row: { readonly name: ControllerName; readonly offByDefault?: boolean },
  selection: readonly string[],
): boolean {
  const nameOf = (entry: string): string => ALIASES.get(entry) ?? entry;
  let star = false;
  for (const entry of selection) {
    if (entry === '*') star = true;
    else if (nameOf(entry) === row.name) return true;
    else if (entry.startsWith('-') && nameOf(entry.slice(1)) === row.name) return false;
  }
  return star && row.offByDefault !== true;
}
