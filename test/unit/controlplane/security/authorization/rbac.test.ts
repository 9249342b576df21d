import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clusterRoleBindings, clusterRoles, pods, roleBindings, roles } from '../../../../../api/client/resources.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';
import type { AuthorizationAttributes } from '../../../../../controlplane/security/authorization/authorization.ts';
import { NodeAuthorizer } from '../../../../../controlplane/security/authorization/node.ts';
import { RbacAuthorizer } from '../../../../../controlplane/security/authorization/rbac.ts';
import {
  compact,
  formatRule,
  missingRules,
  TooManyCombinations,
} from '../../../../../controlplane/security/authorization/rbac-rules.ts';
import { forbiddenMessage } from '../../../../../controlplane/security/authorization/union.ts';

function ask(more: Partial<AuthorizationAttributes>): AuthorizationAttributes {
  return {
    user: { name: 'ann', groups: [] },
    verb: 'get',
    isResourceRequest: true,
    group: '',
    version: 'v1',
    resource: 'pods',
    subresource: '',
    namespace: 'ns',
    name: '',
    path: '',
    ...more,
  };
}

const rbac = new RbacAuthorizer(
  fixedListers([
    {
      resource: roles,
      object: {
        metadata: { name: 'r', namespace: 'ns' },
        rules: [{ verbs: ['get'], apiGroups: [''], resources: ['pods', '*/scale'] }],
      },
    },
    {
      resource: roles,
      object: {
        metadata: { name: 'one', namespace: 'ns' },
        rules: [{ verbs: ['get'], apiGroups: [''], resources: ['secrets'], resourceNames: ['s'] }],
      },
    },
    {
      resource: clusterRoles,
      object: { metadata: { name: 'urls' }, rules: [{ verbs: ['get'], nonResourceURLs: ['/logs/*'] }] },
    },
    {
      resource: roleBindings,
      object: {
        metadata: { name: 'b', namespace: 'ns' },
        roleRef: { kind: 'Role', name: 'r' },
        subjects: [
          { kind: 'User', name: 'ann' },
          { kind: 'ServiceAccount', name: 'sa' },
        ],
      },
    },
    {
      resource: roleBindings,
      object: {
        metadata: { name: 'c', namespace: 'ns' },
        roleRef: { kind: 'Role', name: 'one' },
        subjects: [{ kind: 'Group', name: 'devs' }],
      },
    },
    {
      resource: roleBindings,
      object: {
        metadata: { name: 'd', namespace: 'ns' },
        roleRef: { kind: 'Role', name: 'gone' },
        subjects: [{ kind: 'User', name: 'bob' }],
      },
    },
    {
      resource: clusterRoleBindings,
      object: {
        metadata: { name: 'u' },
        roleRef: { kind: 'ClusterRole', name: 'urls' },
        subjects: [{ kind: 'User', name: 'ann' }],
      },
    },
  ]),
);

test('roles and bindings decide requests', () => {
  const account = { name: 'system:serviceaccount:ns:sa', groups: [] };
  const devs = { name: 'eve', groups: ['devs'] };
  const cases: [string, Partial<AuthorizationAttributes>, boolean][] = [
    ['the verb and resource of the role', {}, true],
    ['another verb', { verb: 'list' }, false],
    ['another namespace', { namespace: 'other' }, false],
    ['all namespaces', { namespace: '' }, false],
    ['a subresource that is not named', { subresource: 'log' }, false],
    ['a subresource of any resource', { resource: 'replicationcontrollers', subresource: 'scale' }, true],
    ['a service account as subject', { user: account }, true],
    ['a user whose name differs in case', { user: { name: 'Ann', groups: [] } }, false],
    ['a named object', { user: devs, resource: 'secrets', name: 's' }, true],
    ['another object', { user: devs, resource: 'secrets', name: 't' }, false],
    ['a URL below the pattern', { isResourceRequest: false, path: '/logs/a' }, true],
    ['a URL beside the pattern', { isResourceRequest: false, path: '/log' }, false],
  ];
  for (const [name, more, allowed] of cases) {
    assert.equal(rbac.authorize(ask(more)).decision, allowed ? 'allow' : 'no-opinion', name);
  }
  assert.equal(rbac.authorize(ask({})).reason, 'RBAC: allowed by RoleBinding "b/ns" of Role "r" to User "ann"');
  assert.equal(
    rbac.authorize(ask({ user: { name: 'bob', groups: [] } })).reason,
    'RBAC: role.rbac.authorization.k8s.io "gone" not found',
  );
});

test('an escalation error lists the missing rules, one resource in a line', () => {
  const held = [{ verbs: ['get', 'list'], apiGroups: [''], resources: ['configmaps'] }];
  const wanted = [{ verbs: ['get', 'delete'], apiGroups: [''], resources: ['configmaps', 'pods'] }];
  assert.deepEqual(missingRules(held, wanted).map(formatRule).sort(), [
    '{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}',
    '{APIGroups:[""], Resources:["pods"], Verbs:["get" "delete"]}',
  ]);
  assert.deepEqual(missingRules([{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }], wanted), []);
});

test('rules by the thousands are compared in time that grows with their number', async () => {
  const names = (prefix: string, count: number) => Array.from({ length: count }, (_, at) => `${prefix}${at}`);
  const rule = { verbs: ['get'], apiGroups: [''], resources: ['pods'] };
  const mergedVerbs = (count: number): unknown =>
    compact(names('v', count).map((verb) => ({ ...rule, verbs: [verb] })));
  const longLists = (count: number): unknown => {
    const resources = names('r', count);
    return missingRules([{ ...rule, resources }], [{ ...rule, resources: resources.toReversed() }]);
  };
  for (const work of [mergedVerbs, longLists]) await assertLinearTime(work, { maxBytes: 1 << 15, noticeableMs: 100 });
});

test('more rules of a client than can be compared with those of a role are refused', () => {
  const names = (prefix: string) => Array.from({ length: 10_000 }, (_, at) => `${prefix}${at}`);
  const held = names('a').map((name) => ({
    verbs: ['get'],
    apiGroups: [''],
    resources: ['pods'],
    resourceNames: [name],
  }));
  const wanted = [{ verbs: ['get'], apiGroups: [''], resources: ['pods'], resourceNames: names('b') }];
  assert.throws(() => missingRules(held, wanted), TooManyCombinations);
});

test('a large role that a client has by thousands of bindings counts once, for decisions and for reviews', () => {
  let reads = 0;
  const role = {
    metadata: { name: 'r', namespace: 'ns' },
    get rules() {
      reads += 1;
      return [{ verbs: ['get'], apiGroups: [''], resources: ['pods'], resourceNames: ['a'] }];
    },
  };
  const bindings = Array.from({ length: 3000 }, (_, at) => ({
    resource: roleBindings,
    object: {
      metadata: { name: `b${at}`, namespace: 'ns' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'r' },
      subjects: [{ kind: 'User', name: 'mallory' }],
    },
  }));
  const many = new RbacAuthorizer(fixedListers([{ resource: roles, object: role }, ...bindings]));
  const mallory = { name: 'mallory', groups: [] };
  reads = 0;
  assert.equal(many.authorize(ask({ user: mallory, resource: 'nodes' })).decision, 'no-opinion');
  assert.ok(reads <= 20, `${reads} reads`);
  reads = 0;
  assert.equal(many.rulesFor(mallory, 'ns').resourceRules.length, 1);
  assert.ok(reads <= 3, `${reads} reads`);
});

test('a review shows as many rules as fit into a response, and says that it is incomplete', () => {
  const rules = Array.from({ length: 60_000 }, () => ({ verbs: ['get'], apiGroups: [''], resources: ['pods'] }));
  const binding = {
    metadata: { name: 'b', namespace: 'ns' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'r' },
    subjects: [{ kind: 'User', name: 'mallory' }],
  };
  const large = new RbacAuthorizer(
    fixedListers([
      { resource: roles, object: { metadata: { name: 'r', namespace: 'ns' }, rules } },
      { resource: roleBindings, object: binding },
    ]),
  );
  const { resourceRules, incomplete, evaluationError } = large.rulesFor({ name: 'mallory', groups: [] }, 'ns');
  assert.equal(resourceRules.length, 33_333);
  assert.equal(incomplete, true);
  assert.match(evaluationError ?? '', /more than 100000 items/);
});

test('a rule of three long lists is not multiplied out', () => {
  const many = (prefix: string): string[] => Array.from({ length: 5000 }, (_, i) => `${prefix}${i}`);
  const huge = [{ verbs: many('v'), apiGroups: many('g'), resources: many('r') }];
  const few = [{ verbs: ['get'], apiGroups: [''], resources: ['pods'] }];
  assert.throws(() => missingRules(few, huge), TooManyCombinations);
  assert.deepEqual(missingRules([{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }], huge), []);
  assert.deepEqual(missingRules(huge, huge), []);
});

test('a forbidden message names the request and is escaped for HTML', () => {
  const message = forbiddenMessage(ask({ user: { name: '<b>', groups: [] }, subresource: 'log' }));
  assert.equal(message, 'User "&lt;b&gt;" cannot get resource "pods/log" in API group "" in the namespace "ns"');
});

test('a node reads what its pods refer to, and nothing else', () => {
  const pod = {
    metadata: { name: 'p', namespace: 'ns', uid: '1' },
    spec: {
      nodeName: 'n',
      containers: [{ name: 'c', envFrom: [{ secretRef: { name: 'env' } }] }],
      volumes: [{ name: 'v', configMap: { name: 'cm' } }],
    },
  };
  const node = new NodeAuthorizer(fixedListers([{ resource: pods, object: pod }]));
  const user = { name: 'system:node:n', groups: ['system:nodes'] };
  const decide = (more: Partial<AuthorizationAttributes>) => node.authorize(ask({ user, ...more }));
  assert.equal(decide({ resource: 'secrets', name: 'env' }).decision, 'allow');
  assert.equal(decide({ resource: 'configmaps', name: 'cm' }).decision, 'allow');
  assert.equal(
    decide({ resource: 'secrets', name: 'cm' }).reason,
    "no relationship found between node 'n' and this object",
  );
  assert.equal(decide({ resource: 'secrets', name: 'env', namespace: 'other' }).decision, 'no-opinion');
  assert.equal(
    decide({ resource: 'secrets', name: 'env', user: { name: 'system:node:o', groups: ['system:nodes'] } }).decision,
    'no-opinion',
  );
  assert.equal(
    decide({ resource: 'secrets', name: 'env', user: { name: 'system:node:n', groups: [] } }).decision,
    'no-opinion',
  );
  assert.equal(decide({ resource: 'secrets', verb: 'list' }).reason, 'No Object name found');
});
