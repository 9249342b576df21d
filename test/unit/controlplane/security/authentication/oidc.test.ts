/** Tests the keys of an issuer of OpenID Connect. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { type Clock, systemClock } from '../../../../../api/machinery/clock.ts';
import { signJwt } from '../../../../../controlplane/security/authentication/jwt.ts';
import { oidcAuthenticator } from '../../../../../controlplane/security/authentication/oidc.ts';
import type { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const ISSUER = 'https://issuer.example';
const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const { publicKey: another } = generateKeyPairSync('rsa', { modulusLength: 2048 });

/** Returns an authenticator whose issuer has so many keys; the last one has signed the token. */
const authenticator = (keys: number) =>
  authenticatorWith(
    Array.from({ length: keys }, (_key, at) => (at === keys - 1 ? publicKey : another).export({ format: 'jwk' })),
  );

/** Returns an authenticator whose issuer has these JSON web keys. */
function authenticatorWith(keys: readonly unknown[], onUnreadableKey?: () => void, clock: Clock = systemClock) {
  const documents: Readonly<Record<string, unknown>> = {
    '/.well-known/openid-configuration': { issuer: ISSUER, jwks_uri: `${ISSUER}/keys` },
    '/keys': { keys },
  };
  const client: Pick<WebhookClient, 'call'> = {
    call: ({ url }) =>
      Promise.resolve({
        status: 200,
        contentType: 'application/json',
        body: Buffer.from(JSON.stringify(documents[url.pathname])),
      }),
  };
  return oidcAuthenticator({
    ...{
      issuerUrl: ISSUER,
      clientId: 'me',
      usernameClaim: 'sub',
      usernamePrefix: '-',
      groupsClaim: '',
      groupsPrefix: '',
    },
    ...{ requiredClaims: {}, signingAlgorithms: ['RS256'], clock, logger: silentLogger },
    client: client as WebhookClient,
    onUnreadableKey,
  });
}

const token = (): string =>
  signJwt({ iss: ISSUER, aud: 'me', sub: 'jo', exp: Date.now() / 1000 + 60 }, privateKey, { alg: 'RS256' });

test('a token without a key id is verified with the keys of its issuer', async () => {
  const found = await authenticator(128).authenticateToken(token(), []);
  assert.equal(found?.user.name, 'jo');
});

test('more keys of an issuer than a token can be verified with in one turn are refused', async () => {
  const many = authenticator(129);
  assert.equal(await many.ready(), false);
  await assert.rejects(async () => many.authenticateToken(token(), []), /failed to verify signature/);
});

const { n, e } = publicKey.export({ format: 'jwk' });
for (const [what, broken] of Object.entries({
  'without a modulus': { kty: 'RSA', e },
  'whose modulus is a number': { kty: 'RSA', n: 5, e },
  'on an unknown curve': { kty: 'EC', crv: 'P-1', x: 'AA', y: 'AA' },
  'that is a point beside its curve': { kty: 'EC', crv: 'P-256', x: 'AA', y: 'AA' },
  'that is null': null,
  'that is a text': 'key',
  'with a modulus of 16384 bits': { kty: 'RSA', n: Buffer.alloc(2048, 0xff).toString('base64url'), e },
  'with an exponent of 2048 bits': { kty: 'RSA', n, e: n },
}))
  test(`a key ${what} is counted, and keeps no token of the other keys of its issuer from being accepted`, async () => {
    let unreadable = 0;
    const jwk = publicKey.export({ format: 'jwk' });
    const issuer = authenticatorWith([broken, jwk, broken], () => unreadable++);
    assert.equal((await issuer.authenticateToken(token(), []))?.user.name, 'jo');
    assert.equal(unreadable, 2);
  });

test('keys of another use or kind are no error', async () => {
  let unreadable = 0;
  const jwk = publicKey.export({ format: 'jwk' });
  const others = [
    { ...jwk, use: 'enc' },
    { kty: 'oct', k: 'AA' },
  ];
  const issuer = authenticatorWith([...others, jwk], () => unreadable++);
  assert.equal((await issuer.authenticateToken(token(), []))?.user.name, 'jo');
  assert.equal(unreadable, 0);
});

for (const [what, header] of Object.entries({ 'without a key id': {}, 'with an empty key id': { kid: '' } }))
  test(`a token ${what} of a key that is not cached causes a fetch of the keys`, async () => {
    const clock = new FakeClock();
    const keys: unknown[] = [another.export({ format: 'jwk' })];
    const issuer = authenticatorWith(keys, undefined, clock);
    const claims = { iss: ISSUER, aud: 'me', sub: 'jo', exp: clock.now() / 1000 + 60 };
    const signed = signJwt(claims, privateKey, { alg: 'RS256', ...header });
    await assert.rejects(async () => issuer.authenticateToken(signed, []), /failed to verify signature/);
    keys.push(publicKey.export({ format: 'jwk' }));
    await clock.advance(10_000);
    assert.equal((await issuer.authenticateToken(signed, []))?.user.name, 'jo');
  });
