/** Defines the rules of the roles for people that every cluster has: view, edit and admin, as in Kubernetes 1.36. */
import { READ, READ_WRITE, rule, WRITE } from './bootstrap-rules.ts';
import type { PolicyRule } from './rbac-rules.ts';

const WORKLOADS =
  'daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale';

/** Allows reading most objects of a namespace, without secrets. */
export const VIEW: readonly PolicyRule[] = [
  rule(
    READ,
    '',
    `configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers
     replicationcontrollers/scale serviceaccounts services services/status`,
  ),
  rule(
    READ,
    '',
    `bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status
     resourcequotas resourcequotas/status`,
  ),
  rule(READ, '', 'namespaces'),
  rule(READ, ',events.k8s.io', 'events'),
  rule(READ, 'discovery.k8s.io', 'endpointslices'),
  rule(
    READ,
    'apps',
    `controllerrevisions ${WORKLOADS} daemonsets/status deployments/status replicasets/status statefulsets/status`,
  ),
  rule(READ, 'autoscaling', 'horizontalpodautoscalers horizontalpodautoscalers/status'),
  rule(READ, 'batch', 'cronjobs cronjobs/status jobs jobs/status'),
  rule(
    READ,
    'extensions',
    `daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status
     networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale`,
  ),
  rule(READ, 'policy', 'poddisruptionbudgets poddisruptionbudgets/status'),
  rule(READ, 'networking.k8s.io', 'ingresses ingresses/status networkpolicies'),
  rule(READ, 'resource.k8s.io', 'resourceclaims resourceclaims/status resourceclaimtemplates'),
];

/**
 * Allows what `edit` has beyond `view`: changing most objects, reading secrets, running commands in pods, and acting as the
 * service accounts of the namespace.
 */
export const EDIT: readonly PolicyRule[] = [
  rule(READ, '', 'pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy'),
  rule('impersonate', '', 'serviceaccounts'),
  rule(WRITE, '', 'pods pods/attach pods/exec pods/portforward pods/proxy'),
  rule('create', '', 'pods/eviction'),
  rule(
    WRITE,
    '',
    `configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets
     serviceaccounts services services/proxy`,
  ),
  rule('create', '', 'serviceaccounts/token'),
  rule(WRITE, ',events.k8s.io', 'events'),
  rule(WRITE, 'apps', `${WORKLOADS} deployments/rollback`),
  rule(WRITE, 'autoscaling', 'horizontalpodautoscalers'),
  rule(WRITE, 'batch', 'cronjobs jobs'),
  rule(
    WRITE,
    'extensions',
    `daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets
     replicasets/scale replicationcontrollers/scale`,
  ),
  rule(WRITE, 'policy', 'poddisruptionbudgets'),
  rule(WRITE, 'networking.k8s.io', 'ingresses networkpolicies'),
  rule(READ_WRITE, 'coordination.k8s.io', 'leases'),
  rule(WRITE, 'resource.k8s.io', 'resourceclaims resourceclaimtemplates'),
];

/** Allows what `admin` has beyond `edit`: the roles and bindings of a namespace, and access reviews in it. */
export const ADMIN: readonly PolicyRule[] = [
  rule('create', 'authorization.k8s.io', 'localsubjectaccessreviews'),
  rule(READ_WRITE, 'rbac.authorization.k8s.io', 'rolebindings roles'),
];
