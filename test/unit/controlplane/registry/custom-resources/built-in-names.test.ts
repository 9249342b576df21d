/**
 * Tests definitions with the names of built-in resources: the permission to write definitions must not include that of
 * authentication and authorization.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Resource } from '../../../../../api/client/client.ts';
import { customResourceDefinitions } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { isNotFound } from '../../../../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../../../../controlplane/main.ts';
import type { Definition } from '../../../../../controlplane/registry/kinds/apiextensions/definition.ts';
import { until } from '../../../../until.ts';

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane({ memory: true, flags: { controllers: ['-*'], scheduler: false } });
});
after(() => plane.close());

const GARBAGE = {
  type: 'object',
  'x-kubernetes-preserve-unknown-fields': true,
  properties: {
    status: {
      type: 'object',
      default: { allowed: true, authenticated: true, user: { username: 'root', groups: ['system:masters'] } },
      'x-kubernetes-preserve-unknown-fields': true,
    },
  },
};

interface Names {
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
}

async function define(group: string, { plural, singular, kind }: Names, scope: string): Promise<void> {
  const versions = ['v1', 'v1x1'].map((name) => ({
    name,
    served: true,
    storage: name === 'v1x1',
    schema: { openAPIV3Schema: GARBAGE },
  }));
  await plane.client.create(customResourceDefinitions, '', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}`, annotations: { 'api-approved.kubernetes.io': 'unapproved, test' } },
    spec: { group, scope, names: { plural, singular, kind, listKind: `${kind}List` }, versions },
  } as never);
}

const conditionsOf = async (name: string): Promise<Record<string, string>> => {
  const definition = (await plane.client.get(customResourceDefinitions, '', name)) as unknown as Definition;
  return Object.fromEntries((definition.status?.conditions ?? []).map(({ type, status }) => [type, status]));
};

const cases: readonly (readonly [string, Names, Resource, KubeObject])[] = [
  [
    'authentication.k8s.io',
    { plural: 'tokenreviews', singular: 'tokenreview', kind: 'TokenReview' },
    { group: 'authentication.k8s.io', version: 'v1', resource: 'tokenreviews', kind: 'TokenReview', namespaced: false },
    { metadata: {}, spec: { token: 'wrong' } } as KubeObject,
  ],
  [
    'authorization.k8s.io',
    { plural: 'subjectaccessreviews', singular: 'subjectaccessreview', kind: 'SubjectAccessReview' },
    {
      group: 'authorization.k8s.io',
      version: 'v1',
      resource: 'subjectaccessreviews',
      kind: 'SubjectAccessReview',
      namespaced: false,
    },
    { metadata: {}, spec: { user: 'ann', nonResourceAttributes: { path: '/secret', verb: 'get' } } } as KubeObject,
  ],
];
for (const [group, names, resource, review] of cases) {
  test(`a definition of ${names.plural} does not answer for the built-in ones, whatever its status says`, async () => {
    const name = `${names.plural}.${group}`;
    await define(group, names, 'Cluster');
    await until('the decision', async () => (await conditionsOf(name))['NamesAccepted'] !== undefined);
    assert.equal((await conditionsOf(name))['Established'], 'False');
    const definition = (await plane.client.get(customResourceDefinitions, '', name)) as unknown as Definition;
    const conditions = [{ type: 'Established', status: 'True', lastTransitionTime: null, reason: 'x', message: '' }];
    const forged = { ...definition, status: { ...definition.status, conditions } } as never;
    await plane.client.update(customResourceDefinitions, forged, { subresource: 'status' });
    await until('the decision', async () => (await conditionsOf(name))['NamesAccepted'] === 'False');
    const answer = await plane.client.create(resource, '', { apiVersion: `${group}/v1`, kind: names.kind, ...review });
    const { status = {} } = answer as unknown as { status?: { allowed?: boolean; authenticated?: boolean } };
    assert.notEqual(status.allowed, true);
    assert.notEqual(status.authenticated, true);
    const custom = { ...resource, version: 'v1x1' };
    await assert.rejects(plane.client.list(custom, {}), isNotFound);
  });
}

test('a definition with the names of roles neither gets the objects of the built-in roles nor deletes them with itself', async () => {
  const group = 'rbac.authorization.k8s.io';
  const roles: Resource = { group, version: 'v1', resource: 'roles', kind: 'Role', namespaced: true };
  const role = { apiVersion: `${group}/v1`, kind: 'Role', metadata: { name: 'kept' }, rules: [] };
  await plane.client.create(roles, 'default', role as KubeObject);
  await define(group, { plural: 'roles', singular: 'role', kind: 'Role' }, 'Namespaced');
  const name = `roles.${group}`;
  await until('the decision', async () => (await conditionsOf(name))['NamesAccepted'] === 'False');
  const garbage = { apiVersion: `${group}/v1`, kind: 'Role', metadata: { name: 'garbage' }, rules: 'all' };
  await assert.rejects(plane.client.create(roles, 'default', garbage as unknown as KubeObject), /cannot be handled/);
  await plane.client.delete(customResourceDefinitions, '', name);
  await until('the removal', async () =>
    plane.client.get(customResourceDefinitions, '', name).then(() => false, isNotFound),
  );
  assert.equal((await plane.client.get(roles, 'default', 'kept')).metadata.name, 'kept');
});
