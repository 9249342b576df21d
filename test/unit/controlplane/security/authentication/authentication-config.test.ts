/** Tests the structured authentication configuration: issuers, mappings and rules in CEL, anonymous paths. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadAuthenticationConfig } from '../../../../../controlplane/security/authentication/authentication-config.ts';

const load = (rest: string): ReturnType<typeof loadAuthenticationConfig> =>
  loadAuthenticationConfig(
    `apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n${rest}`,
    'config.yaml',
  );
const issuer = 'issuer: {url: "https://issuer.example", audiences: [a]}';

test('expressions check and map claims, and validate the user', () => {
  const { jwt } = load(`jwt:
- ${issuer}
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: 'claims.level > 2', message: too low}
  claimMappings:
    username: {expression: '"corp:" + claims.sub'}
    groups: {claim: roles, prefix: "r:"}
    uid: {claim: id}
    extra:
    - {key: example.com/team, valueExpression: 'claims.team'}
  userValidationRules:
  - {expression: "!user.username.startsWith('corp:system:')", message: reserved}
`);
  const userOf = jwt[0]?.userOf ?? assert.fail();
  const claims = { sub: 'ann', hd: 'example.com', level: 3, roles: ['x', 'y'], id: 'i', team: 't' };
  assert.deepEqual(userOf(claims), {
    name: 'corp:ann',
    groups: ['r:x', 'r:y'],
    uid: 'i',
    extra: { 'example.com/team': ['t'] },
  });
  assert.throws(() => userOf({ ...claims, level: 1 }), /too low/);
  assert.throws(() => userOf({ ...claims, hd: 'other' }), /required claim hd value does not match/);
  assert.throws(() => userOf({ ...claims, sub: 'system:admin' }), /reserved/);
  assert.throws(() => userOf({ ...claims, roles: [1] }), /groups/);
});

test('anonymous requests may be limited to paths', () => {
  assert.deepEqual(load('anonymous: {enabled: true, conditions: [{path: /livez}]}').anonymous, {
    enabled: true,
    paths: ['/livez'],
  });
  assert.deepEqual(load('anonymous: {enabled: false}').anonymous, { enabled: false });
});

for (const [why, rest, reason] of [
  ['no audiences', 'jwt: [{issuer: {url: "https://a.example"}}]', /audiences/],
  ['no username', `jwt: [{${issuer}}]`, /claimMappings.username/],
  ['a claim without a prefix', `jwt: [{${issuer}, claimMappings: {username: {claim: sub}}}]`, /prefix is required/],
  [
    'an expression that does not compile',
    `jwt: [{${issuer}, claimMappings: {username: {expression: "nobody.sub"}}}]`,
    /compilation failed/,
  ],
  [
    'an address that is not verified',
    `jwt: [{${issuer}, claimMappings: {username: {expression: "claims.email"}}}]`,
    /email_verified/,
  ],
  ['conditions without anonymous', 'anonymous: {enabled: false, conditions: [{path: /a}]}', /only allowed/],
] as const) {
  test(`a configuration with ${why} is refused`, () => assert.throws(() => load(rest), reason));
}
