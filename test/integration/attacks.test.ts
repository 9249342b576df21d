/**
 * Attacks a running control plane over real TLS: certificates, proxy headers, impersonation, invalid tokens and unusual paths.
 */
import assert from 'node:assert/strict';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get as httpsGet, request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { inspect } from 'node:util';
import { after, before, test } from 'node:test';
import {
  certificatePem,
  createCertificate,
  parseCertificate,
  type CertificateTemplate,
} from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem, type KeyPair } from '../../api/pki/signing.ts';
import type { Logger } from '../../api/component/logger.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const directory = temporaryFolder();

interface Authority {
  readonly keys: KeyPair;
  readonly raw: Buffer;
}

async function makeAuthority(name: string): Promise<Authority> {
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName: name },
      publicKey: keys.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: keys.privateKey },
  );
  return { keys, raw };
}

interface Identity {
  readonly cert: string;
  readonly key: string;
}

async function makeIdentity(
  ca: Authority,
  commonName: string,
  more: Partial<CertificateTemplate> = {},
): Promise<Identity> {
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName, organizations: ['system:masters'] },
      publicKey: keys.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      extendedKeyUsages: ['client auth'],
      ...more,
    },
    { privateKey: ca.keys.privateKey, certificate: parseCertificate(ca.raw) },
  );
  return { cert: certificatePem(raw), key: privateKeyPem(keys.privateKey) };
}

let plane: ControlPlane;
/** The log of the server at every level. */
const logged: string[] = [];
const note = (fields: object, message: string): void => void logged.push(`${inspect(fields, { depth: 8 })} ${message}`);
const logger: Logger = { debug: note, info: note, warn: note, error: note, child: () => logger };
let clients: Authority;
let proxies: Authority;
const clientCaFile = join(directory, 'clients.crt');

before(async () => {
  [clients, proxies] = await Promise.all([makeAuthority('clients'), makeAuthority('proxies')]);
  writeFileSync(clientCaFile, certificatePem(clients.raw));
  writeFileSync(join(directory, 'proxies.crt'), certificatePem(proxies.raw));
  writeFileSync(join(directory, 'tokens.csv'), 'admin-token,admin,1,"system:masters"\njoe-token,joe,2\n');
  plane = await startControlPlane({
    memory: true,
    logger,
    flags: {
      clientCaFile,
      requestheaderClientCaFile: join(directory, 'proxies.crt'),
      requestheaderAllowedNames: ['the-proxy'],
      requestheaderUsernameHeaders: ['X-Remote-User'],
      requestheaderGroupHeaders: ['X-Remote-Group'],
      requestheaderExtraHeadersPrefix: ['X-Remote-Extra-'],
      tokenAuthFile: join(directory, 'tokens.csv'),
      controllers: ['-*'],
      scheduler: false,
    },
  });
});

after(async () => {
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

interface Call {
  readonly method?: string;
  readonly headers?: readonly (readonly [string, string])[];
  readonly identity?: Identity;
  readonly body?: object;
}

function call(path: string, { method = 'GET', headers = [], identity, body }: Call = {}): Promise<Answer> {
  const { hostname, port } = new URL(plane.url);
  return new Promise((resolve, reject) => {
    const sent = httpsRequest(
      {
        hostname,
        port,
        path,
        method,
        ca: plane.ca,
        agent: false,
        headers: [['host', `${hostname}:${port}`] as const, ...headers]
          .concat(body === undefined ? [] : [['content-type', 'application/json']])
          .flat(),
        ...identity,
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }));
        response.on('error', reject);
      },
    );
    sent.on('error', reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

const REVIEW = '/apis/authentication.k8s.io/v1/selfsubjectreviews';
const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };

/** Returns the user that the server authenticates. */
async function whoAmI(
  options: Omit<Call, 'method' | 'body'>,
): Promise<{ username?: string; groups?: string[] } | number> {
  const { status, text } = await call(REVIEW, { ...options, method: 'POST', body: review });
  if (status !== 201) return status;
  const { userInfo } = (JSON.parse(text) as { status: { userInfo: { username: string; groups: string[] } } }).status;
  return { username: userInfo.username, groups: userInfo.groups };
}

test('a certificate of the CA of clients authenticates its subject', async () => {
  const who = await whoAmI({ identity: await makeIdentity(clients, 'ann') });
  assert.deepEqual(who, { username: 'ann', groups: ['system:masters', 'system:authenticated'] });
});

const certificates: readonly (readonly [string, () => Promise<Identity>])[] = [
  ['expired', () => makeIdentity(clients, 'ann', { notAfterMs: Date.now() - 60_000 })],
  ['not valid yet', () => makeIdentity(clients, 'ann', { notBeforeMs: Date.now() + 3_600_000 })],
  ['of another authority', async () => makeIdentity(await makeAuthority('clients'), 'ann')],
  ['of the proxies’ authority', () => makeIdentity(proxies, 'ann')],
  ['for servers', () => makeIdentity(clients, 'ann', { extendedKeyUsages: ['server auth'] })],
];
for (const [name, make] of certificates) {
  test(`a certificate that is ${name} makes nobody an administrator`, async () => {
    const who = await whoAmI({ identity: await make() });
    assert.ok(typeof who === 'number' || who.username === 'system:anonymous', JSON.stringify(who));
    assert.ok([401, 403].includes((await call('/api/v1/secrets', { identity: await make() })).status));
  });
}

const asRemote = [
  ['X-Remote-User', 'root'],
  ['X-Remote-Group', 'system:masters'],
] as const;

const proxyCases: readonly (readonly [
  string,
  () => Promise<Identity | undefined>,
  readonly (readonly [string, string])[],
])[] = [
  ['without a certificate', () => Promise.resolve(undefined), asRemote],
  [
    'behind a certificate of the clients',
    () => makeIdentity(clients, 'the-proxy', { subject: { commonName: 'the-proxy' } }),
    asRemote,
  ],
  ['behind a proxy whose name is not allowed', () => makeIdentity(proxies, 'other'), asRemote],
  [
    'with underscores for hyphens',
    () => makeIdentity(proxies, 'the-proxy'),
    [
      ['X_Remote_User', 'root'],
      ['X_Remote_Group', 'system:masters'],
    ],
  ],
];
for (const [name, make, headers] of proxyCases) {
  test(`proxy headers ${name} make nobody root`, async () => {
    const identity = await make();
    const who = await whoAmI({ headers, ...(identity === undefined ? {} : { identity }) });
    assert.ok(
      typeof who === 'number' || (who.username !== 'root' && who.groups?.includes('system:masters') !== true),
      JSON.stringify(who),
    );
  });
}

test('the proxy authenticates users; each repeated header is one group, and no header is split', async () => {
  const who = await whoAmI({
    identity: await makeIdentity(proxies, 'the-proxy'),
    headers: [
      ['X-Remote-User', 'kim'],
      ['X-Remote-User', 'root'],
      ['X-Remote-Group', 'a'],
      ['X-Remote-Group', 'b, system:masters'],
    ],
  });
  assert.deepEqual(who, { username: 'kim', groups: ['a', 'b, system:masters', 'system:authenticated'] });
});

const joe = ['Authorization', 'Bearer joe-token'] as const;
const admin = ['Authorization', 'Bearer admin-token'] as const;

for (const [name, headers] of [
  ['a user', [['Impersonate-User', 'admin']]],
  [
    'a user with groups',
    [
      ['Impersonate-User', 'joe'],
      ['Impersonate-Group', 'system:masters'],
    ],
  ],
  ['a service account', [['Impersonate-User', 'system:serviceaccount:kube-system:default']]],
  ['a node', [['Impersonate-User', 'system:node:a']]],
  [
    'extra fields',
    [
      ['Impersonate-User', 'joe'],
      ['Impersonate-Extra-Scopes', 'all'],
    ],
  ],
] as const) {
  test(`who may not impersonate ${name} is refused`, async () => {
    assert.equal((await call('/api/v1/namespaces', { headers: [joe, ...headers] })).status, 403);
  });
}

test('impersonation of groups without a user is an error', async () => {
  assert.equal((await call('/version', { headers: [admin, ['Impersonate-Group', 'a']] })).status, 400);
});

for (const [name, value] of [
  ['a trailing space inside', 'Bearer admin-token x'.replace(' x', '%20')],
  ['capitals', 'Bearer ADMIN-TOKEN'],
  ['a space of another alphabet behind it', 'Bearer admin-token\u00a0'],
  ['the same as UTF-8', `Bearer admin-token${Buffer.from('\u00a0').toString('latin1')}`],
  ['a zero-width space', `Bearer admin-token${Buffer.from('\u200b').toString('latin1')}`],
  ['a tab inside', 'Bearer admin-\ttoken'],
  ['a look-alike letter', 'Bearer \u00e0dmin-token'],
  ['a Cyrillic letter as UTF-8', `Bearer ${Buffer.from('\u0430dmin-token').toString('latin1')}`],
  ['a prefix of the token', 'Bearer admin-toke'],
  ['another scheme', 'Basic YWRtaW46YWRtaW4tdG9rZW4='],
] as const) {
  test(`a token with ${name} is not the token`, async () => {
    const { status } = await call('/api/v1/secrets', { headers: [['Authorization', value]] });
    assert.ok(status === 401 || status === 403, String(status));
  });
}

test('spaces around the header are not part of the token, as in HTTP; a second space before the token makes it invalid', async () => {
  const statusOf = async (value: string) =>
    (await call('/api/v1/secrets', { headers: [['Authorization', value]] })).status;
  assert.equal(await statusOf('Bearer admin-token   '), 200);
  assert.equal(await statusOf('  Bearer admin-token'), 200);
  assert.equal(await statusOf('Bearer  admin-token'), 403);
});

test('two Authorization headers are not combined', async () => {
  const { status } = await call('/api/v1/secrets', { headers: [joe, admin] });
  assert.ok([400, 401, 403].includes(status), String(status));
});

const SECRET = 'in-the-secret';

test('disguised paths reach nothing that their plain form is not authorized for', async () => {
  const rbac = '/apis/rbac.authorization.k8s.io/v1/namespaces/default';
  const role = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'Role',
    metadata: { name: 'maps' },
    rules: [{ apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'list'] }],
  };
  const binding = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: { name: 'maps' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'maps' },
    subjects: [{ kind: 'User', name: 'joe', apiGroup: 'rbac.authorization.k8s.io' }],
  };
  const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { k: SECRET } };
  for (const [path, body] of [
    [`${rbac}/roles`, role],
    [`${rbac}/rolebindings`, binding],
    ['/api/v1/namespaces/default/secrets', secret],
  ] as const) {
    assert.equal((await call(path, { method: 'POST', headers: [admin], body })).status, 201);
  }
  const hidden = Buffer.from(SECRET).toString('base64');
  for (const path of [
    '/api/v1/namespaces/default/configmaps/../secrets/s',
    '/api/v1/namespaces/default/configmaps/..%2fsecrets%2fs',
    '/api/v1/namespaces/default/configmaps/%2e%2e/secrets/s',
    '/api/v1/namespaces/default/configmaps%2f..%2fsecrets/s',
    '/api/v1/namespaces/default//secrets/s',
    '//api/v1/namespaces/default/secrets/s',
    '/api/v1/namespaces/default/SECRETS/s',
    '/API/v1/namespaces/default/secrets/s',
    '/api/v1/namespaces/default/secrets%00/s',
    '/healthz/../api/v1/namespaces/default/secrets/s',
    '/api/v1/watch/namespaces/default/configmaps/../secrets/s',
    '/version/../api/v1/namespaces/default/secrets/s',
    '/api/v1/./namespaces/default/secrets/s',
  ]) {
    const { status, text } = await call(path, { headers: [joe] });
    assert.ok(!text.includes(hidden), path);
    assert.ok(status >= 300, `${path}: ${status}`);
  }
});

test('duplicate and disguised impersonation headers grant no further permissions', async () => {
  for (const headers of [
    [['Impersonate_User', 'admin']],
    [
      ['Impersonate-User', 'joe'],
      ['Impersonate-User', 'admin'],
    ],
    [
      ['impersonate-user', 'joe'],
      ['IMPERSONATE-GROUP', 'system:masters'],
    ],
    [['Impersonate-Uid', '1']],
  ] as const) {
    const { status } = await call('/api/v1/secrets', { headers: [joe, ...headers] });
    assert.ok([400, 403].includes(status), `${JSON.stringify(headers)}: ${status}`);
  }
});

test('a request with both a length and chunks, or with two lengths, is refused', async () => {
  const { hostname, port } = new URL(plane.url);
  for (const head of [
    'Content-Length: 5\r\nTransfer-Encoding: chunked',
    'Content-Length: 5\r\nContent-Length: 6',
    'Transfer-Encoding: chunked, identity',
    'Transfer-Encoding : chunked',
  ]) {
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connectTls({ host: hostname, port: Number(port), ca: plane.ca, ALPNProtocols: ['http/1.1'] }, () =>
        socket.write(
          `POST ${REVIEW} HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer joe-token\r\n${head}\r\n\r\n0\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer admin-token\r\n\r\n`,
        ),
      );
      let text = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      socket.on('close', () => resolve(text)).on('error', reject);
    });
    assert.match(answer, /^(HTTP\/1\.1 400 |$)/, head);
    assert.ok(!answer.includes('200 OK') && !answer.includes('SecretList'), head);
  }
});

test('the tokens of a deleted service account are invalid', async () => {
  const accounts = '/api/v1/namespaces/default/serviceaccounts';
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'leaving' } };
  assert.equal((await call(accounts, { method: 'POST', headers: [admin], body: account })).status, 201);
  const token = async (): Promise<readonly [string, string]> => {
    const asked = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
    const answer = await call(`${accounts}/leaving/token`, { method: 'POST', headers: [admin], body: asked });
    assert.equal(answer.status, 201, answer.text);
    return ['Authorization', `Bearer ${(JSON.parse(answer.text) as { status: { token: string } }).status.token}`];
  };
  const used = await token();
  // Unused tokens are in no cache.
  const spare = await Promise.all(Array.from({ length: 10 }, token));
  const who = await whoAmI({ headers: [used] });
  assert.ok(typeof who === 'object' && who.username === 'system:serviceaccount:default:leaving', JSON.stringify(who));
  assert.equal((await call(`${accounts}/leaving`, { method: 'DELETE', headers: [admin] })).status, 200);
  let tried = 0;
  const answer = await until('the end of the tokens', async () => {
    const found = await whoAmI({ headers: [spare[tried++ % spare.length] ?? used] });
    return typeof found === 'object' ? undefined : found;
  });
  assert.equal(answer, 401);
  // Another account of the same name is another user.
  assert.equal((await call(accounts, { method: 'POST', headers: [admin], body: account })).status, 201);
  assert.equal(await whoAmI({ headers: [spare.at(-1) ?? used] }), 401);
});

test('1,000 wrong tokens are refused one by one, while the right one remains valid', async () => {
  const right = async (): Promise<unknown> => whoAmI({ headers: [joe] });
  const before = await right();
  const { hostname, port } = new URL(plane.url);
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  const status = (at: number): Promise<number> =>
    new Promise((resolve, reject) => {
      httpsGet(
        {
          hostname,
          port,
          path: '/version',
          ca: plane.ca,
          agent,
          headers: { authorization: `Bearer wrong-${at}` },
        },
        (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode ?? 0));
        },
      ).on('error', reject);
    });
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < 1000) assert.equal(await status(next++), 401);
  };
  await Promise.all(Array.from({ length: 20 }, lane));
  agent.destroy();
  assert.deepEqual(await right(), before);
});

test('certificates of a CA are refused once the CA is removed from the file', async () => {
  const identity = await makeIdentity(clients, 'ann');
  assert.equal((await call('/api/v1/secrets', { identity })).status, 200);
  const next = await makeAuthority('clients');
  writeFileSync(`${clientCaFile}.new`, certificatePem(next.raw));
  renameSync(`${clientCaFile}.new`, clientCaFile);
  const status = await until('the end of the authority', async () => {
    const found = (await call('/api/v1/secrets', { identity })).status;
    return found !== 200 && found;
  });
  assert.ok(status === 401 || status === 403, String(status));
  assert.equal((await call('/api/v1/secrets', { identity: await makeIdentity(next, 'ann') })).status, 200);
});

test('the log contains no token and no key, whatever the attack', () => {
  const text = logged.join('\n');
  assert.match(text, /Authentication failed/);
  for (const secret of ['admin-token', 'joe-token', 'wrong-1', 'YWRtaW46', 'PRIVATE KEY', 'eyJhbGciOi', SECRET])
    assert.ok(!text.includes(secret), secret);
});
