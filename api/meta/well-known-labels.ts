/**
 * Names the keys of labels, annotations and taints and the names of finalizers of Kubernetes that several parts of the program
 * read or write (https://kubernetes.io/docs/reference/labels-annotations-taints/).
 */

/** Labels of nodes. */
export const HOSTNAME_LABEL = 'kubernetes.io/hostname';
export const OS_LABEL = 'kubernetes.io/os';
export const ARCH_LABEL = 'kubernetes.io/arch';
export const ZONE_LABEL = 'topology.kubernetes.io/zone';
export const REGION_LABEL = 'topology.kubernetes.io/region';
export const BETA_OS_LABEL = 'beta.kubernetes.io/os';
export const BETA_ARCH_LABEL = 'beta.kubernetes.io/arch';
export const BETA_ZONE_LABEL = 'failure-domain.beta.kubernetes.io/zone';
export const BETA_REGION_LABEL = 'failure-domain.beta.kubernetes.io/region';

/** Maps the deprecated labels of nodes to the labels that replaced them. */
export const STABLE_NODE_LABELS: ReadonlyMap<string, string> = new Map([
  [BETA_OS_LABEL, OS_LABEL],
  [BETA_ARCH_LABEL, ARCH_LABEL],
  [BETA_ZONE_LABEL, ZONE_LABEL],
  [BETA_REGION_LABEL, REGION_LABEL],
  ['beta.kubernetes.io/instance-type', 'node.kubernetes.io/instance-type'],
]);

/** The labels of `kubernetes.io` that a node agent may set on its own node, besides those under reserved prefixes. */
export const NODE_LABELS: readonly string[] = [HOSTNAME_LABEL, ...[...STABLE_NODE_LABELS].flat()];

/** The label of endpoint slices with the name of their service. */
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';

/** The label of a Secret with the day on which its token was used last. */
export const TOKEN_LAST_USED_LABEL = 'kubernetes.io/legacy-token-last-used';
/** The label of a Secret with the day since which its unused token is invalid. */
export const TOKEN_INVALID_SINCE_LABEL = 'kubernetes.io/legacy-token-invalid-since';

/** Taints of nodes. */
export const NOT_READY_TAINT = 'node.kubernetes.io/not-ready';
export const UNREACHABLE_TAINT = 'node.kubernetes.io/unreachable';
export const UNSCHEDULABLE_TAINT = 'node.kubernetes.io/unschedulable';
export const OUT_OF_SERVICE_TAINT = 'node.kubernetes.io/out-of-service';
export const MEMORY_PRESSURE_TAINT = 'node.kubernetes.io/memory-pressure';
export const DISK_PRESSURE_TAINT = 'node.kubernetes.io/disk-pressure';
export const PID_PRESSURE_TAINT = 'node.kubernetes.io/pid-pressure';
export const NETWORK_UNAVAILABLE_TAINT = 'node.kubernetes.io/network-unavailable';

/** The annotation of a claim with the node that the scheduler chose for its pod. */
export const SELECTED_NODE_ANNOTATION = 'volume.kubernetes.io/selected-node';
/** The annotation of claims and volumes that `storageClassName` replaced. */
export const BETA_STORAGE_CLASS_ANNOTATION = 'volume.beta.kubernetes.io/storage-class';
/** The annotation that makes a storage class the default one of the cluster. */
export const DEFAULT_CLASS_ANNOTATION = 'storageclass.kubernetes.io/is-default-class';
/** The annotations that make a storage class the default one: the present one and the deprecated one. */
export const DEFAULT_CLASS_ANNOTATIONS: readonly string[] = [
  DEFAULT_CLASS_ANNOTATION,
  'storageclass.beta.kubernetes.io/is-default-class',
];
/** Marks slices and endpoints of a service that has no address of its own. */
export const HEADLESS_LABEL = 'service.kubernetes.io/headless';
/** Marks a node whose agent leaves it to the attach/detach controller to attach volumes. */
export const CONTROLLER_ATTACHES_ANNOTATION = 'volumes.kubernetes.io/controller-managed-attach-detach';
/** The domains whose labels a node may set on itself. */
export const AGENT_LABEL_DOMAINS: readonly string[] = ['kubelet.kubernetes.io', 'node.kubernetes.io'];
/** Allows a namespace claims with admin access to devices. */
export const ADMIN_ACCESS_LABEL = 'resource.kubernetes.io/admin-access';
/** What a client applied last without server-side apply. */
export const LAST_APPLIED_ANNOTATION = 'kubectl.kubernetes.io/last-applied-configuration';
/** The provisioner that created a volume. */
export const PROVISIONED_BY_ANNOTATION = 'pv.kubernetes.io/provisioned-by';
/** Marks a claim whose binding to a volume is complete. */
export const BIND_COMPLETED_ANNOTATION = 'pv.kubernetes.io/bind-completed';
/** The class of an ingress, in the form before `spec.ingressClassName`. */
export const INGRESS_CLASS_ANNOTATION = 'kubernetes.io/ingress.class';
/** Lets pods of a service account mount only the secrets that the account lists. */
export const ENFORCE_MOUNTABLE_ANNOTATION = 'kubernetes.io/enforce-mountable-secrets';
/** Keeps an object until its dependents are deleted. */
export const FOREGROUND_FINALIZER = 'foregroundDeletion';
/** Keeps an object until its dependents no longer refer to it. */
export const ORPHAN_FINALIZER = 'orphan';
