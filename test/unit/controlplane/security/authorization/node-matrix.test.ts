/**
 * Asks the Node authorizer for every verb on every built-in resource and subresource: those of the node and of its pods, those
 * of others, and whole collections. What it allows is listed below, and everything else is left to other authorizers.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { groupResourceName } from '../../../../../api/meta/group-resource.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { NodeAuthorizer } from '../../../../../controlplane/security/authorization/node.ts';
import type { ListerChange, Listers } from '../../../../../controlplane/model/listers.ts';

const VERBS = [
  ...['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection'],
  ...['proxy', 'use', 'bind', 'escalate', 'impersonate', 'approve', 'sign', 'attest'],
];
/** Further subresources: those that a resource does not have, too. */
const SUBRESOURCES = ['', 'status', 'token', 'proxy', 'exec', 'log', 'eviction', 'other'];

const ofNode = (name: string, nodeName: string): KubeObject =>
  ({ metadata: { name, namespace: 'ns' }, spec: { nodeName } }) as KubeObject;
const podOf = (name: string, nodeName: string): KubeObject =>
  ({
    metadata: { name: `${name}-pod`, namespace: 'ns', uid: name },
    spec: {
      nodeName,
      serviceAccountName: `${name}-account`,
      containers: [
        { name: 'c', envFrom: [{ secretRef: { name: `${name}-secret` } }, { configMapRef: { name: `${name}-map` } }] },
      ],
      volumes: [{ name: 'v', persistentVolumeClaim: { claimName: `${name}-claim` } }],
      resourceClaims: [{ name: 'd', resourceClaimName: `${name}-devices` }],
    },
  }) as unknown as KubeObject;
const volumeOf = (name: string): KubeObject =>
  ({
    metadata: { name: `${name}-volume` },
    spec: { claimRef: { namespace: 'ns', name: `${name}-claim` } },
  }) as unknown as KubeObject;

/** The objects of a node, by the resource that the authorizer watches. */
const watched = (name: string, node: string): Readonly<Record<string, KubeObject>> => ({
  pods: podOf(name, node),
  persistentvolumes: volumeOf(name),
  volumeattachments: { ...ofNode(`${name}-attachment`, node), metadata: { name: `${name}-attachment` } } as KubeObject,
  resourceslices: { ...ofNode(`${name}-slice`, node), metadata: { name: `${name}-slice` } } as KubeObject,
  podcertificaterequests: ofNode(`${name}-request`, node),
});

/** Whose objects a request names. Objects of other resources have the name of the node. */
const nameOf = (resource: string, name: string, node: string): string =>
  new Map(
    Object.entries({
      pods: 'pod',
      secrets: 'secret',
      configmaps: 'map',
      serviceaccounts: 'account',
      persistentvolumeclaims: 'claim',
      persistentvolumes: 'volume',
      resourceclaims: 'devices',
      volumeattachments: 'attachment',
      resourceslices: 'slice',
      podcertificaterequests: 'request',
    }).map(([kind, part]) => [kind, `${name}-${part}`]),
  ).get(resource) ?? node;

function nodeAuthorizer(): NodeAuthorizer {
  const listeners = new Map<string, (change: ListerChange<KubeObject>) => void>();
  const of = ({ resource }: { readonly resource: string }) => ({
    subscribe: (listener: (change: ListerChange<KubeObject>) => void) => void listeners.set(resource, listener),
  });
  const authorizer = new NodeAuthorizer({ of } as unknown as Listers);
  for (const objects of [watched('own', 'n1'), watched('others', 'n2')])
    for (const [resource, current] of Object.entries(objects))
      listeners.get(resource)?.({ current } as ListerChange<KubeObject>);
  return authorizer;
}

type Selector = NonNullable<AuthorizationAttributes['fieldSelector']>;
const selecting = (node: string): Selector => [{ key: 'spec.nodeName', operator: 'In', values: [node] }];
/** What a request is about, apart from its resource and verb. */
const SCOPES: readonly (readonly [scope: string, about: (resource: string) => Partial<AuthorizationAttributes>])[] = [
  ['own', (resource) => ({ namespace: 'ns', name: nameOf(resource, 'own', 'n1') })],
  ['own lease', () => ({ namespace: 'kube-node-lease', name: 'n1' })],
  ["others'", (resource) => ({ namespace: 'ns', name: nameOf(resource, 'others', 'n2') })],
  ["others' lease", () => ({ namespace: 'kube-node-lease', name: 'n2' })],
  ['of another namespace', (resource) => ({ namespace: 'other', name: nameOf(resource, 'own', 'n1') })],
  ['without a namespace', (resource) => ({ name: nameOf(resource, 'own', 'n1') })],
  ['all of a namespace', () => ({ namespace: 'ns' })],
  ['all', () => ({})],
  ['selected', () => ({ fieldSelector: selecting('n1') })],
  ["selected others'", () => ({ fieldSelector: selecting('n2') })],
  [
    'excluded',
    () => ({ fieldSelector: [{ key: 'spec.nodeName', operator: 'NotIn', values: ['n1'] }] as unknown as Selector }),
  ],
];

/** Returns lines such as `pods/status: update patch (own, all)`: what the node may do with which objects. */
function allowed(user: AuthorizationAttributes['user']): readonly string[] {
  const authorizer = nodeAuthorizer();
  return builtinResources().flatMap(({ group, version, resource, subresources }) =>
    [...new Set([...SUBRESOURCES, ...subresources.map(({ name }) => name)])].flatMap((subresource) => {
      const scopes = new Map<string, string[]>();
      for (const [scope, about] of SCOPES) {
        const verbs = VERBS.filter((verb) => {
          const request = { ...{ verb, group, version, resource, subresource, namespace: '', name: '', path: '' } };
          const attributes = { user, isResourceRequest: true, ...request, ...about(resource) };
          return authorizer.authorize(attributes).decision === 'allow';
        }).join(' ');
        if (verbs !== '') scopes.set(verbs, [...(scopes.get(verbs) ?? []), scope]);
      }
      const what = `${groupResourceName({ group, resource })}${subresource === '' ? '' : `/${subresource}`}`;
      return [...scopes].map(([verbs, names]) => {
        const whole = names.length === SCOPES.length ? 'any' : names.join(', ');
        return `${what}: ${verbs} (${whole})`;
      });
    }),
  );
}

const NEW = "own lease, others', others' lease, of another namespace, without a namespace, all of a namespace, all";
/** What the admission plugin NodeRestriction decides further: names and contents of what a node writes. */
const ALLOWED: readonly string[] = [
  'certificatesigningrequests.certificates.k8s.io: get list watch create (any)',
  'clustertrustbundles.certificates.k8s.io: get list watch (any)',
  'configmaps: get list watch (own)',
  'csidrivers.storage.k8s.io: get list watch (any)',
  "csinodes.storage.k8s.io: create (others', others' lease, all of a namespace, all, selected, selected others', excluded)",
  'csinodes.storage.k8s.io: get create update patch delete (own, own lease, of another namespace, without a namespace)',
  'endpoints: get (any)',
  'events.events.k8s.io: create update patch (any)',
  'events: create update patch (any)',
  // Leases have no subresources, so that none is served.
  ...SUBRESOURCES.flatMap((subresource) => {
    const what = `leases.coordination.k8s.io${subresource === '' ? '' : `/${subresource}`}`;
    return [`${what}: create (others' lease)`, `${what}: get create update patch delete (own lease)`];
  }),
  'localsubjectaccessreviews.authorization.k8s.io: create (any)',
  'nodes/status: update patch (any)',
  "nodes: create update patch (others', others' lease, all of a namespace, all, selected, selected others', excluded)",
  'nodes: get list watch create update patch (own, own lease, of another namespace, without a namespace)',
  'persistentvolumeclaims/status: update patch (own)',
  'persistentvolumeclaims: get (own)',
  'persistentvolumes: get (own, of another namespace, without a namespace)',
  `podcertificaterequests.certificates.k8s.io: create (${NEW}, selected others', excluded)`,
  'podcertificaterequests.certificates.k8s.io: get create (own)',
  'podcertificaterequests.certificates.k8s.io: list watch create (selected)',
  'pods/eviction: create (any)',
  'pods/status: update patch (any)',
  `pods: create delete (${NEW}, selected others', excluded)`,
  'pods: get list watch create delete (own)',
  'pods: list watch create delete (selected)',
  'resourceclaims.resource.k8s.io: get (own)',
  `resourceslices.resource.k8s.io: create (own, ${NEW.replace(' without a namespace,', '')}, selected others', excluded)`,
  'resourceslices.resource.k8s.io: get create update patch delete (without a namespace)',
  'resourceslices.resource.k8s.io: list watch create deletecollection (selected)',
  'runtimeclasses.node.k8s.io: get list watch (any)',
  'secrets: get list watch (own)',
  'selfsubjectreviews.authentication.k8s.io: create (any)',
  'serviceaccounts/token: create (own)',
  'serviceaccounts: get (own)',
  'services: get list watch (any)',
  'subjectaccessreviews.authorization.k8s.io: create (any)',
  'tokenreviews.authentication.k8s.io: create (any)',
  'volumeattachments.storage.k8s.io: get (without a namespace)',
];

test('a node may do what is listed to its own objects and to those of others, and nothing else', () => {
  const found = new Set(allowed({ name: 'system:node:n1', groups: ['system:nodes'] }));
  assert.deepEqual([...found].toSorted(), ALLOWED.toSorted());
});

for (const [what, user] of [
  ['the name of a node without its group', { name: 'system:node:n1', groups: ['system:authenticated'] }],
  ['the group of nodes without the name of one', { name: 'n1', groups: ['system:nodes'] }],
  ['the group of nodes and no name after the prefix', { name: 'system:node:', groups: ['system:nodes'] }],
] as const)
  test(`a user who has ${what} may do nothing as a node`, () => assert.deepEqual(allowed(user), []));
