/** Tests what a line of the ABAC policy file allows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { abacAuthorizer } from '../../../../../controlplane/security/authorization/abac.ts';
import type {
  AuthorizationAttributes,
  Decision,
} from '../../../../../controlplane/security/authorization/authorization.ts';

const policy = (spec: object): string =>
  JSON.stringify({ apiVersion: 'abac.authorization.kubernetes.io/v1beta1', kind: 'Policy', spec });
const authorizer = abacAuthorizer(
  [
    '# administrators',
    policy({ user: 'admin', namespace: '*', resource: '*', apiGroup: '*' }),
    policy({ user: 'reader', namespace: 'n', resource: 'pods', readonly: true }),
    policy({ group: 'devs', namespace: 'dev', resource: '*', apiGroup: 'apps' }),
    policy({ user: '*', nonResourcePath: '/version*', readonly: true }),
    policy({ group: 'system:authenticated', nonResourcePath: '/healthz' }),
  ].join('\n'),
  'policy.jsonl',
);

const asked = (
  user: string,
  groups: readonly string[],
  more: Partial<AuthorizationAttributes>,
): AuthorizationAttributes => ({
  user: { name: user, groups },
  verb: 'get',
  isResourceRequest: true,
  group: '',
  version: 'v1',
  resource: 'pods',
  subresource: '',
  namespace: 'n',
  name: '',
  path: '',
  ...more,
});
const path = (url: string, verb = 'get') => ({
  isResourceRequest: false,
  path: url,
  verb,
  resource: '',
  namespace: '',
});
const authenticated = ['system:authenticated'];

const table: readonly (readonly [string, AuthorizationAttributes, boolean])[] = [
  [
    'an administrator deletes anything',
    asked('admin', authenticated, { verb: 'delete', group: 'apps', resource: 'deployments' }),
    true,
  ],
  ['a reader reads', asked('reader', authenticated, { verb: 'list' }), true],
  ['a reader does not write', asked('reader', authenticated, { verb: 'create' }), false],
  ['a reader of one namespace reads no other namespace', asked('reader', authenticated, { namespace: 'm' }), false],
  ['a reader of pods reads no other resource', asked('reader', authenticated, { resource: 'secrets' }), false],
  [
    'a group writes in its namespace',
    asked('x', [...authenticated, 'devs'], {
      verb: 'create',
      group: 'apps',
      resource: 'deployments',
      namespace: 'dev',
    }),
    true,
  ],
  ['a group stays in its API group', asked('x', [...authenticated, 'devs'], { namespace: 'dev' }), false],
  ['every authenticated user reads a path below a prefix', asked('x', authenticated, path('/version/openapi')), true],
  ['a read-only path is not written', asked('x', authenticated, path('/version', 'post')), false],
  ['a path without an asterisk matches nothing below it', asked('x', authenticated, path('/healthz/ping')), false],
  [
    'the user * does not match unauthenticated users',
    asked('system:anonymous', ['system:unauthenticated'], path('/version')),
    false,
  ],
];
for (const [name, attributes, allowed] of table) {
  test(name, () => {
    assert.equal((authorizer.authorize(attributes) as Decision).decision, allowed ? 'allow' : 'no-opinion');
  });
}

for (const [form, version] of [
  ['without a version', {}],
  ['of version v0', { apiVersion: 'abac.authorization.kubernetes.io/v0', kind: 'Policy' }],
] as const) {
  test(`a policy ${form} has its fields beside its kind, and the group * in it is every authenticated user`, () => {
    const old = abacAuthorizer(JSON.stringify({ ...version, user: 'ann', group: '*', resource: 'pods' }), 'p.jsonl');
    const decide = (attributes: AuthorizationAttributes): string => (old.authorize(attributes) as Decision).decision;
    assert.equal(decide(asked('ben', authenticated, { group: 'apps' })), 'allow');
    assert.equal(decide(asked('ben', authenticated, { resource: 'secrets' })), 'no-opinion');
    assert.equal(decide(asked('system:anonymous', ['system:unauthenticated'], {})), 'no-opinion');
  });
}

for (const [why, line] of [
  ['no JSON', '{"apiVersion":'],
  ['another kind', '{"apiVersion":"v1","kind":"Pod"}'],
] as const) {
  test(`a line that is ${why} stops the start, with its number`, () => {
    assert.throws(() => abacAuthorizer(`\n${line}`, 'p.jsonl'), /p\.jsonl, line 2/);
  });
}
