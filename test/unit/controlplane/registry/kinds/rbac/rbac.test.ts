import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rbacKinds } from '../../../../../../controlplane/registry/kinds/rbac/rbac.ts';
import { rulesOf } from '../strategy-fixture.ts';

const GROUP = 'rbac.authorization.k8s.io';
const roles = rulesOf(rbacKinds, GROUP, 'roles');
const clusterRoles = rulesOf(rbacKinds, GROUP, 'clusterroles');
const bindings = rulesOf(rbacKinds, GROUP, 'rolebindings');
const clusterBindings = rulesOf(rbacKinds, GROUP, 'clusterrolebindings');

test('a rule names verbs, groups and resources', () => {
  assert.deepEqual(roles.create({ rules: [{}] }).errors, [
    'rules[0].verbs: Required value: verbs must contain at least one value',
    'rules[0].apiGroups: Required value: resource rules must supply at least one api group',
    'rules[0].resources: Required value: resource rules must supply at least one resource',
  ]);
});

test('paths are for roles of the cluster, and not together with resources', () => {
  const rule = { verbs: ['get'], nonResourceURLs: ['/x'] };
  assert.deepEqual(roles.create({ rules: [rule] }).errors, [
    'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
  ]);
  assert.deepEqual(clusterRoles.create({ rules: [rule] }).errors, []);
  assert.deepEqual(clusterRoles.create({ rules: [{ ...rule, resourceNames: ['a'] }] }).errors, [
    'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs',
  ]);
});

test('an aggregation rule selects roles', () => {
  assert.deepEqual(clusterRoles.create({ aggregationRule: {} }).errors, [
    'aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil',
  ]);
  const selector = { matchExpressions: [{ key: 'a', operator: 'Near' }] };
  assert.deepEqual(clusterRoles.create({ aggregationRule: { clusterRoleSelectors: [selector] } }).errors, [
    'aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
    'aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.',
  ]);
});

test('subjects and roles get the group that they belong to', () => {
  const { object, errors } = bindings.create({
    roleRef: { kind: 'Role', name: 'r' },
    subjects: [
      { kind: 'User', name: 'u' },
      { kind: 'ServiceAccount', name: 's' },
    ],
  });
  assert.deepEqual(errors, []);
  assert.deepEqual(object['roleRef'], { kind: 'Role', name: 'r', apiGroup: GROUP });
  assert.deepEqual(object['subjects'], [
    { kind: 'User', name: 'u', apiGroup: GROUP },
    { kind: 'ServiceAccount', name: 's' },
  ]);
});

test('a binding of the cluster grants a role of the cluster, to accounts with a namespace', () => {
  const { errors } = clusterBindings.create({
    roleRef: { kind: 'Role', name: 'r' },
    subjects: [{ kind: 'ServiceAccount', name: 's' }],
  });
  assert.deepEqual(errors, [
    'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
    'subjects[0].namespace: Required value',
  ]);
});

test('the role of a binding never changes', () => {
  const of = (name: string) => ({ roleRef: { kind: 'Role', name } });
  const { errors } = bindings.update(of('one'), of('two'));
  assert.deepEqual(errors, [
    `roleRef: Invalid value: {"APIGroup":"${GROUP}","Kind":"Role","Name":"two"}: cannot change roleRef`,
  ]);
  assert.deepEqual(bindings.update(of('one'), of('one')).errors, []);
});
