/** Tests what a node agent must not write: one row for each rule, with its message. */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import {
  csiDrivers,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  serviceAccounts,
} from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { createCsr } from '../../../../../api/pki/certificate-request.ts';
import { generateKey } from '../../../../../api/pki/signing.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { nodeRestriction } from '../../../../../controlplane/security/admission/node-restriction.ts';
import type { Authorizer } from '../../../../../controlplane/security/authorization/authorization.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';

const object = (name: string, spec: object = {}, metadata: object = {}, status: object = {}): KubeObject =>
  ({ metadata: { name, namespace: 'n', ...metadata }, spec, status }) as KubeObject;
const own = object(
  'own',
  {
    nodeName: 'a',
    serviceAccountName: 'sa',
    volumes: [
      { name: 't', projected: { sources: [{ serviceAccountToken: { audience: 'vault', path: 't' } }] } },
      { name: 'i', csi: { driver: 'inline.example.com' } },
      { name: 'p', persistentVolumeClaim: { claimName: 'c' } },
      { name: 'e', ephemeral: {} },
    ],
  },
  { uid: 'u1' },
);
const other = object('other', { nodeName: 'b' }, { uid: 'u2' });
const plugin = nodeRestriction(
  fixedListers([
    { resource: pods, object: own },
    { resource: pods, object: other },
    { resource: nodes, object: { metadata: { name: 'a', uid: 'n1' } } },
    { resource: serviceAccounts, object: object('sa', {}, { uid: 's1' }) },
    ...['inline', 'bound', 'other'].map((name) => ({
      resource: csiDrivers,
      object: { metadata: { name: `${name}.example.com` }, spec: { tokenRequests: [{ audience: `of-${name}` }] } },
    })),
    { resource: persistentVolumeClaims, object: object('c', { volumeName: 'pv1' }, { uid: 'c1' }) },
    { resource: persistentVolumeClaims, object: object('own-e', { volumeName: 'pv2' }, { uid: 'c2' }) },
    ...(
      [
        ['pv1', 'bound', 'c1'],
        ['pv2', 'other', 'somebody else'],
      ] as const
    ).map(([name, driver, uid]) => ({
      resource: persistentVolumes,
      object: { metadata: { name }, spec: { claimRef: { uid }, csi: { driver: `${driver}.example.com` } } },
    })),
  ]),
  // A role allows tokens with one more audience for one account.
  {
    authorize: ({ verb, resource, namespace, name }) =>
      Promise.resolve({
        decision:
          [verb, resource, namespace, name].join(' ') === 'request-serviceaccounts-token-audience registry n sa'
            ? 'allow'
            : 'no-opinion',
        reason: '',
      }),
  } as Authorizer,
);
const csr: Record<string, string> = {};
before(async () => {
  const keys = await generateKey('ecdsa');
  for (const name of ['a', 'b']) {
    const subject = { commonName: `system:node:${name}`, organizations: ['system:nodes'] };
    csr[name] = Buffer.from(createCsr({ subject }, keys)).toString('base64');
  }
});

interface Asked {
  readonly operation?: string;
  readonly resource: string;
  readonly group?: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly object?: KubeObject | (() => KubeObject);
  readonly oldObject?: KubeObject;
  readonly user?: string;
}

function admit(asked: Asked): Promise<void> {
  const given = typeof asked.object === 'function' ? asked.object() : asked.object;
  const attributes = {
    operation: asked.operation ?? 'CREATE',
    resource: { group: asked.group ?? '', version: 'v1', resource: asked.resource },
    subresource: asked.subresource ?? '',
    namespace: asked.namespace ?? 'n',
    name: asked.name ?? given?.metadata.name ?? '',
    object: given,
    oldObject: asked.oldObject,
    user: { name: asked.user ?? 'system:node:a', groups: ['system:nodes', 'system:authenticated'] },
  } as unknown as AdmissionAttributes;
  return Promise.resolve().then(() => plugin.admit?.(attributes, new AbortController().signal));
}

const OWNER = { apiVersion: 'v1', kind: 'Node', name: 'a', uid: 'n1', controller: true };
const mirror = (spec: object = {}, owners: readonly object[] = [OWNER]): Asked => ({
  resource: 'pods',
  object: object(
    'm',
    { nodeName: 'a', ...spec },
    { annotations: { 'kubernetes.io/config.mirror': 'x' }, ownerReferences: owners },
  ),
});
const secretVolume = { volumes: [{ name: 'v', secret: { secretName: 's' } }] };
const mapVolume = { volumes: [{ name: 'v', configMap: { name: 's' } }] };
const claimVolume = { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 's' } }] };
const bundleVolume = { volumes: [{ name: 'v', projected: { sources: [{ clusterTrustBundle: { path: 'p' } }] } }] };
const token = (ref: object | undefined, audiences: readonly string[] = ['vault']): Asked => ({
  resource: 'serviceaccounts',
  subresource: 'token',
  name: 'sa',
  object: { metadata: {}, spec: { boundObjectRef: ref, audiences } } as KubeObject,
});
const bound = (name: string, uid: string): object => ({ apiVersion: 'v1', kind: 'Pod', name, uid });
const nodeUpdate = (updated: object, old: object = {}): Asked => ({
  operation: 'UPDATE',
  resource: 'nodes',
  name: 'a',
  object: { metadata: { name: 'a' }, ...updated },
  oldObject: { metadata: { name: 'a' }, ...old },
});
const claim = (status: object, spec: object = {}): KubeObject => object('c', spec, {}, status);
const csrOf = (name: string, signerName: string): Asked => ({
  resource: 'certificatesigningrequests',
  group: 'certificates.k8s.io',
  namespace: '',
  object: () => object('r', { request: csr[name], signerName }),
});
const certificateOf = (spec: object, operation = 'CREATE'): Asked => ({
  operation,
  resource: 'podcertificaterequests',
  group: 'certificates.k8s.io',
  object: object('r', {
    ...{
      nodeName: 'a',
      nodeUID: 'n1',
      podName: 'own',
      podUID: 'u1',
      serviceAccountName: 'sa',
      serviceAccountUID: 's1',
    },
    ...spec,
  }),
});
const NODE_SIGNER = 'kubernetes.io/kube-apiserver-client-kubelet';

const allowed: Readonly<Record<string, Asked>> = {
  'others than nodes': { resource: 'pods', object: object('p'), user: 'ann' },
  'a mirror pod of its own': mirror(),
  'deleting a pod of its own': { operation: 'DELETE', resource: 'pods', name: 'own', oldObject: own },
  'the status of a pod of its own': {
    operation: 'UPDATE',
    resource: 'pods',
    subresource: 'status',
    object: own,
    oldObject: own,
  },
  'evicting a pod of its own': { resource: 'pods', subresource: 'eviction', name: 'own', object: object('own') },
  'its own Node with labels of agents': {
    resource: 'nodes',
    object: {
      metadata: { name: 'a', labels: { 'kubernetes.io/os': 'linux', 'node.kubernetes.io/x': 'y', mine: 'z' } },
    },
  },
  'a token for a pod of its own': token(bound('own', 'u1')),
  'a token for an audience that a role allows': token(bound('own', 'u1'), ['registry']),
  'a token for the driver of an inline volume': token(bound('own', 'u1'), ['of-inline']),
  'a token for the driver of a claim': token(bound('own', 'u1'), ['of-bound']),
  'a certificate for a pod of its own': certificateOf({}),
  'its own lease': {
    resource: 'leases',
    group: 'coordination.k8s.io',
    namespace: 'kube-node-lease',
    object: object('a'),
  },
  'its own CSINode': { resource: 'csinodes', group: 'storage.k8s.io', namespace: '', object: object('a') },
  'a slice of its own devices': {
    resource: 'resourceslices',
    group: 'resource.k8s.io',
    namespace: '',
    object: object('s', { nodeName: 'a' }),
  },
  'the capacity of a claim': {
    operation: 'UPDATE',
    resource: 'persistentvolumeclaims',
    subresource: 'status',
    object: claim({ capacity: { storage: '2Gi' } }),
    oldObject: claim({ capacity: { storage: '1Gi' } }),
  },
  'a certificate of its own name': csrOf('a', NODE_SIGNER),
};
for (const [what, asked] of Object.entries(allowed)) test(`${what} may be written`, () => admit(asked));

const refused: Readonly<Record<string, readonly [Asked, string]>> = {
  'a user of no node': [
    { resource: 'pods', object: object('p'), user: 'system:node:' },
    'could not determine node from user "system:node:"',
  ],
  'a certificate in the name of another node': [
    certificateOf({ nodeName: 'b' }),
    'node "a" can only request certificates with spec.nodeName and spec.nodeUID set to itself',
  ],
  'a certificate in the name of an earlier node': [
    certificateOf({ nodeUID: 'n0' }),
    'node "a" can only request certificates with spec.nodeName and spec.nodeUID set to itself',
  ],
  'a certificate for a pod of another node': [
    certificateOf({ podName: 'other', podUID: 'u2' }),
    'node "a" can only request certificates for pods with spec.nodeName set to itself',
  ],
  'a certificate for an earlier pod': [
    certificateOf({ podUID: 'u0' }),
    'node "a" can only request certificates for pods with spec.nodeName set to itself',
  ],
  'a certificate for another service account': [
    certificateOf({ serviceAccountName: 'admin' }),
    'pod "own" has another service account than its certificate request',
  ],
  'a certificate for an earlier service account': [
    certificateOf({ serviceAccountUID: 's0' }),
    'the service account of pod "own" has another UID than in its certificate request',
  ],
  'another end of a certificate request': [
    certificateOf({}, 'DELETE'),
    'node "a" can only create pod certificate requests',
  ],
  'a pod that is no mirror': [
    { resource: 'pods', object: object('p', { nodeName: 'a' }) },
    'pod does not have "kubernetes.io/config.mirror" annotation, node "a" can only create mirror pods',
  ],
  'a mirror pod of another node': [
    mirror({ nodeName: 'b' }),
    'node "a" can only create pods with spec.nodeName set to itself',
  ],
  'a mirror pod of nobody': [mirror({}, []), 'node "a" can only create pods with an owner reference set to itself'],
  'a mirror pod of two': [
    mirror({}, [OWNER, OWNER]),
    'node "a" can only create pods with a single owner reference set to itself',
  ],
  'a mirror pod of another owner': [
    mirror({}, [{ ...OWNER, kind: 'Pod' }]),
    'node "a" can only create pods with an owner reference set to itself',
  ],
  'a mirror pod that nobody controls': [
    mirror({}, [{ ...OWNER, controller: false }]),
    'node "a" can only create pods with a controller owner reference set to itself',
  ],
  'a mirror pod that holds its node': [
    mirror({}, [{ ...OWNER, blockOwnerDeletion: true }]),
    'node "a" must not set blockOwnerDeletion on an owner reference',
  ],
  'a mirror pod of an earlier node': [mirror({}, [{ ...OWNER, uid: 'n0' }]), 'node a UID mismatch: expected n0 got n1'],
  'a mirror pod with an account': [
    mirror({ serviceAccountName: 'sa' }),
    'node "a" can not create pods that reference a service account',
  ],
  'a mirror pod with a Secret': [mirror(secretVolume), 'node "a" can not create pods that reference secrets'],
  'a mirror pod with a ConfigMap': [mirror(mapVolume), 'node "a" can not create pods that reference configmaps'],
  'a mirror pod with a trust bundle': [
    mirror(bundleVolume),
    'node "a" can not create pods that reference clustertrustbundles',
  ],
  'a mirror pod with a claim': [
    mirror(claimVolume),
    'node "a" can not create pods that reference persistentvolumeclaims',
  ],
  'a mirror pod with an ephemeral volume': [
    mirror({ volumes: [{ name: 'mysql-0', ephemeral: { volumeClaimTemplate: { spec: {} } } }] }),
    'node "a" can not create pods that reference persistentvolumeclaims',
  ],
  'a mirror pod with devices': [
    mirror({ resourceClaims: [{ name: 'r' }] }),
    'node "a" can not create pods that reference resourceclaims',
  ],
  'changing a pod': [
    { operation: 'UPDATE', resource: 'pods', object: own, oldObject: own },
    'unexpected operation "UPDATE", node "a" can only create and delete mirror pods',
  ],
  'deleting a pod of another node': [
    { operation: 'DELETE', resource: 'pods', name: 'other', oldObject: other },
    'node "a" can only delete pods with spec.nodeName set to itself',
  ],
  'the status of a pod of another node': [
    { operation: 'UPDATE', resource: 'pods', subresource: 'status', object: other, oldObject: other },
    'node "a" can only update pod status for pods with spec.nodeName set to itself',
  ],
  'labels by way of the status': [
    {
      operation: 'UPDATE',
      resource: 'pods',
      subresource: 'status',
      object: object('own', { nodeName: 'a' }, { labels: { x: 'y' } }),
      oldObject: own,
    },
    'node "a" cannot update labels through pod status',
  ],
  'claims by way of the status': [
    {
      operation: 'UPDATE',
      resource: 'pods',
      subresource: 'status',
      object: object('own', { nodeName: 'a' }, {}, { resourceClaimStatuses: [{ name: 'x' }] }),
      oldObject: own,
    },
    'node "a" cannot update resource claim statues',
  ],
  'an extended claim by way of the status': [
    {
      operation: 'UPDATE',
      resource: 'pods',
      subresource: 'status',
      object: object('own', { nodeName: 'a' }, {}, { extendedResourceClaimStatus: { resourceClaimName: 'x' } }),
      oldObject: own,
    },
    'node "a" cannot update extended resource claim status',
  ],
  'evicting a pod of another node': [
    { resource: 'pods', subresource: 'eviction', name: 'other', object: object('other') },
    'node a can only evict pods with spec.nodeName set to itself',
  ],
  'binding a pod': [
    { resource: 'pods', subresource: 'binding', name: 'own', object: object('own') },
    "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
  ],
  'another node': [
    { resource: 'nodes', object: { metadata: { name: 'b' } } },
    'node "a" is not allowed to modify node "b"',
  ],
  'labels that others decide by': [
    {
      resource: 'nodes',
      object: {
        metadata: {
          name: 'a',
          labels: { 'node-restriction.kubernetes.io/x': '', 'node-role.kubernetes.io/master': '', 'x.k8s.io/y': '' },
        },
      },
    },
    'node "a" is not allowed to set the following labels: node-restriction.kubernetes.io/x, node-role.kubernetes.io/master, x.k8s.io/y',
  ],
  'changing such a label': [
    nodeUpdate({ metadata: { name: 'a', labels: { 'node-role.kubernetes.io/master': '' } } }),
    'is not allowed to modify labels: node-role.kubernetes.io/master',
  ],
  'its own taints': [
    nodeUpdate({ spec: { taints: [] } }, { spec: { taints: [{ key: 'x', effect: 'NoSchedule' }] } }),
    'node "a" is not allowed to modify taints',
  ],
  'owners of its node': [
    nodeUpdate({ metadata: { name: 'a', ownerReferences: [OWNER] } }),
    'node "a" is not allowed to modify ownerReferences',
  ],
  'another source of its configuration': [
    nodeUpdate({ spec: { configSource: { configMap: {} } } }),
    'node "a" is not allowed to update configSource to a new non-nil configSource',
  ],
  'a token for no pod': [token(undefined), 'node requested token not bound to a pod'],
  'a token for a pod without its id': [
    token({ apiVersion: 'v1', kind: 'Pod', name: 'own' }),
    'node requested token with a pod binding without a uid',
  ],
  'a token for an earlier pod': [
    token(bound('own', 'u0')),
    'the UID in the bound object reference (u0) does not match the UID in record. The object might have been deleted and then recreated',
  ],
  'a token for a pod of another node': [
    token(bound('other', 'u2')),
    'node requested token bound to a pod scheduled on a different node',
  ],
  'a token for several audiences': [
    token(bound('own', 'u1'), ['vault', 'x']),
    'node may only request 0 or 1 audiences',
  ],
  'a token for the driver of a volume that is bound to another claim': [
    token(bound('own', 'u1'), ['of-other']),
    'audience "of-other" not found in pod spec volume, system:node:a is not authorized to request tokens for this audience',
  ],
  'a token for an audience that the pod has not': [
    token(bound('own', 'u1'), ['x']),
    'audience "x" not found in pod spec volume, system:node:a is not authorized to request tokens for this audience',
  ],
  'a lease elsewhere': [
    { resource: 'leases', group: 'coordination.k8s.io', namespace: 'n', object: object('a') },
    'can only access leases in the "kube-node-lease" system namespace',
  ],
  'the lease of another node': [
    { resource: 'leases', group: 'coordination.k8s.io', namespace: 'kube-node-lease', object: object('b') },
    'can only access node lease with the same name as the requesting node',
  ],
  'the CSINode of another': [
    { resource: 'csinodes', group: 'storage.k8s.io', namespace: '', object: object('b') },
    'can only access CSINode with the same name as the requesting node',
  ],
  'a slice of the devices of another': [
    { resource: 'resourceslices', group: 'resource.k8s.io', namespace: '', object: object('s', { nodeName: 'b' }) },
    'can only create ResourceSlice with the same NodeName as the requesting node',
  ],
  'what a claim asks for': [
    {
      operation: 'UPDATE',
      resource: 'persistentvolumeclaims',
      subresource: 'status',
      object: claim({}, { volumeName: 'x' }),
      oldObject: claim({}),
    },
    'node "a" is not allowed to update fields other than status.capacity and status.conditions: spec',
  ],
  'a claim itself': [
    { operation: 'UPDATE', resource: 'persistentvolumeclaims', object: claim({}), oldObject: claim({}) },
    'may only update PVC status',
  ],
  'the status of a pod by another operation than an update': [
    { operation: 'DELETE', resource: 'pods', subresource: 'status', name: 'own', oldObject: own },
    'unexpected operation "DELETE"',
  ],
  'the status of a claim by another operation than an update': [
    { operation: 'DELETE', resource: 'persistentvolumeclaims', subresource: 'status', oldObject: claim({}) },
    'unexpected operation "DELETE"',
  ],
  'an eviction that is changed': [
    { operation: 'UPDATE', resource: 'pods', subresource: 'eviction', object: object('own') },
    'unexpected operation UPDATE',
  ],
  'an eviction of a pod without a name': [
    { resource: 'pods', subresource: 'eviction', object: object('') },
    'could not determine pod from request data',
  ],
  'a new node with an owner': [
    { resource: 'nodes', namespace: '', object: object('a', {}, { ownerReferences: [OWNER] }) },
    'node "a" is not allowed to modify ownerReferences',
  ],
  'a new node with a source of its configuration': [
    { resource: 'nodes', namespace: '', object: object('a', { configSource: {} }) },
    'node "a" is not allowed to create pods with a non-nil configSource',
  ],
  'a certificate of another name': [csrOf('b', NODE_SIGNER), 'can only create a node CSR with CN=system:node:a'],
};
for (const [what, [asked, why]] of Object.entries(refused)) {
  test(`${what} may not be written`, () =>
    assert.rejects(admit(asked), (error: Error) => {
      assert.ok(error.message.endsWith(`is forbidden: ${why}`), error.message);
      return true;
    }));
}
