/** Tests credentials from an external command with a running control plane: tokens, certificates, expiry and refusals. */
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { stringifyYaml } from '../../api/codec/yaml.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, type KeyPair, privateKeyPem } from '../../api/pki/signing.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const HOUR = 3_600_000;
const API_VERSION = 'client.authentication.k8s.io/v1';
const directory = temporaryFolder();
const times = { notBeforeMs: Date.now() - HOUR, notAfterMs: Date.now() + 24 * HOUR };

let plane: ControlPlane;
let keys: KeyPair;
let ca: Buffer;

before(async () => {
  keys = await generateKey('ecdsa');
  ca = createCertificate(
    {
      subject: { commonName: 'clients' },
      publicKey: keys.publicKey,
      ...times,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: keys.privateKey },
  );
  writeFileSync(join(directory, 'clients.crt'), certificatePem(ca));
  writeFileSync(join(directory, 'tokens.csv'), 'ann-token,ann,1\nbob-token,bob,2\n');
  plane = await startControlPlane({
    memory: true,
    flags: {
      clientCaFile: join(directory, 'clients.crt'),
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

async function certificateOf(commonName: string): Promise<object> {
  const own = await generateKey('ecdsa');
  const raw = createCertificate(
    { subject: { commonName }, publicKey: own.publicKey, ...times, extendedKeyUsages: ['client auth'] },
    { privateKey: keys.privateKey, certificate: parseCertificate(ca) },
  );
  return { clientCertificateData: certificatePem(raw), clientKeyData: privateKeyPem(own.privateKey) };
}

interface Plugin {
  readonly client: HttpClient;
  /** The number of runs of the command. */
  runs(): number;
  /** Returns the last input of the command. */
  received(): {
    readonly spec: { readonly cluster?: Readonly<Record<string, unknown>>; readonly interactive: boolean };
  };
  passTime(ms: number): void;
}

/** Creates a command that returns one status after another. */
async function plugin(name: string, statuses: readonly object[]): Promise<Plugin> {
  const path = (file: string): string => join(directory, `${name}-${file}`);
  for (const [i, status] of statuses.entries()) {
    writeFileSync(path(`${i + 1}.json`), JSON.stringify({ kind: 'ExecCredential', apiVersion: API_VERSION, status }));
  }
  writeFileSync(path('runs'), '0');
  writeFileSync(
    path('command'),
    `#!/bin/sh
n=$(($(cat "$BASE-runs") + 1))
echo $n > "$BASE-runs"
printf %s "$KUBERNETES_EXEC_INFO" > "$BASE-info"
cat "$BASE-$n.json"
`,
  );
  chmodSync(path('command'), 0o755);
  const user = {
    exec: {
      apiVersion: API_VERSION,
      command: `./${name}-command`,
      env: [{ name: 'BASE', value: join(directory, name) }],
      provideClusterInfo: true,
      interactiveMode: 'Never',
    },
  };
  const cluster = {
    server: plane.url,
    'certificate-authority-data': Buffer.from(plane.ca).toString('base64'),
    extensions: [{ name: 'client.authentication.k8s.io/exec', extension: { audience: 'a' } }],
  };
  writeFileSync(
    path('config'),
    stringifyYaml({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'c',
      clusters: [{ name: 'c', cluster }],
      users: [{ name: 'u', user }],
      contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
    }),
  );
  let passedMs = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + passedMs };
  const access = await serverAccess(await loadKubeconfig(path('config')), { clock });
  return {
    client: new HttpClient({ ...access, clock }),
    runs: () => Number(readFileSync(path('runs'), 'utf8')),
    received: () => JSON.parse(readFileSync(path('info'), 'utf8')) as ReturnType<Plugin['received']>,
    passTime: (ms) => (passedMs += ms),
  };
}

async function whoAmI(client: HttpClient): Promise<string> {
  const review = { group: 'authentication.k8s.io', version: 'v1', resource: 'selfsubjectreviews' };
  const { status } = (await client.create({ ...review, kind: 'SelfSubjectReview', namespaced: false }, '', {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'SelfSubjectReview',
    metadata: {},
  })) as unknown as { status: { userInfo: { username: string } } };
  return status.userInfo.username;
}

const inAnHour = (): string => new Date(Date.now() + HOUR).toISOString();

test('a token is cached until it expires, and the command gets the cluster', async () => {
  const made = await plugin('token', [{ token: 'ann-token', expirationTimestamp: inAnHour() }, { token: 'bob-token' }]);
  try {
    assert.equal(await whoAmI(made.client), 'ann');
    assert.equal(await whoAmI(made.client), 'ann');
    assert.equal(made.runs(), 1);
    const { spec } = made.received();
    assert.equal(spec.interactive, false);
    assert.equal(spec.cluster?.['server'], plane.url);
    assert.deepEqual(spec.cluster['config'], { audience: 'a' });
    made.passTime(2 * HOUR);
    assert.equal(await whoAmI(made.client), 'bob');
    assert.equal(made.runs(), 2);
  } finally {
    made.client.close();
  }
});

test('a token that the server refuses is requested again once', async () => {
  const made = await plugin('refused', [{ token: 'old' }, { token: 'ann-token' }]);
  try {
    assert.equal(await whoAmI(made.client), 'ann');
    assert.equal(made.runs(), 2);
  } finally {
    made.client.close();
  }
  const hopeless = await plugin('hopeless', [{ token: 'old' }, { token: 'older' }, { token: 'ann-token' }]);
  try {
    await assert.rejects(whoAmI(hopeless.client), { code: 401 });
    assert.equal(hopeless.runs(), 2);
  } finally {
    hopeless.client.close();
  }
});

test('a client certificate is used, and connections are replaced when it changes', async () => {
  const made = await plugin('certificate', [
    { ...(await certificateOf('cora')), expirationTimestamp: inAnHour() },
    await certificateOf('dave'),
  ]);
  try {
    assert.equal(await whoAmI(made.client), 'cora');
    assert.equal(await whoAmI(made.client), 'cora');
    assert.equal(made.runs(), 1);
    made.passTime(2 * HOUR);
    assert.equal(await whoAmI(made.client), 'dave');
    assert.equal(made.runs(), 2);
  } finally {
    made.client.close();
  }
});
