/** Tests which objects a pod lets its node read, by kinds of pods and of references. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { persistentVolumes, pods } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { type ListerChange, type Listers } from '../../../../../controlplane/model/listers.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { NodeAuthorizer } from '../../../../../controlplane/security/authorization/node.ts';

const ns = 'ns1';
const spec = {
  nodeName: 'n',
  serviceAccountName: 'sa',
  imagePullSecrets: [{ name: 'pull' }],
  containers: [
    { name: 'c', envFrom: [{ secretRef: { name: 'env' } }, { configMapRef: { name: 'env' } }] },
    { name: 'd', env: [{ name: 'K', valueFrom: { secretKeyRef: { name: 'key', key: 'k' } } }] },
  ],
  volumes: [
    { name: 'mysql-0', ephemeral: { volumeClaimTemplate: { spec: {} } } },
    { name: 'v', persistentVolumeClaim: { claimName: 'claim' } },
    { name: 's', secret: { secretName: 'volume' } },
    { name: 'm', configMap: { name: 'volume' } },
    { name: 'p', projected: { sources: [{ secret: { name: 'projected' } }, { configMap: { name: 'projected' } }] } },
    { name: 'csi', csi: { driver: 'd', nodePublishSecretRef: { name: 'csi' } } },
  ],
  resourceClaims: [{ name: 'r', resourceClaimName: 'device' }],
};
const status = {
  resourceClaimStatuses: [{ name: 'r', resourceClaimName: 'generated' }],
  extendedResourceClaimStatus: { resourceClaimName: 'extended', requestMappings: [] },
};
const volume = {
  metadata: { name: 'pv1' },
  spec: {
    claimRef: { namespace: ns, name: 'data-mysql-0' },
    csi: { driver: 'd', volumeHandle: 'h', nodeStageSecretRef: { namespace: 'kube-system', name: 'ceph-secret' } },
  },
} as unknown as KubeObject;
const TARGETS: readonly (readonly [resource: string, namespace: string, name: string])[] = [
  ...['pull', 'env', 'key', 'volume', 'projected', 'csi'].map((name) => ['secrets', ns, name] as const),
  ['secrets', 'kube-system', 'ceph-secret'],
  ...['env', 'volume', 'projected'].map((name) => ['configmaps', ns, name] as const),
  ...['data-mysql-0', 'claim'].map((name) => ['persistentvolumeclaims', ns, name] as const),
  ['persistentvolumes', '', 'pv1'],
  ['serviceaccounts', ns, 'sa'],
  ...['device', 'generated', 'extended'].map((name) => ['resourceclaims', ns, name] as const),
];
const pod = (annotations: Readonly<Record<string, string>>, more: object = {}): KubeObject =>
  ({ metadata: { name: 'data', namespace: ns, uid: '1', annotations }, spec, status, ...more }) as KubeObject;
const reached = (authorizer: NodeAuthorizer): string[] =>
  TARGETS.filter(([resource, namespace, name]) => authorizer.reaches('n', resource, namespace, name)).map((target) =>
    target.join('/'),
  );
const authorizerOf = (object: KubeObject): NodeAuthorizer =>
  new NodeAuthorizer(
    fixedListers([
      { resource: pods, object },
      { resource: persistentVolumes, object: volume },
    ]),
  );

test('a node reads all objects that an ordinary pod on it refers to', () => {
  assert.deepEqual(
    reached(authorizerOf(pod({}))),
    TARGETS.map((target) => target.join('/')),
  );
});

test('a node reads nothing that a mirror pod refers to, except the mirror pod itself', () => {
  const authorizer = authorizerOf(pod({ 'kubernetes.io/config.mirror': 'x' }));
  assert.deepEqual(reached(authorizer), []);
  assert.equal(authorizer.reaches('n', 'pods', ns, 'data'), true);
});

test('a claim that the scheduler creates for extended resources is readable when the pod status names it', () => {
  let notify: ((change: ListerChange<KubeObject>) => void) | undefined;
  const still = fixedListers([]);
  const listers: Listers = {
    ...still,
    of: (resource) => {
      const lister = still.of(resource);
      if (resource.resource !== 'pods') return lister;
      return { ...lister, subscribe: (listener) => void (notify = listener as typeof notify) };
    },
  };
  const authorizer = new NodeAuthorizer(listers);
  const before = pod({}, { status: { resourceClaimStatuses: status.resourceClaimStatuses } });
  notify?.({ current: before, previous: undefined });
  assert.equal(authorizer.reaches('n', 'resourceclaims', ns, 'extended'), false);
  notify?.({ current: { ...before, status } as KubeObject, previous: before });
  assert.equal(authorizer.reaches('n', 'resourceclaims', ns, 'extended'), true);
});
