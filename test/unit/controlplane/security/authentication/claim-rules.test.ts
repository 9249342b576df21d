/** The claims of a token become a user only by the rules of the configuration; whatever does not fit is refused. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { claimRules } from '../../../../../controlplane/security/authentication/claim-rules.ts';

const byClaim = { claimMappings: { username: { claim: 'sub', prefix: 'oidc:' } } };
const byEmail = { claimMappings: { username: { claim: 'email', prefix: '' } } };

describe('the user of a token', () => {
  it('has the name with its prefix, the groups, the uid and the extra attributes that the mappings name', () => {
    const userOf = claimRules({
      claimMappings: {
        username: { claim: 'sub', prefix: 'oidc:' },
        groups: { claim: 'roles', prefix: 'oidc:' },
        uid: { expression: 'claims.id' },
        extra: [{ key: 'example.com/team', valueExpression: 'claims.team' }],
      },
    });
    assert.deepEqual(userOf({ sub: 'jane', roles: ['dev', 'ops'], id: '7', team: 'a' }), {
      name: 'oidc:jane',
      groups: ['oidc:dev', 'oidc:ops'],
      uid: '7',
      extra: { 'example.com/team': ['a'] },
    });
  });

  it('has no groups without a mapping, and one group for a claim that is a text', () => {
    assert.deepEqual(claimRules(byClaim)({ sub: 'jane', roles: ['dev'] }).groups, []);
    const groups = { claimMappings: { ...byClaim.claimMappings, groups: { claim: 'roles', prefix: '' } } };
    assert.deepEqual(claimRules(groups)({ sub: 'jane', roles: 'dev' }).groups, ['dev']);
  });

  for (const [what, rules, claims, message] of [
    ['whose name claim is missing', byClaim, {}, 'username claim not present'],
    ['whose name claim is a number', byClaim, { sub: 7 }, 'username claim not present'],
    [
      'whose name claim is inherited',
      { claimMappings: { username: { claim: 'constructor', prefix: '' } } },
      {},
      'username',
    ],
    ['whose e-mail address is not verified', byEmail, { email: 'a@b', email_verified: false }, 'email not verified'],
    ['whose verification is a text', byEmail, { email: 'a@b', email_verified: 'true' }, 'email not verified'],
    [
      'without a required claim',
      { ...byClaim, claimValidationRules: [{ claim: 'hd', requiredValue: 'example.com' }] },
      { sub: 'jane' },
      'required claim hd not present',
    ],
    [
      'with another value of a required claim',
      { ...byClaim, claimValidationRules: [{ claim: 'hd', requiredValue: 'example.com' }] },
      { sub: 'jane', hd: 'example.org' },
      'required claim hd value does not match',
    ],
    [
      'that a rule on claims refuses',
      { ...byClaim, claimValidationRules: [{ expression: "claims.sub != 'root'", message: 'no root' }] },
      { sub: 'root' },
      'no root',
    ],
    [
      'that a rule on the user refuses',
      {
        claimMappings: { username: { claim: 'sub', prefix: '' } },
        userValidationRules: [{ expression: "!user.username.startsWith('system:')", message: 'reserved' }],
      },
      { sub: 'system:admin' },
      'user validation failed: reserved',
    ],
    [
      'whose groups are numbers',
      { claimMappings: { ...byClaim.claimMappings, groups: { claim: 'roles', prefix: '' } } },
      { sub: 'jane', roles: [1] },
      'groups must be a text or a list of texts',
    ],
  ] as const)
    it(`is refused for a token ${what}`, () => {
      const userOf = claimRules(rules);
      assert.throws(
        () => userOf(claims),
        (error: Error) => error.message.includes(message),
      );
    });
});

describe('rules on claims', () => {
  for (const [what, rules, message] of [
    ['without a mapping of the name', {}, 'claimMappings.username: Required value'],
    [
      'with a claim without a prefix',
      { claimMappings: { username: { claim: 'sub' } } },
      'username.prefix: Required value',
    ],
    [
      'with a claim and an expression',
      { claimMappings: { username: { claim: 'sub', expression: 'claims.sub' } } },
      "can't both be set",
    ],
    [
      'with an expression that does not compile',
      { claimMappings: { username: { expression: 'claims.' } } },
      'username.expression',
    ],
    [
      'with an extra key in capitals',
      { claimMappings: { ...byClaim.claimMappings, extra: [{ key: 'A/b', valueExpression: "'x'" }] } },
      'key must be lowercase',
    ],
    [
      'that use an e-mail address without its verification',
      { claimMappings: { username: { expression: 'claims.email' } } },
      'claims.email_verified must be used',
    ],
  ] as const)
    it(`${what} are refused at the start, with the path of the field`, () => {
      assert.throws(
        () => claimRules(rules),
        (error: Error) => error.message.includes(message),
      );
    });
});
