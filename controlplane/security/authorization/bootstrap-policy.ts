/** Defines the roles and bindings that every cluster has, with the names and rules of Kubernetes 1.36. */
import {
  eventsRule,
  READ,
  READ_UPDATE,
  rule,
  urlRule,
  type BootstrapBinding,
  type BootstrapRole,
  type BootstrapSubject,
} from './bootstrap-rules.ts';
import { ADMIN, EDIT, VIEW } from './bootstrap-user-roles.ts';
import type { PolicyRule } from './rbac-rules.ts';
import { AUTHENTICATED_GROUP, MASTERS_GROUP, UNAUTHENTICATED_GROUP } from '../../../api/meta/system-users.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE, SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The permissions of kubelets without the Node authorizer. The default binding has no subjects. */
const NODE: readonly PolicyRule[] = [
  rule('create', 'authentication.k8s.io', 'tokenreviews'),
  rule('create', 'authorization.k8s.io', 'localsubjectaccessreviews subjectaccessreviews'),
  rule(READ, '', 'services'),
  rule('create get list watch', '', 'nodes'),
  rule('patch update', '', 'nodes/status'),
  rule('patch update', '', 'nodes'),
  eventsRule(),
  rule(READ, '', 'pods'),
  rule('create delete', '', 'pods'),
  rule('patch update', '', 'pods/status'),
  rule('create', '', 'pods/eviction'),
  rule(READ, '', 'configmaps secrets'),
  rule('get', '', 'persistentvolumeclaims persistentvolumes'),
  rule('get', '', 'endpoints'),
  rule('create get list watch', 'certificates.k8s.io', 'certificatesigningrequests'),
  rule('create delete get patch update', 'coordination.k8s.io', 'leases'),
  rule('get', 'storage.k8s.io', 'volumeattachments'),
  rule('create', '', 'serviceaccounts/token'),
  rule('get patch update', '', 'persistentvolumeclaims/status'),
  rule(READ, 'storage.k8s.io', 'csidrivers'),
  rule('create delete get patch update', 'storage.k8s.io', 'csinodes'),
  rule(READ, 'node.k8s.io', 'runtimeclasses'),
  rule('get', 'resource.k8s.io', 'resourceclaims'),
  rule('deletecollection', 'resource.k8s.io', 'resourceslices'),
  rule('get', '', 'serviceaccounts'),
];

const URLS = {
  health: '/healthz /livez /readyz /version /version/',
  discovery: '/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/',
  monitoring: '/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz',
  issuer: '/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/',
};

const AGGREGATE = 'rbac.authorization.k8s.io/aggregate-to-';
const CSR = 'certificates.k8s.io';

/** All default ClusterRoles but those of the controllers. */
export const CLUSTER_ROLES: readonly BootstrapRole[] = [
  { name: 'cluster-admin', rules: [rule('*', '*', '*'), urlRule('*', '*')] },
  { name: 'system:discovery', rules: [urlRule('get', URLS.discovery)] },
  { name: 'system:monitoring', rules: [urlRule('get', URLS.monitoring), rule('get', '', 'nodes/metrics')] },
  {
    name: 'system:basic-user',
    rules: [
      rule('create', 'authorization.k8s.io', 'selfsubjectaccessreviews selfsubjectrulesreviews'),
      rule('create', 'authentication.k8s.io', 'selfsubjectreviews'),
    ],
  },
  { name: 'system:public-info-viewer', rules: [urlRule('get', URLS.health)] },
  { name: 'admin', aggregates: { [`${AGGREGATE}admin`]: 'true' } },
  { name: 'edit', labels: { [`${AGGREGATE}admin`]: 'true' }, aggregates: { [`${AGGREGATE}edit`]: 'true' } },
  { name: 'view', labels: { [`${AGGREGATE}edit`]: 'true' }, aggregates: { [`${AGGREGATE}view`]: 'true' } },
  { name: 'system:aggregate-to-admin', labels: { [`${AGGREGATE}admin`]: 'true' }, rules: ADMIN },
  { name: 'system:aggregate-to-edit', labels: { [`${AGGREGATE}edit`]: 'true' }, rules: EDIT },
  { name: 'system:aggregate-to-view', labels: { [`${AGGREGATE}view`]: 'true' }, rules: VIEW },
  {
    name: 'system:heapster',
    rules: [rule(READ, '', 'events namespaces nodes pods'), rule(READ, 'extensions', 'deployments')],
  },
  { name: 'system:node', rules: NODE },
  {
    name: 'system:node-problem-detector',
    rules: [rule('get', '', 'nodes'), rule('patch', '', 'nodes/status'), eventsRule()],
  },
  {
    name: 'system:kubelet-api-admin',
    rules: [
      rule(READ, '', 'nodes'),
      rule('proxy', '', 'nodes'),
      rule('*', '', 'nodes/log nodes/metrics nodes/proxy nodes/stats'),
      rule('*', '', 'nodes/configz nodes/healthz nodes/pods'),
    ],
  },
  {
    name: 'system:node-bootstrapper',
    rules: [rule('create get list watch', CSR, 'certificatesigningrequests')],
  },
  {
    name: 'system:auth-delegator',
    rules: [
      rule('create', 'authentication.k8s.io', 'tokenreviews'),
      rule('create', 'authorization.k8s.io', 'subjectaccessreviews'),
    ],
  },
  {
    name: 'system:kube-aggregator',
    rules: [rule(READ, '', 'endpoints services')],
  },
  {
    name: 'system:kube-controller-manager',
    rules: [
      eventsRule(),
      rule('create', 'coordination.k8s.io', 'leases'),
      rule('get update', 'coordination.k8s.io', 'leases', 'kube-controller-manager'),
      rule('create', '', 'secrets serviceaccounts'),
      rule('delete', '', 'secrets'),
      rule('get', '', 'configmaps namespaces secrets serviceaccounts'),
      rule('update', '', 'secrets serviceaccounts'),
      rule('create', 'authentication.k8s.io', 'tokenreviews'),
      rule('create', 'authorization.k8s.io', 'subjectaccessreviews'),
      rule('list watch', '*', '*'),
      rule('create', '', 'serviceaccounts/token'),
    ],
  },
  { name: 'system:kube-dns', rules: [rule('list watch', '', 'endpoints services')] },
  {
    name: 'system:persistent-volume-provisioner',
    rules: [
      rule('create delete get list watch', '', 'persistentvolumes'),
      rule('get list update watch', '', 'persistentvolumeclaims'),
      rule(READ, 'storage.k8s.io', 'storageclasses'),
      rule('watch', '', 'events'),
      eventsRule(),
    ],
  },
  {
    name: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient',
    rules: [rule('create', CSR, 'certificatesigningrequests/nodeclient')],
  },
  {
    name: 'system:certificates.k8s.io:certificatesigningrequests:selfnodeclient',
    rules: [rule('create', CSR, 'certificatesigningrequests/selfnodeclient')],
  },
  {
    name: 'system:volume-scheduler',
    rules: [
      rule(READ_UPDATE, '', 'persistentvolumes'),
      rule(READ, 'storage.k8s.io', 'storageclasses'),
      rule(READ_UPDATE, '', 'persistentvolumeclaims'),
    ],
  },
  ...(
    [
      ['legacy-unknown-approver', 'legacy-unknown'],
      ['kubelet-serving-approver', 'kubelet-serving'],
      ['kube-apiserver-client-approver', 'kube-apiserver-client'],
      ['kube-apiserver-client-kubelet-approver', 'kube-apiserver-client-kubelet'],
    ] as const
  ).map(([name, signer]) => ({
    name: `system:${CSR}:${name}`,
    rules: [rule('approve', CSR, 'signers', `kubernetes.io/${signer}`)],
  })),
  { name: 'system:service-account-issuer-discovery', rules: [urlRule('get', URLS.issuer)] },
  {
    name: 'system:node-proxier',
    rules: [
      rule('list watch', '', 'endpoints services'),
      rule(READ, '', 'nodes'),
      eventsRule(),
      rule('list watch', 'networking.k8s.io', 'servicecidrs'),
      rule('list watch', 'discovery.k8s.io', 'endpointslices'),
    ],
  },
  {
    name: 'system:kube-scheduler',
    rules: [
      eventsRule(),
      rule('create', 'coordination.k8s.io', 'leases'),
      rule('get list update watch', 'coordination.k8s.io', 'leases', 'kube-scheduler'),
      rule('create delete deletecollection get list patch update watch', 'coordination.k8s.io', 'leasecandidates'),
      rule(READ, '', 'nodes'),
      rule('delete get list watch', '', 'pods'),
      rule('create', '', 'bindings pods/binding'),
      rule('patch update', '', 'pods/status'),
      rule(READ, '', 'replicationcontrollers services'),
      rule(READ, 'apps,extensions', 'replicasets'),
      rule(READ, 'apps', 'statefulsets'),
      rule(READ, 'policy', 'poddisruptionbudgets'),
      rule(READ, '', 'persistentvolumeclaims persistentvolumes'),
      rule('create', 'authentication.k8s.io', 'tokenreviews'),
      rule('create', 'authorization.k8s.io', 'subjectaccessreviews'),
      rule(READ, 'storage.k8s.io', 'csinodes'),
      rule(READ, 'storage.k8s.io', 'volumeattachments'),
      rule(READ, '', 'namespaces'),
      rule(READ, 'storage.k8s.io', 'csidrivers'),
      rule(READ, 'storage.k8s.io', 'csistoragecapacities'),
      rule(READ, 'resource.k8s.io', 'deviceclasses'),
      rule('get list patch update watch', 'resource.k8s.io', 'resourceclaims'),
      rule('get list patch update watch', 'resource.k8s.io', 'resourceclaims/status'),
      rule('update', '', 'pods/finalizers'),
      rule(READ, 'resource.k8s.io', 'resourceslices'),
      rule('create delete', 'resource.k8s.io', 'resourceclaims'),
      rule('patch update', 'resource.k8s.io', 'resourceclaims/binding'),
    ],
  },
];

const group = (name: string): BootstrapSubject => ({ kind: 'Group', name });
const user = (name: string): BootstrapSubject => ({ kind: 'User', name });

/** All default ClusterRoleBindings but those of the controllers. */
export const CLUSTER_ROLE_BINDINGS: readonly BootstrapBinding[] = [
  { name: 'cluster-admin', role: 'cluster-admin', subjects: [group(MASTERS_GROUP)] },
  { name: 'system:monitoring', role: 'system:monitoring', subjects: [group('system:monitoring')] },
  { name: 'system:discovery', role: 'system:discovery', subjects: [group(AUTHENTICATED_GROUP)] },
  { name: 'system:basic-user', role: 'system:basic-user', subjects: [group(AUTHENTICATED_GROUP)] },
  {
    name: 'system:public-info-viewer',
    role: 'system:public-info-viewer',
    subjects: [group(AUTHENTICATED_GROUP), group(UNAUTHENTICATED_GROUP)],
  },
  { name: 'system:node-proxier', role: 'system:node-proxier', subjects: [user('system:kube-proxy')] },
  {
    name: 'system:kube-controller-manager',
    role: 'system:kube-controller-manager',
    subjects: [user('system:kube-controller-manager')],
  },
  {
    name: 'system:kube-dns',
    role: 'system:kube-dns',
    subjects: [{ kind: 'ServiceAccount', name: 'kube-dns', namespace: SYSTEM_NAMESPACE }],
  },
  { name: 'system:kube-scheduler', role: 'system:kube-scheduler', subjects: [user('system:kube-scheduler')] },
  { name: 'system:volume-scheduler', role: 'system:volume-scheduler', subjects: [user('system:kube-scheduler')] },
  {
    name: 'system:service-account-issuer-discovery',
    role: 'system:service-account-issuer-discovery',
    subjects: [group('system:serviceaccounts')],
  },
  { name: 'system:node', role: 'system:node', subjects: [] },
];

const LEADER_LEASES: readonly PolicyRule[] = [
  rule('create get list update watch', 'coordination.k8s.io', 'leases'),
  rule('create get list update watch', 'coordination.k8s.io', 'leasecandidates'),
];

/** The default Roles, all of them in namespaces of the system. */
export const NAMESPACED_ROLES: readonly BootstrapRole[] = [
  {
    name: 'extension-apiserver-authentication-reader',
    namespace: SYSTEM_NAMESPACE,
    rules: [rule(READ, '', 'configmaps', 'extension-apiserver-authentication')],
  },
  { name: 'system:controller:bootstrap-signer', namespace: SYSTEM_NAMESPACE, rules: [rule(READ, '', 'secrets')] },
  {
    name: 'system:controller:cloud-provider',
    namespace: SYSTEM_NAMESPACE,
    rules: [rule('create get list watch', '', 'configmaps')],
  },
  {
    name: 'system:controller:token-cleaner',
    namespace: SYSTEM_NAMESPACE,
    rules: [rule('delete get list watch', '', 'secrets'), eventsRule()],
  },
  { name: 'system::leader-locking-kube-controller-manager', namespace: SYSTEM_NAMESPACE, rules: LEADER_LEASES },
  { name: 'system::leader-locking-kube-scheduler', namespace: SYSTEM_NAMESPACE, rules: LEADER_LEASES },
  {
    name: 'system:controller:bootstrap-signer',
    namespace: PUBLIC_NAMESPACE,
    rules: [rule(READ, '', 'configmaps'), rule('update', '', 'configmaps', CLUSTER_INFO), eventsRule()],
  },
];

const systemAccount = (name: string): BootstrapSubject => ({
  kind: 'ServiceAccount',
  name,
  namespace: SYSTEM_NAMESPACE,
});

/** The default RoleBindings, in the namespaces of their Roles. */
export const NAMESPACED_ROLE_BINDINGS: readonly BootstrapBinding[] = [
  {
    name: 'system::leader-locking-kube-controller-manager',
    namespace: SYSTEM_NAMESPACE,
    role: 'system::leader-locking-kube-controller-manager',
    subjects: [user('system:kube-controller-manager'), systemAccount('kube-controller-manager')],
  },
  {
    name: 'system::leader-locking-kube-scheduler',
    namespace: SYSTEM_NAMESPACE,
    role: 'system::leader-locking-kube-scheduler',
    subjects: [user('system:kube-scheduler'), systemAccount('kube-scheduler')],
  },
  {
    name: 'system::extension-apiserver-authentication-reader',
    namespace: SYSTEM_NAMESPACE,
    role: 'extension-apiserver-authentication-reader',
    subjects: [user('system:kube-controller-manager'), user('system:kube-scheduler')],
  },
  ...['bootstrap-signer', 'cloud-provider', 'token-cleaner'].map((name) => ({
    name: `system:controller:${name}`,
    namespace: SYSTEM_NAMESPACE,
    role: `system:controller:${name}`,
    subjects: [systemAccount(name)],
  })),
  {
    name: 'system:controller:bootstrap-signer',
    namespace: PUBLIC_NAMESPACE,
    role: 'system:controller:bootstrap-signer',
    subjects: [systemAccount('bootstrap-signer')],
  },
];
