/** Tests the keys of an issuer of OpenID Connect. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { signJwt } from '../../../../controlplane/authentication/jwt.ts';
import { oidcAuthenticator } from '../../../../controlplane/authentication/oidc.ts';
import type { WebhookClient } from '../../../../controlplane/authentication/webhook-client.ts';

const ISSUER = 'https://issuer.example';
const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const { publicKey: another } = generateKeyPairSync('rsa', { modulusLength: 2048 });

/** An authenticator whose issuer has so many keys; the last one has signed the token. */
function authenticator(keys: number) {
  const documents: Readonly<Record<string, unknown>> = {
    '/.well-known/openid-configuration': { issuer: ISSUER, jwks_uri: `${ISSUER}/keys` },
    '/keys': {
      keys: Array.from({ length: keys }, (_key, at) =>
        (at === keys - 1 ? publicKey : another).export({ format: 'jwk' }),
      ),
    },
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
    ...{ requiredClaims: {}, signingAlgorithms: ['RS256'], clock: systemClock, logger: silentLogger },
    client: client as WebhookClient,
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
