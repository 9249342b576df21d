/** The default roles and bindings against those that kube-apiserver 1.36.2 had stored when its lists were recorded. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import {
  CONTROLLER_ROLES,
  CONTROLLER_ROLE_BINDINGS,
} from '../../../../../controlplane/security/authorization/bootstrap-controllers.ts';
import {
  CLUSTER_ROLES,
  CLUSTER_ROLE_BINDINGS,
  NAMESPACED_ROLES,
  NAMESPACED_ROLE_BINDINGS,
} from '../../../../../controlplane/security/authorization/bootstrap-policy.ts';
import { bindingObject, roleObject } from '../../../../../controlplane/security/authorization/bootstrap-reconcile.ts';

interface Recorded {
  readonly path: string;
  readonly answer: { readonly items?: readonly KubeObject[] };
}

const RECORDED = readFileSync(join(import.meta.dirname, '../../storage/etcd/recorded/lists.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Recorded);

/** What the recorded server's distribution adds to Kubernetes. */
const FOREIGN = /service-ca-cert-publisher|openshift/;
const isOfDistribution = ({ name }: { readonly name?: string }): boolean => name === 'leader-election-controller';

/** Returns the recorded objects with the label of the bootstrap policy, which objects of other clients lack. */
function recorded(resource: string): Map<string, KubeObject> {
  const list = RECORDED.find(({ path }) => path === `/apis/rbac.authorization.k8s.io/v1/${resource}`);
  const items = (list?.answer.items ?? []).filter(
    ({ metadata }) =>
      metadata.labels?.['kubernetes.io/bootstrapping'] === 'rbac-defaults' && !FOREIGN.test(metadata.name ?? ''),
  );
  return new Map(items.map((item) => [keyOf(item), item]));
}

const keyOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name ?? ''}`;

function compare(resource: string, ours: readonly KubeObject[], contentOf: (object: KubeObject) => unknown): void {
  const theirs = recorded(resource);
  assert.ok(theirs.size > 5, `the recording has ${theirs.size} ${resource}`);
  assert.deepEqual(ours.map(keyOf).sort(), [...theirs.keys()].sort());
  for (const object of ours) {
    const other = theirs.get(keyOf(object));
    assert.ok(other !== undefined);
    const { labels, annotations } = object.metadata;
    assert.deepEqual([labels, annotations], [other.metadata.labels, other.metadata.annotations], keyOf(object));
    assert.deepEqual(contentOf(object), contentOf(other), keyOf(object));
  }
}

/** Returns the rules of a role, or its aggregation rule, because controllers fill the rules of aggregated roles later. */
const rulesOf = ({ rules, aggregationRule }: KubeObject): unknown => aggregationRule ?? rules ?? [];
const subjectsOf = ({ roleRef, subjects }: KubeObject): unknown => [
  roleRef,
  ((subjects ?? []) as readonly { readonly name?: string }[]).filter((subject) => !isOfDistribution(subject)),
];

test('the default ClusterRoles have the rules of Kubernetes in their order', () => {
  compare('clusterroles', [...CLUSTER_ROLES, ...CONTROLLER_ROLES].map(roleObject), rulesOf);
});

test('the default Roles have the rules of Kubernetes in their order', () => {
  compare('roles', NAMESPACED_ROLES.map(roleObject), rulesOf);
});

test('the default bindings have the subjects of Kubernetes', () => {
  compare(
    'clusterrolebindings',
    [...CLUSTER_ROLE_BINDINGS, ...CONTROLLER_ROLE_BINDINGS].map(bindingObject),
    subjectsOf,
  );
  compare('rolebindings', NAMESPACED_ROLE_BINDINGS.map(bindingObject), subjectsOf);
});
