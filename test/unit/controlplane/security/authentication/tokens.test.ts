import assert from 'node:assert/strict';
import { createHmac, createPublicKey, generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { bearerAuthenticator } from '../../../../../controlplane/security/authentication/bearer.ts';
import { bootstrapTokenAuthenticator } from '../../../../../controlplane/security/authentication/bootstrap-token.ts';
import { cachedTokens } from '../../../../../controlplane/security/authentication/cached-token.ts';
import { signJwt } from '../../../../../controlplane/security/authentication/jwt.ts';
import { requestHeaderAuthenticator } from '../../../../../controlplane/security/authentication/request-header.ts';
import {
  LEGACY_ISSUER,
  serviceAccountTokenAuthenticator,
  verificationKey,
} from '../../../../../controlplane/security/authentication/service-account.ts';
import { TokenIssuer } from '../../../../../controlplane/security/authentication/token-issuer.ts';
import { tokenFileAuthenticator } from '../../../../../controlplane/security/authentication/token-file.ts';
import type { PeerVerifier } from '../../../../../controlplane/security/authentication/client-certificate.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import type { Credentials } from '../../../../../controlplane/security/authentication/authentication.ts';

const ISSUER = 'https://kubernetes.default.svc';
const clock = new FakeClock();
const pair = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pem = pair.privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
const issuer = new TokenIssuer({ privateKeyPem: pem, verificationKeys: [], issuer: ISSUER, jwksUri: '', clock });
const account = { metadata: { name: 'sa', namespace: 'ns', uid: 'u1' } };
let pod: { metadata: { name: string; uid: string } } | undefined = { metadata: { name: 'p', uid: 'u2' } };

const tokens = serviceAccountTokenAuthenticator({
  issuers: [ISSUER],
  keys: [verificationKey(pem)],
  apiAudiences: [ISSUER],
  lookup: true,
  clock,
  lookups: {
    serviceAccount: (_namespace, name) => (name === 'sa' ? account : undefined),
    secret: () => undefined,
    pod: () => pod as never,
    node: () => undefined,
  },
});

const claims = (more: object = {}) => ({
  aud: [ISSUER],
  exp: clock.now() / 1000 + 600,
  iss: ISSUER,
  'kubernetes.io': { namespace: 'ns', serviceaccount: { name: 'sa', uid: 'u1' } },
  sub: 'system:serviceaccount:ns:sa',
  ...more,
});
const sign = (payload: object, key = pair.privateKey, header: { alg: string; kid?: string } = { alg: 'RS256' }) =>
  signJwt(payload, key, header);
const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

test('a token of the issuer is known', async () => {
  const { token } = issuer.issue({
    namespace: 'ns',
    account: { name: 'sa', uid: 'u1' },
    audiences: [ISSUER],
    expirationSeconds: 600,
  });
  const known = await tokens.authenticateToken(token, []);
  assert.equal(known?.user.name, 'system:serviceaccount:ns:sa');
  assert.deepEqual(known?.user.groups, ['system:serviceaccounts', 'system:serviceaccounts:ns']);
});

test('a token of a pod whose node does not exist names the node without a UID', async () => {
  const account = { name: 'sa', uid: 'u1' };
  const bound = { pod: { name: 'p', uid: 'u2' }, node: { name: 'n', uid: '' } };
  const { token } = issuer.issue({ namespace: 'ns', account, ...bound, audiences: [ISSUER], expirationSeconds: 600 });
  const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as Record<string, object>;
  assert.deepEqual((claims['kubernetes.io'] as { node?: object }).node, { name: 'n' });
});

test('a token of another issuer is passed to the next authenticator', async () => {
  assert.equal(await tokens.authenticateToken(sign(claims({ iss: 'https://elsewhere' })), []), undefined);
  assert.equal(await tokens.authenticateToken('not-a-token', []), undefined);
});

test('forged and stale tokens are refused', async () => {
  const none = `${part({ alg: 'none' })}.${part(claims())}.`;
  const publicPem = createPublicKey(pem).export({ type: 'spki', format: 'pem' }).toString();
  const input = `${part({ alg: 'HS256' })}.${part(claims())}`;
  const hs256 = `${input}.${createHmac('sha256', publicPem).update(input).digest('base64url')}`;
  assert.equal(await tokens.authenticateToken(none, []), undefined);
  const rejected: [string, string, RegExp][] = [
    ['HS256 with the public key', hs256, /invalid signature/],
    ['another key', sign(claims(), other.privateKey), /invalid signature/],
    [
      'another key under a known id',
      sign(claims(), other.privateKey, { alg: 'RS256', kid: verificationKey(pem).id }),
      /invalid signature/,
    ],
    ['expired', sign(claims({ exp: clock.now() / 1000 - 1 })), /expired/],
    ['not yet valid', sign(claims({ nbf: clock.now() / 1000 + 60 })), /not valid yet/],
    ['another audience', sign(claims({ aud: ['vault'] })), /token audiences \["vault"\] is invalid/],
    [
      'another account of the same name',
      sign(claims({ 'kubernetes.io': { namespace: 'ns', serviceaccount: { name: 'sa', uid: 'old' } } })),
      /UID/,
    ],
    [
      'no account',
      sign(claims({ 'kubernetes.io': { namespace: 'ns', serviceaccount: { name: 'gone', uid: 'u' } } })),
      /serviceaccounts "gone" not found/,
    ],
  ];
  for (const [name, token, reason] of rejected)
    await assert.rejects(async () => tokens.authenticateToken(token, []), reason, name);
});

test('a signature has one spelling', async () => {
  const token = sign(claims());
  const bytes = Buffer.from(token.slice(token.lastIndexOf('.') + 1), 'base64url');
  const twins = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_']
    .map((char) => token.slice(0, -1) + char)
    .filter((twin) => twin !== token && Buffer.from(twin.slice(twin.lastIndexOf('.') + 1), 'base64url').equals(bytes));
  assert.ok(twins.length > 0);
  for (const twin of twins) assert.equal(await tokens.authenticateToken(twin, []), undefined);
});

test('a token that is bound to a pod ends with it', async () => {
  const { token } = issuer.issue({
    namespace: 'ns',
    account: { name: 'sa', uid: 'u1' },
    pod: { name: 'p', uid: 'u2' },
    audiences: [ISSUER],
    expirationSeconds: 600,
  });
  assert.deepEqual((await tokens.authenticateToken(token, []))?.user.extra?.['authentication.kubernetes.io/pod-name'], [
    'p',
  ]);
  pod = undefined;
  await assert.rejects(async () => tokens.authenticateToken(token, []), /has been invalidated/);
});

test('a token ends with its account, and a token of a Secret with that or with the account', async () => {
  const secretToken = sign({
    iss: LEGACY_ISSUER,
    sub: 'system:serviceaccount:ns:sa',
    'kubernetes.io/serviceaccount/namespace': 'ns',
    'kubernetes.io/serviceaccount/secret.name': 's',
    'kubernetes.io/serviceaccount/service-account.name': 'sa',
    'kubernetes.io/serviceaccount/service-account.uid': 'u1',
  });
  const bound = sign(claims());
  let owner: typeof account | undefined = account;
  let secret: object | undefined = {
    metadata: { name: 's', namespace: 'ns' },
    data: { token: Buffer.from(secretToken).toString('base64') },
  };
  const authenticator = serviceAccountTokenAuthenticator({
    issuers: [ISSUER],
    keys: [verificationKey(pem)],
    apiAudiences: [ISSUER],
    lookup: true,
    clock,
    lookups: {
      serviceAccount: () => owner,
      secret: () => secret as never,
      pod: () => undefined,
      node: () => undefined,
    },
  });
  const ask = async (token: string) => (await authenticator.authenticateToken(token, []))?.user.name;
  for (const token of [bound, secretToken]) assert.equal(await ask(token), 'system:serviceaccount:ns:sa');
  const kept = secret;
  secret = undefined;
  await assert.rejects(ask(secretToken), /Token has been invalidated/);
  secret = { ...kept, data: { token: Buffer.from('another').toString('base64') } };
  await assert.rejects(ask(secretToken), /does not match server's copy/);
  secret = kept;
  for (const gone of [undefined, { metadata: { ...account.metadata, uid: 'u9' } }]) {
    owner = gone;
    for (const token of [bound, secretToken]) await assert.rejects(ask(token));
  }
});

test('10,000 wrong tokens cause neither verifications nor look-ups, and the correct one stays in the cache', async () => {
  let lookups = 0;
  const verified = serviceAccountTokenAuthenticator({
    issuers: [ISSUER],
    keys: [verificationKey(pem)],
    apiAudiences: [ISSUER],
    lookup: true,
    clock,
    lookups: {
      serviceAccount: () => (lookups++, account),
      secret: () => undefined,
      pod: () => undefined,
      node: () => undefined,
    },
  });
  const cached = cachedTokens(verified, { clock, successTtlMs: 10_000, failureTtlMs: 10_000 });
  const right = sign(claims());
  assert.ok(await cached.authenticateToken(right, []));
  const signature = right.lastIndexOf('.');
  for (let i = 0; i < 10_000; i++) {
    // Random text, a JWT with another signature, and the correct token with a suffix.
    const wrong = [
      `wrong-${i}`,
      `${part({ alg: 'RS256', i })}.${part({ iss: 'https://elsewhere' })}.AAAA`,
      `${right}=${i}`,
    ];
    assert.equal(await cached.authenticateToken(wrong[i % 3] ?? '', []), undefined);
  }
  assert.equal(lookups, 1);
  // A forged signature costs as much as a correct one, but causes no look-up.
  for (let i = 0; i < 20; i++) {
    const forged = right.slice(0, signature + 1) + Buffer.alloc(256, i).toString('base64url');
    await assert.rejects(async () => cached.authenticateToken(forged, []), /invalid signature/);
  }
  assert.equal(lookups, 1);
  assert.ok(await cached.authenticateToken(right, []));
  assert.equal(lookups, 1);
});

test('any number of wrong tokens leaves the right one in the cache', async () => {
  let asked = 0;
  const cached = cachedTokens(
    { authenticateToken: (token) => (asked++, token === 'right' ? { user: { name: 'a', groups: [] } } : undefined) },
    { clock, successTtlMs: 10_000, failureTtlMs: 10_000, maxSuccesses: 2, maxFailures: 2 },
  );
  await cached.authenticateToken('right', []);
  for (let i = 0; i < 100; i++) await cached.authenticateToken(`wrong${i}`, []);
  const before = asked;
  assert.equal((await cached.authenticateToken('right', []))?.user.name, 'a');
  assert.equal(asked, before);
});

test('a token for one audience, reviewed together with another, does not open the API server by another spelling', async () => {
  const cached = cachedTokens(
    {
      authenticateToken: (token, audiences) =>
        token === 'for-vault' && audiences.includes('vault')
          ? { user: { name: 'victim', groups: [] }, audiences: ['vault'] }
          : undefined,
    },
    { clock, successTtlMs: 10_000, failureTtlMs: 0, implicitAudiences: ['api'] },
  );
  assert.ok(await cached.authenticateToken('for-vault', ['vault', 'api']));
  for (const separator of ['\0', ',', '\n', ' ', '","'])
    assert.equal(await cached.authenticateToken(`for-vault${separator}vault`, []), undefined, separator);
});

test('a connection may change its token, and is known by the new one only', async () => {
  const cached = cachedTokens(
    {
      authenticateToken: (token) => (token.startsWith('good') ? { user: { name: token, groups: [] } } : undefined),
    },
    { clock, successTtlMs: 10_000, failureTtlMs: 10_000 },
  );
  const connection = { peerCertificate: undefined, remoteAddress: '' };
  for (const token of ['good-1', 'good-1', 'good-2', 'bad', 'good-1']) {
    const known = await cached.authenticateToken(token, [], connection);
    assert.equal(known?.user.name, token === 'bad' ? undefined : token);
  }
});

function credentials(headers: Record<string, string>, raw: readonly string[] = []): Credentials {
  return {
    headers,
    connection: { peerCertificate: undefined, remoteAddress: '' },
    ...(raw.length === 0 ? {} : { rawHeaders: raw }),
  };
}

test('bearer headers are read as kube-apiserver reads them', () => {
  const authenticator = bearerAuthenticator({
    authenticateToken: (token) => (token === 't' ? { user: { name: 'a', groups: [] } } : undefined),
  });
  const ask = (authorization: string) => authenticator.authenticate(credentials({ authorization }));
  for (const header of ['Bearer t', 'bearer t', 'BEARER t', 'Bearer t more', ' Bearer t '])
    assert.notEqual(ask(header), undefined, header);
  for (const header of ['Bearer', 't', 'Token t', 'Basic dDp0', 'Bearer  t'])
    assert.equal(ask(header), undefined, header);
  for (const header of ['Bearer tx', 'Bearer \u0442', 'Bearer T'])
    assert.throws(() => ask(header), /invalid bearer token/, header);
});

const peer = {
  verify: () => ({ leaf: { subject: { commonName: 'front-proxy-client', organizations: [] } } }),
} as unknown as PeerVerifier;
const nobody = { verify: () => undefined } as unknown as PeerVerifier;
const proxy = (verifier: PeerVerifier, allowedNames: readonly string[] = []) =>
  requestHeaderAuthenticator({
    verifier,
    allowedNames,
    usernameHeaders: ['X-Remote-User'],
    uidHeaders: [],
    groupHeaders: ['X-Remote-Group'],
    extraHeadersPrefixes: ['X-Remote-Extra-'],
  });

test('proxy headers count only behind the proxy certificate', () => {
  const headers = { 'x-remote-user': 'ann', 'x-remote-group': 'system:masters' };
  assert.equal(proxy(nobody).authenticate(credentials(headers)), undefined);
  assert.throws(() => proxy(peer, ['other']).authenticate(credentials(headers)), /not in the allowed list/);
});

test('proxy headers are UTF-8, and of several names the first one counts', async () => {
  const bytes = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
  const raw = ['X-Remote-User', bytes('名'), 'X-Remote-User', 'root', 'X-Remote-Group', bytes('größen')];
  const headers = { 'x-remote-user': `${bytes('名')}, root`, 'x-remote-group': bytes('größen') };
  const found = await proxy(peer).authenticate({ ...credentials(headers), rawHeaders: raw });
  assert.deepEqual(found?.user, { name: '名', groups: ['größen'] });
});

test('proxy headers are never split, and underscores are no hyphens', async () => {
  const raw = [
    'X-Remote-User',
    'ann',
    'X-Remote-Group',
    'a, system:masters',
    'X_Remote_Group',
    'system:masters',
    'X-Remote-Extra-Acme%2Fteam',
    'T',
  ];
  const headers = {
    'x-remote-user': 'ann',
    'x-remote-group': 'a, system:masters',
    x_remote_group: 'system:masters',
    'x-remote-extra-acme%2fteam': 'T',
  };
  const known = await proxy(peer).authenticate(credentials(headers, raw));
  assert.deepEqual(known?.user.groups, ['a, system:masters']);
  assert.deepEqual(known?.user.extra, { 'acme/team': ['T'] });
});

test('bootstrap tokens need the right secret, the usage and good groups', async () => {
  const encode = (data: Record<string, string>) =>
    Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')]));
  const ask = (more: Record<string, string>, token = 'abcdef.0123456789abcdef') => {
    const data = encode({
      'token-id': 'abcdef',
      'token-secret': '0123456789abcdef',
      'usage-bootstrap-authentication': 'true',
      ...more,
    });
    const authenticator = bootstrapTokenAuthenticator({
      clock,
      secret: () => ({ metadata: { name: 'bootstrap-token-abcdef' }, type: 'bootstrap.kubernetes.io/token', data }),
    });
    return Promise.resolve(authenticator.authenticateToken(token, []));
  };
  assert.deepEqual((await ask({ 'auth-extra-groups': 'system:bootstrappers:b,system:bootstrappers:a' }))?.user.groups, [
    'system:bootstrappers',
    'system:bootstrappers:a',
    'system:bootstrappers:b',
  ]);
  assert.equal(await ask({}, 'abcdef.0123456789abcdee'), undefined);
  assert.equal(await ask({ 'usage-bootstrap-authentication': 'yes' }), undefined);
  assert.equal(await ask({ 'auth-extra-groups': 'system:masters' }), undefined);
  assert.equal(await ask({ expiration: '2001-01-01T00:00:00Z' }), undefined);
  for (const expiration of ['2999', 'Jan 1 2999', '2999-01-01', '2999-01-01T00:00', 'never'])
    assert.equal(await ask({ expiration }), undefined, expiration);
});

test('the token file takes quoted groups', async () => {
  const file = tokenFileAuthenticator('t1,ann,1,"devs,ops"\nt2,bob,2\n', 'tokens.csv', silentLogger);
  assert.deepEqual((await file.authenticateToken('t1', []))?.user, { name: 'ann', uid: '1', groups: ['devs', 'ops'] });
  assert.equal(await file.authenticateToken('t1 ', []), undefined);
  assert.throws(() => tokenFileAuthenticator('a,b\n', 'f', silentLogger), /at least token, user name and user uid/);
});

for (const [what, record] of [
  ['no closing quotation mark', 't2,bob,2,"devs,ops'],
  ['a quotation mark within a field', 't2,b"ob,2'],
  ['text after a quoted field', 't2,"bob"by,2'],
] as const)
  test(`a token file with ${what} is refused, and the error names the file and the record`, () => {
    const read = () => tokenFileAuthenticator(`t1,ann,1\n${record}\n`, '/etc/tokens.csv', silentLogger);
    assert.throws(read, /^Error: \/etc\/tokens\.csv, record 2: a quotation mark/);
  });
