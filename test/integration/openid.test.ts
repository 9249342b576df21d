/**
 * Tests OpenID Connect with a real issuer (oidc-provider) over TLS: which tokens are accepted, which are refused, and the
 * behaviour while the issuer does not respond.
 */
import assert from 'node:assert/strict';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createServer, type Server, request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWK } from 'jose';
import Provider from 'oidc-provider';
import { silentLogger } from '../../api/component/logger.ts';
import { stringifyYaml } from '../../api/codec/yaml.ts';
import { startControlPlane } from '../../controlplane/main.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { oidcAuthenticator, type OidcOptions } from '../../controlplane/security/authentication/oidc.ts';
import { WebhookClient } from '../../controlplane/security/webhooks/webhook-client.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const client = new WebhookClient('test');
let server: Server;
let issuer = '';
let ca = '';
let signing: CryptoKey;

before(async () => {
  const authority = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.now() - DAY, notAfterMs: Date.now() + DAY };
  const raw = createCertificate(
    {
      subject: { commonName: 'ca' },
      publicKey: authority.publicKey,
      ...window,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: authority.privateKey },
  );
  ca = certificatePem(raw);
  const keys = await generateKey('ecdsa');
  const cert = createCertificate(
    {
      subject: { commonName: 'localhost' },
      publicKey: keys.publicKey,
      ...window,
      extendedKeyUsages: ['server auth'],
      names: { dns: ['localhost'], ip: ['127.0.0.1'] },
    },
    { privateKey: authority.privateKey, certificate: parseCertificate(raw) },
  );
  server = createServer({ cert: certificatePem(cert), key: privateKeyPem(keys.privateKey) });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  issuer = `https://localhost:${(server.address() as AddressInfo).port}`;
  const pair = await generateKeyPair('RS256', { extractable: true });
  signing = pair.privateKey;
  const key: JWK = { ...(await exportJWK(pair.privateKey)), kid: 'one', alg: 'RS256', use: 'sig' };
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    clients: [
      {
        client_id: 'orchlet',
        client_secret: 'hidden',
        redirect_uris: [],
        response_types: [],
        grant_types: ['urn:test'],
        token_endpoint_auth_method: 'client_secret_post',
      },
    ],
    features: { devInteractions: { enabled: false } },
    cookies: { keys: ['for-this-test'] },
  });
  // A custom grant is the shortest way to a token that the issuer itself creates.
  provider.registerGrantType('urn:test', async (ctx) => {
    const { IdToken } = ctx.oidc.provider;
    const token = new IdToken({ sub: 'ann' }, { ctx });
    token.scope = 'openid';
    token.set('groups', ['devs']);
    token.set('hd', 'example.com');
    ctx.body = { id_token: await token.issue({ use: 'idtoken' }) };
  });
  const handle = provider.callback();
  server.on('request', (message, response) => void handle(message, response));
});

after(() => {
  client.close();
  server.closeAllConnections();
  server.close();
});

const authenticator = (more: Partial<OidcOptions> = {}) =>
  oidcAuthenticator({
    issuerUrl: issuer,
    clientId: 'orchlet',
    usernameClaim: 'sub',
    usernamePrefix: undefined,
    groupsClaim: 'groups',
    groupsPrefix: 'oidc:',
    requiredClaims: {},
    signingAlgorithms: ['RS256'],
    ca,
    client,
    clock: systemClock,
    logger: silentLogger,
    ...more,
  });

function issuedToken(): Promise<string> {
  const body = new URLSearchParams({
    grant_type: 'urn:test',
    client_id: 'orchlet',
    client_secret: 'hidden',
  }).toString();
  return new Promise((resolve, reject) => {
    const sent = httpsRequest(
      `${issuer}/token`,
      {
        method: 'POST',
        ca,
        agent: false,
        headers: { 'content-type': 'application/x-www-form-urlencoded', 'content-length': body.length },
      },
      (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('end', () => {
          const answer = JSON.parse(text) as { id_token?: string };
          if (answer.id_token === undefined) reject(new Error(text));
          else resolve(answer.id_token);
        });
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Signs a token with the issuer's key that the issuer would not create. */
const forged = (
  claims: Record<string, unknown>,
  header: { alg: string; kid?: string } = { alg: 'RS256', kid: 'one' },
  key = signing,
) =>
  new SignJWT({ iss: issuer, aud: 'orchlet', sub: 'ann', exp: Math.floor(Date.now() / 1000) + 600, ...claims })
    .setProtectedHeader(header)
    .sign(key);

test('a token of the issuer authenticates its subject with prefixes', async () => {
  const known = await authenticator().authenticateToken(await issuedToken(), []);
  assert.equal(known?.user.name, `${issuer}#ann`);
  assert.deepEqual(known.user.groups, ['oidc:devs']);
});

test('prefixes and required claims follow the flags', async () => {
  const known = await authenticator({ usernamePrefix: '-', groupsPrefix: '', requiredClaims: { hd: 'example.com' } });
  assert.equal((await known.authenticateToken(await issuedToken(), []))?.user.name, 'ann');
  const strict = authenticator({ requiredClaims: { hd: 'other.com' } });
  await assert.rejects(async () => strict.authenticateToken(await issuedToken(), []), /required claim/);
});

const refused: readonly (readonly [string, () => Promise<string>])[] = [
  ['that has expired', () => forged({ exp: Math.floor(Date.now() / 1000) - 60 })],
  ['for somebody else', () => forged({ aud: 'other' })],
  ['without the subject', () => forged({ sub: undefined })],
  [
    'with a key that the issuer does not publish',
    async () => forged({}, { alg: 'RS256', kid: 'two' }, (await generateKeyPair('RS256')).privateKey),
  ],
  [
    'with another key under the known name',
    async () => forged({}, { alg: 'RS256', kid: 'one' }, (await generateKeyPair('RS256')).privateKey),
  ],
  [
    'with an algorithm that is not accepted',
    async () => forged({}, { alg: 'ES256', kid: 'one' }, (await generateKeyPair('ES256')).privateKey),
  ],
  [
    'without a signature',
    async () => `${Buffer.from('{"alg":"none"}').toString('base64url')}.${(await forged({})).split('.')[1]}.`,
  ],
];
for (const [name, make] of refused) {
  test(`a token ${name} is refused`, async () => {
    await assert.rejects(async () => {
      const known = await authenticator().authenticateToken(await make(), []);
      if (known === undefined) throw new Error('nobody');
    });
  });
}

test('a token of another issuer is passed to the next authenticator', async () => {
  assert.equal(await authenticator().authenticateToken(await forged({ iss: 'https://elsewhere' }), []), undefined);
});

test('an issuer with a certificate of an unknown CA is refused', async () => {
  const other = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName: 'other' },
      publicKey: other.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      basicConstraints: { isCa: true },
    },
    { privateKey: other.privateKey },
  );
  await assert.rejects(async () =>
    authenticator({ ca: certificatePem(raw) }).authenticateToken(await issuedToken(), []),
  );
});

test('while an issuer is unreachable, tokens of unknown keys are refused, and those of cached keys are accepted', async () => {
  const known = authenticator();
  const token = await issuedToken();
  assert.ok(await known.authenticateToken(token, []));
  const cold = authenticator({ issuerUrl: 'https://localhost:9' });
  await assert.rejects(async () => cold.authenticateToken(await forged({ iss: 'https://localhost:9' }), []));
  assert.ok(await known.authenticateToken(token, []));
});

test('a server takes issuers and anonymous paths from its configuration file, and follows the file', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'authentication.yaml');
  const tokenAuthFile = join(directory, 'tokens.csv');
  writeFileSync(tokenAuthFile, 'admin-token,admin,1,"system:masters"\n');
  writeConfiguration(path, { prefix: 'corp:' });
  const plane = await startControlPlane({
    memory: true,
    flags: { authenticationConfig: path, tokenAuthFile, controllers: ['-*'], scheduler: false },
  });
  const call = async (target: string, token?: string, body?: object): Promise<{ status: number; text: string }> => {
    const answer = await client.call(
      {
        url: new URL(target, plane.url),
        ca: plane.ca,
        purpose: 'configured',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      {
        method: body === undefined ? 'GET' : 'POST',
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(60_000),
      },
    );
    return { status: answer.status, text: answer.body.toString() };
  };
  const whoIs = async (token: string): Promise<{ username: string; groups: string[] }> => {
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
    const { status, text } = await call('/apis/authentication.k8s.io/v1/selfsubjectreviews', token, review);
    assert.equal(status, 201, text);
    return (JSON.parse(text) as { status: { userInfo: { username: string; groups: string[] } } }).status.userInfo;
  };
  const reloads = async (status: string): Promise<number> => {
    const { text } = await call('/metrics', 'admin-token');
    const line = new RegExp(
      `authentication_config_controller_automatic_reloads_total\\{.*status="${status}"\\} (\\d+)`,
    );
    return Number(line.exec(text)?.[1] ?? 0);
  };
  try {
    const token = await issuedToken();
    const { username, groups } = await whoIs(token);
    assert.deepEqual([username, groups], ['corp:ann', ['corp:devs', 'system:authenticated']]);
    assert.equal((await call('/version', await forged({ hd: 'elsewhere.example' }))).status, 401);
    assert.equal((await call('/livez')).status, 200);
    assert.equal((await call('/version')).status, 401);

    writeConfiguration(path, { prefix: 'new:' });
    await until('the changed file is taken up', async () => (await whoIs(token)).username === 'new:ann');
    assert.equal(await reloads('success'), 1);
    writeFileSync(path, 'kind: Nothing\n');
    await until('a file that will not do is counted', async () => (await reloads('failure')) === 1);
    writeConfiguration(path, { prefix: 'newer:', anonymousPath: '/version' });
    await until('a change of who is anonymous is refused', async () => (await reloads('failure')) === 2);
    assert.equal((await whoIs(token)).username, 'new:ann');
    assert.equal((await call('/version')).status, 401);
    // While the issuer is missing from the configuration, its tokens are refused, even if they were verified recently.
    writeConfiguration(path, { prefix: 'new:', issuers: false });
    await until('the issuer is gone', async () => (await call('/version', token)).status === 401);
  } finally {
    await plane.close();
    rmSync(directory, { recursive: true, force: true });
  }
});

function writeConfiguration(
  path: string,
  { prefix, anonymousPath = '/livez', issuers = true }: { prefix: string; anonymousPath?: string; issuers?: boolean },
): void {
  const own = {
    issuer: {
      url: issuer,
      certificateAuthority: ca,
      audiences: ['other', 'orchlet'],
      audienceMatchPolicy: 'MatchAny',
    },
    claimValidationRules: [{ expression: 'claims.hd == "example.com"' }],
    claimMappings: {
      username: { expression: `"${prefix}" + claims.sub` },
      groups: { expression: `claims.groups.map(g, "${prefix}" + g)` },
    },
  };
  const text = stringifyYaml({
    apiVersion: 'apiserver.config.k8s.io/v1',
    kind: 'AuthenticationConfiguration',
    jwt: issuers ? [own] : [],
    anonymous: { enabled: true, conditions: [{ path: anonymousPath }] },
  });
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}
