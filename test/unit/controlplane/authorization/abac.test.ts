/** Tests what a line of the ABAC policy file allows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { abacAuthorizer } from '../../../../controlplane/authorization/abac.ts';
import type { AuthorizationAttributes, Decision } from '../../../../controlplane/authorization/authorization.ts';

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
const known = ['system:authenticated'];

const table: readonly (readonly [string, AuthorizationAttributes, boolean])[] = [
  [
    'an administrator deletes anything',
    asked('admin', known, { verb: 'delete', group: 'apps', resource: 'deployments' }),
    true,
  ],
  ['a reader reads', asked('reader', known, { verb: 'list' }), true],
  ['a reader does not write', asked('reader', known, { verb: 'create' }), false],
  ['a reader reads there only', asked('reader', known, { namespace: 'm' }), false],
  ['a reader reads those only', asked('reader', known, { resource: 'secrets' }), false],
  [
    'a group writes in its namespace',
    asked('x', [...known, 'devs'], { verb: 'create', group: 'apps', resource: 'deployments', namespace: 'dev' }),
    true,
  ],
  ['a group stays in its API group', asked('x', [...known, 'devs'], { namespace: 'dev' }), false],
  ['everybody who is known reads a path', asked('x', known, path('/version/openapi')), true],
  ['a path is not written', asked('x', known, path('/version', 'post')), false],
  ['an exact path is exact', asked('x', known, path('/healthz/ping')), false],
  ['nobody is not everybody', asked('system:anonymous', ['system:unauthenticated'], path('/version')), false],
];
for (const [name, attributes, allowed] of table) {
  test(name, () => {
    assert.equal((authorizer.authorize(attributes) as Decision).decision, allowed ? 'allow' : 'no-opinion');
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
