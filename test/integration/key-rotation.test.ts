/** Replaces keys and CAs without refusing any client: both are accepted for a while, and later only the new one. */
import assert from 'node:assert/strict';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { WebhookClient } from '../../controlplane/security/webhooks/webhook-client.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import type { ControlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const directory = temporaryFolder();
const tokenAuthFile = join(directory, 'tokens.csv');
writeFileSync(tokenAuthFile, 'admin-token,admin,1,"system:masters"\n');
const client = new WebhookClient('test');

after(() => {
  client.close();
  rmSync(directory, { recursive: true, force: true });
});

async function withPlane(
  flags: Partial<ControlPlaneFlags>,
  use: (plane: ControlPlane) => Promise<void>,
): Promise<void> {
  const plane = await startControlPlane({
    flags: {
      bindAddress: '127.0.0.1',
      securePort: 0,
      dataDir: join(directory, 'data'),
      tokenAuthFile,
      controllers: ['-*'],
      scheduler: false,
      ...flags,
    },
  });
  try {
    await use(plane);
  } finally {
    await plane.close();
  }
}

interface Caller {
  readonly token?: string;
  readonly certificate?: { readonly certificate: string; readonly key: string };
}

async function call<T>(plane: ControlPlane, path: string, { token, certificate }: Caller, body?: object) {
  const answer = await client.call(
    {
      url: new URL(path, plane.url),
      ca: plane.ca,
      purpose: 'configured',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(certificate === undefined ? {} : { clientCertificate: certificate }),
    },
    {
      method: body === undefined ? 'GET' : 'POST',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(60_000),
    },
  );
  return { status: answer.status, body: JSON.parse(answer.body.toString()) as T };
}

const ADMIN = { token: 'admin-token' };
const ACCOUNTS = '/api/v1/namespaces/default/serviceaccounts';

async function issueToken(plane: ControlPlane): Promise<string> {
  const asked = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
  const { status, body } = await call<{ status: { token: string } }>(plane, `${ACCOUNTS}/robot/token`, ADMIN, asked);
  assert.equal(status, 201);
  return body.status.token;
}
const keyIdOf = (token: string): unknown =>
  (JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()) as { kid?: string }).kid;
const statusOf = async (plane: ControlPlane, token: string): Promise<number> =>
  (await call(plane, '/version', { token })).status;
const publishedKeys = async (plane: ControlPlane): Promise<unknown[]> =>
  (await call<{ keys: { kid: string }[] }>(plane, '/openid/v1/jwks', ADMIN)).body.keys.map(({ kid }) => kid);

test('a new service account key signs tokens, and tokens of the old key are valid until that key is removed', async () => {
  let old = '';
  await withPlane({}, async (plane) => {
    const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'robot' } };
    assert.equal((await call(plane, ACCOUNTS, ADMIN, account)).status, 201);
    old = await issueToken(plane);
    assert.equal(await statusOf(plane, old), 200);
  });
  const pki = join(directory, 'data', 'pki');
  rmSync(join(pki, 'sa.key'));
  let renewed = '';
  await withPlane({}, async (plane) => {
    renewed = await issueToken(plane);
    assert.notEqual(keyIdOf(renewed), keyIdOf(old));
    assert.deepEqual([await statusOf(plane, old), await statusOf(plane, renewed)], [200, 200]);
    assert.deepEqual(await publishedKeys(plane), [keyIdOf(renewed), keyIdOf(old)]);
  });
  const [first = ''] = readFileSync(join(pki, 'sa.pub'), 'utf8').split(/(?<=-----END PUBLIC KEY-----\n)/);
  writeFileSync(join(pki, 'sa.pub'), first);
  await withPlane({}, async (plane) => {
    assert.deepEqual([await statusOf(plane, old), await statusOf(plane, renewed)], [401, 200]);
    assert.deepEqual(await publishedKeys(plane), [keyIdOf(renewed)]);
  });
  // The same with kube-apiserver's flags and a key of another type.
  const ecdsa = join(directory, 'ecdsa.key');
  writeFileSync(ecdsa, privateKeyPem((await generateKey('ecdsa')).privateKey));
  const flags = { serviceAccountSigningKeyFile: ecdsa, serviceAccountKeyFile: [ecdsa, join(pki, 'sa.pub')] };
  await withPlane(flags, async (plane) => {
    const signed = await issueToken(plane);
    assert.deepEqual([await statusOf(plane, renewed), await statusOf(plane, signed)], [200, 200]);
  });
});

async function authority(name: string) {
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
  const leaf = await generateKey('ecdsa');
  const certificate = createCertificate(
    {
      subject: { commonName: 'ann', organizations: ['system:masters'] },
      publicKey: leaf.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      extendedKeyUsages: ['client auth'],
    },
    { privateKey: keys.privateKey, certificate: parseCertificate(raw) },
  );
  return {
    pem: certificatePem(raw),
    certificate: { certificate: certificatePem(certificate), key: privateKeyPem(leaf.privateKey) },
  };
}

test('clients of two CAs are accepted while the file contains both, and later only those of the new one', async () => {
  const [old, renewed] = await Promise.all([authority('clients'), authority('clients')]);
  const clientCaFile = join(directory, 'clients.crt');
  const write = (...pems: string[]): void => {
    writeFileSync(`${clientCaFile}.new`, pems.join(''));
    renameSync(`${clientCaFile}.new`, clientCaFile);
  };
  write(old.pem);
  await withPlane({ clientCaFile }, async (plane) => {
    const may = async (who: typeof old): Promise<boolean> =>
      (await call(plane, '/api/v1/secrets', { certificate: who.certificate })).status === 200;
    assert.deepEqual([await may(old), await may(renewed)], [true, false]);
    write(renewed.pem, old.pem);
    await until('the new CA is accepted', () => may(renewed));
    assert.equal(await may(old), true);
    write(renewed.pem);
    await until('the old CA is no longer accepted', async () => !(await may(old)));
    assert.equal(await may(renewed), true);
  });
});
