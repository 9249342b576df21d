/** Each claim of an OpenID token, and each part of its issuer's documents, can make it invalid. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { signJwt } from '../../../../../controlplane/security/authentication/jwt.ts';
import { oidcAuthenticator } from '../../../../../controlplane/security/authentication/oidc.ts';
import type { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const ISSUER = 'https://issuer.example';
const clock = new FakeClock();
const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const nowSeconds = Math.floor(clock.now() / 1000);
const CLAIMS = {
  ...{ iss: ISSUER, aud: ['other', 'me'], email: 'jo@example.com', groups: ['devs'], team: 'a' },
  ...{ exp: nowSeconds + 60, nbf: nowSeconds },
};
const OPTIONS = {
  ...{ issuerUrl: ISSUER, clientId: 'me', usernameClaim: 'email', usernamePrefix: '-', groupsClaim: 'groups' },
  ...{ groupsPrefix: 'oidc:', requiredClaims: { team: 'a' }, signingAlgorithms: ['RS256'] },
};
const DISCOVERY = { issuer: ISSUER, jwks_uri: `${ISSUER}/keys` };
const KEYS = { keys: [publicKey.export({ format: 'jwk' })] };

interface Documents {
  readonly discovery?: unknown;
  readonly keys?: unknown;
  readonly status?: number;
}

function authenticatorOf(options: object = {}, { discovery = DISCOVERY, keys = KEYS, status = 200 }: Documents = {}) {
  const client: Pick<WebhookClient, 'call'> = {
    call: ({ url }) =>
      Promise.resolve({
        status,
        contentType: 'application/json',
        body: Buffer.from(JSON.stringify(url.pathname === '/keys' ? keys : discovery)),
      }),
  };
  return oidcAuthenticator({
    ...{ ...OPTIONS, ...options },
    ...{ clock, logger: silentLogger, client: client as WebhookClient },
  });
}

const tokenOf = (claims: object = {}, alg = 'RS256'): string => signJwt({ ...CLAIMS, ...claims }, privateKey, { alg });

test('a token with all claims is that of its user, with the prefixes of the configuration', async () => {
  const found = await authenticatorOf().authenticateToken(tokenOf({ email_verified: true }), []);
  assert.deepEqual(found?.user, { name: 'jo@example.com', groups: ['oidc:devs'] });
});

for (const [what, claims, reason] of [
  ['that has expired', { exp: nowSeconds - 1 }, /token is expired/],
  ['that never expires', { exp: undefined }, /token is expired/],
  ['that is not valid yet', { nbf: nowSeconds + 301 }, /not valid yet/],
  ['for another audience', { aud: ['other'] }, /is for none of the audiences \[me\]/],
  ['without an audience', { aud: undefined }, /is for none of the audiences \[me\]/],
  ['without a required claim', { team: undefined }, /required claim team not present/],
  ['with another value of a required claim', { team: 'b' }, /required claim team value does not match/],
  ['with a list as the value of a required claim', { team: ['a'] }, /required claim team value does not match/],
  ['without the name of its user', { email: '' }, /claim not present/],
  ['whose name is no text', { email: ['jo@example.com'] }, /claim not present/],
  ['whose email is not verified', { email_verified: false }, /email not verified/],
  ['whose email is verified by a text', { email_verified: 'true' }, /email not verified/],
  ['with a group that is no text', { groups: ['devs', 1] }, /not an array of strings/],
] as const)
  test(`an OpenID token ${what} is refused`, async () =>
    assert.rejects(async () => authenticatorOf().authenticateToken(tokenOf(claims), []), reason));

for (const algorithm of ['RS384', 'PS256'])
  test(`an OpenID token signed with ${algorithm}, which the configuration does not list, is refused`, async () =>
    assert.rejects(async () => authenticatorOf().authenticateToken(tokenOf({}, algorithm), []), /is not accepted/));

for (const [what, documents] of Object.entries({
  'the discovery document of another issuer': { discovery: { ...DISCOVERY, issuer: 'https://other.example' } },
  'a discovery document with keys over plain text': {
    discovery: { ...DISCOVERY, jwks_uri: 'http://issuer.example/keys' },
  },
  'a discovery document without keys': { discovery: { issuer: ISSUER } },
  'a discovery document that is a list': { discovery: [] },
  'a key set without keys': { keys: {} },
  'an error with the documents as its body': { status: 500 },
}))
  test(`${what} verifies no token`, async () => {
    const authenticator = authenticatorOf({}, documents);
    await assert.rejects(async () => authenticator.authenticateToken(tokenOf(), []), /failed to verify signature/);
    assert.equal(await authenticator.ready(), false);
  });

for (const [what, options, reason] of [
  ['a URL over plain text', { issuerUrl: 'http://issuer.example' }, /must be an https URL/],
  ['a user in the URL', { issuerUrl: 'https://jo@issuer.example' }, /user information/],
  ['a query in the URL', { issuerUrl: 'https://issuer.example?a' }, /a query/],
  ['no client', { clientId: '' }, /client-id is required/],
  ['an algorithm with a shared key', { signingAlgorithms: ['HS256'] }, /unsupported signing alg/],
  ['no signature', { signingAlgorithms: ['none'] }, /unsupported signing alg/],
] as const)
  test(`an issuer with ${what} is refused`, () => assert.throws(() => authenticatorOf(options), reason));
