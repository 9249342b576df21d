/** Tests encryption at rest: the providers, which of them decrypt, and a key management service over gRPC. */
import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import fc from 'fast-check';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { buildEncryption } from '../../../../../controlplane/storage/encryption/build.ts';
import { encryptedValues } from '../../../../../controlplane/storage/encryption/encrypted-values.ts';
import { parseEncryptionConfig } from '../../../../../controlplane/storage/encryption/encryption-config.ts';
import { connectKeyService } from '../../../../../controlplane/storage/encryption/key-service.ts';
import { kmsProvider } from '../../../../../controlplane/storage/encryption/kms.ts';
import { bytesField, bytesOf, readFields } from '../../../../../controlplane/storage/encryption/protobuf-fields.ts';
import { identityProvider, keyProviders } from '../../../../../controlplane/storage/encryption/provider.ts';
import { reencrypt } from '../../../../../controlplane/storage/encryption/reencrypt.ts';
import { openBox, sealBox } from '../../../../../controlplane/storage/encryption/secretbox.ts';
import { openMemoryStorage } from '../../../../../controlplane/storage/memory.ts';
import { openSqliteStorage } from '../../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';
import { until } from '../../../../until.ts';

const directory = temporaryFolder();
after(() => rmSync(directory, { recursive: true, force: true }));

const KEY = '/core/secrets/default/a';
const REENCRYPT = { clock: systemClock, eventTtlMs: 3_600_000 };
const TEXT = Buffer.from('{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}');
const rowOf = (...providers: Parameters<typeof encryptedValues>[0][number]['providers'][number][]) =>
  encryptedValues([{ resources: ['secrets'], providers }]);
const gcm = (name: string) => keyProviders('aesgcm', [{ name, secret: randomBytes(32) }])[0] ?? assert.fail();

test('secretbox agrees with the test vector of NaCl', () => {
  const key = Buffer.from('1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389', 'hex');
  const nonce = Buffer.from('69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37', 'hex');
  const text = Buffer.from(
    'be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705',
    'hex',
  );
  const box = sealBox(key, nonce, text);
  assert.equal(
    box.toString('hex'),
    'f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5',
  );
  assert.deepEqual(openBox(key, nonce, box), text);
});

for (const name of ['aesgcm', 'aescbc', 'secretbox']) {
  test(`${name} opens what it has sealed, and nothing that was changed or made with another key`, () => {
    const [provider, other] = keyProviders(name, [
      { name: 'a', secret: randomBytes(32) },
      { name: 'b', secret: randomBytes(32) },
    ]);
    assert.ok(provider !== undefined && other !== undefined);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        const value = Buffer.from(bytes);
        assert.deepEqual(provider.open(provider.seal(value, KEY), KEY), value);
      }),
    );
    const sealed = provider.seal(TEXT, KEY);
    if (name === 'aescbc') return;
    assert.throws(() => other.open(sealed, KEY));
    sealed[sealed.length - 1] = (sealed.at(-1) ?? 0) ^ 1;
    assert.throws(() => provider.open(sealed, KEY));
  });
}

test('a value of AES-GCM cannot be moved to another object', () => {
  const values = rowOf(gcm('k'));
  const sealed = values.seal(KEY, TEXT);
  assert.deepEqual(values.open(KEY, sealed), TEXT);
  assert.throws(() => values.open('/core/secrets/default/b', sealed), /cannot be decrypted/);
});

test('the first provider encrypts, all of them decrypt', () => {
  const old = gcm('old');
  const young = gcm('young');
  const sealed = rowOf(old).seal(KEY, TEXT);
  const both = rowOf(young, old, identityProvider);
  assert.deepEqual(both.open(KEY, sealed), TEXT);
  assert.deepEqual(both.open(KEY, TEXT), TEXT);
  assert.match(both.seal(KEY, TEXT).toString('latin1'), /^k8s:enc:aesgcm:v1:young:/);
});

test('a value that no provider encrypted, and plain text without identity, are rejected by name', () => {
  assert.throws(() => rowOf(gcm('a')).open(KEY, rowOf(gcm('b')).seal(KEY, TEXT)), /secrets\/default\/a cannot be read/);
  assert.throws(() => rowOf(gcm('a')).open(KEY, TEXT), /identity is not a configured provider/);
});

const patterns: readonly (readonly [string, string, boolean])[] = [
  ['secrets', '/core/secrets/n/a', true],
  ['secrets', '/core/configmaps/n/a', false],
  ['secrets', '/example.com/secrets/n/a', false],
  ['deployments.apps', '/apps/deployments/n/a', true],
  ['*.apps', '/apps/daemonsets/n/a', true],
  ['*.', '/core/pods/n/a', true],
  ['*.', '/apps/deployments/n/a', false],
  ['*.*', '/a.b.example/things/a', true],
];
for (const [pattern, key, expected] of patterns) {
  test(`${pattern} ${expected ? 'covers' : 'does not cover'} ${key}`, () => {
    assert.equal(encryptedValues([{ resources: [pattern], providers: [gcm('k')] }]).isEncrypted(key), expected);
  });
}

const wrong: readonly (readonly [string, string, RegExp])[] = [
  ['another kind', 'kind: Other\napiVersion: apiserver.config.k8s.io/v1', /not an EncryptionConfiguration/],
  ['another version', 'kind: EncryptionConfiguration\napiVersion: v1', /not an EncryptionConfiguration of apiserver/],
  ['no version', 'kind: EncryptionConfiguration', /not an EncryptionConfiguration of apiserver/],
  ['a short key', config('aesgcm: {keys: [{name: a, secret: c2hvcnQ=}]}'), /must have 16, 24, 32 bytes/],
  ['a provider nobody knows', config('rot13: {}'), /is not a provider/],
  ['KMS v1', config('kms: {apiVersion: v1, name: a, endpoint: "unix:///x"}'), /only v2/],
];
for (const [name, text, message] of wrong) {
  test(`a configuration with ${name} is refused, and the message holds no key`, async () => {
    await assert.rejects(
      parseEncryptionConfig(text, 'wrong.yaml', () => assert.fail()),
      (error: Error) => message.test(error.message) && !error.message.includes('c2hvcnQ'),
    );
  });
}

function config(provider: string): string {
  return `kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n  - ${provider}\n`;
}

test('storage contains no plain text, decrypts it after a restart, and reports what is missing without the configuration', async () => {
  const path = join(directory, 'config.yaml');
  const secretOf = (): string => randomBytes(32).toString('base64');
  const first = secretOf();
  writeFileSync(path, config(`aesgcm: {keys: [{name: a, secret: ${first}}]}`));
  const open = async (): ReturnType<typeof openSqliteStorage> => {
    const encryption = await buildEncryption({
      path,
      reloads: false,
      clock: systemClock,
      logger: silentLogger,
      metrics: new MetricsRegistry(),
    });
    assert.ok(encryption);
    return openSqliteStorage({
      directory: join(directory, 'storage'),
      clock: systemClock,
      logger: silentLogger,
      transformer: encryption.values,
    });
  };
  const storage = await open();
  await storage.create(KEY, TEXT);
  await storage.close();

  await assert.rejects(
    openSqliteStorage({ directory: join(directory, 'storage'), clock: systemClock, logger: silentLogger }),
    /encryption-provider-config/,
  );

  writeFileSync(
    path,
    `${config(`secretbox: {keys: [{name: b, secret: ${secretOf()}}]}`)}  - aesgcm: {keys: [{name: a, secret: ${first}}]}\n`,
  );
  const again = await open();
  assert.deepEqual((await again.get(KEY))?.value, TEXT);
  assert.equal(await reencrypt(again, { isEncrypted: (key) => key === KEY }, REENCRYPT), 1);
  await again.close();
});

test('an event that is encrypted again still expires, and the address of a running server is left as it is', async () => {
  const clock = new FakeClock();
  const storage = openMemoryStorage({ clock });
  const [event, address] = ['/core/events/default/a', '/core/masterleases/192.0.2.1'];
  const expiresAtMs = clock.now() + REENCRYPT.eventTtlMs;
  await storage.create(event, TEXT, { expiresAtMs });
  const { revision } = await storage.create(address, TEXT, { expiresAtMs });
  assert.equal(await reencrypt(storage, { isEncrypted: () => true }, { ...REENCRYPT, clock }), 1);
  assert.equal((await storage.get(address))?.revision, revision);
  await clock.advance(REENCRYPT.eventTtlMs + 20_000);
  await until('the removal of both', async () => (await storage.list('/')).items.length === 0);
  await storage.close();
});

/** Encrypts with its own key, like a key management service. */
function startKms(socket: string): Promise<{ readonly calls: string[]; close(): void }> {
  const key = randomBytes(32);
  const calls: string[] = [];
  const raw = { requestSerialize: keep, requestDeserialize: keep, responseSerialize: keep, responseDeserialize: keep };
  const method = (name: string) => ({
    path: `/v2.KeyManagementService/${name}`,
    requestStream: false,
    responseStream: false,
    ...raw,
  });
  const server = new Server();
  server.addService(
    { Status: method('Status'), Encrypt: method('Encrypt'), Decrypt: method('Decrypt') },
    {
      Status: (_call: unknown, done: (error: null, answer: Buffer) => void) =>
        done(null, Buffer.concat([bytesField(1, 'v2'), bytesField(2, 'ok'), bytesField(3, 'key-1')])),
      Encrypt: (call: { request: Buffer }, done: (error: null, answer: Buffer) => void) => {
        calls.push('encrypt');
        const cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16));
        const sealed = cipher.update(bytesOf(readFields(call.request), 1));
        done(null, Buffer.concat([bytesField(1, sealed), bytesField(2, 'key-1')]));
      },
      Decrypt: (call: { request: Buffer }, done: (error: null, answer: Buffer) => void) => {
        calls.push('decrypt');
        const decipher = createDecipheriv('aes-256-ctr', key, Buffer.alloc(16));
        done(null, bytesField(1, decipher.update(bytesOf(readFields(call.request), 1))));
      },
    },
  );
  return new Promise((resolve, reject) => {
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) => {
      if (error !== null) reject(error);
      else resolve({ calls, close: () => server.forceShutdown() });
    });
  });
}

const keep = (bytes: Buffer): Buffer => bytes;

test('a key management service encrypts one seed and proves that it decrypts it, and a later start has it decrypted once', async () => {
  const socket = join(directory, 'kms.sock');
  const kms = await startKms(socket);
  const options = { name: 'vault', endpoint: `unix://${socket}`, timeoutMs: 10_000 };
  const connect = async () =>
    kmsProvider({
      name: 'vault',
      service: await connectKeyService(options),
      clock: systemClock,
      logger: silentLogger,
    });
  try {
    const provider = await connect();
    const values = rowOf(provider);
    const kept = ['a', 'b'].map((name) => {
      const key = `/core/secrets/default/${name}`;
      return { key, value: values.seal(key, TEXT) };
    });
    assert.match(kept[0]?.value.toString('latin1') ?? '', /^k8s:enc:kms:v2:vault:/);
    values.close();

    const later = rowOf(await connect());
    await later.unlock(kept);
    for (const { key, value } of kept) assert.deepEqual(later.open(key, value), TEXT);
    assert.deepEqual(kms.calls, ['encrypt', 'decrypt', 'encrypt', 'decrypt', 'decrypt']);
    later.close();
  } finally {
    kms.close();
  }
});

test('a changed configuration is applied without a restart, an invalid one is not', async () => {
  const path = join(directory, 'reload.yaml');
  const write = (...providers: string[]): void =>
    writeFileSync(
      path,
      `kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n${providers.map((one) => `  - ${one}\n`).join('')}`,
    );
  const [first, second] = ['a', 'b'].map(
    (name) => `aesgcm: {keys: [{name: ${name}, secret: ${randomBytes(32).toString('base64')}}]}`,
  );
  assert.ok(first !== undefined && second !== undefined);
  write(first);
  const metrics = new MetricsRegistry();
  const encryption = await buildEncryption({
    path,
    reloads: true,
    clock: new FakeClock(),
    logger: silentLogger,
    metrics,
  });
  assert.ok(encryption?.followed);
  const { values, followed } = encryption;
  const counted = (status: string): string =>
    new RegExp(`automatic_reloads_total\\{[^}]*status="${status}"\\} (\\d+)`).exec(metrics.text())?.[1] ?? '0';
  const hash = (): string => `hash="sha256:${createHash('sha256').update(readFileSync(path)).digest('hex')}"} 1`;
  const old = values.seal(KEY, TEXT);
  assert.equal(await followed.check(), false);
  assert.ok(metrics.text().includes(hash()));
  write(second, first);
  assert.equal(await followed.check(), false);
  assert.equal(await followed.check(), true);
  assert.ok(metrics.text().includes(hash()));
  const renewed = values.seal(KEY, TEXT);
  assert.ok(renewed.toString('latin1').startsWith('k8s:enc:aesgcm:v1:b:'));
  for (const kept of [old, renewed]) assert.deepEqual(values.open(KEY, kept), TEXT);
  writeFileSync(path, 'kind: Nothing');
  for (const _again of [1, 2]) assert.equal(await followed.check(), false);
  assert.ok(values.seal(KEY, TEXT).toString('latin1').startsWith('k8s:enc:aesgcm:v1:b:'));
  assert.deepEqual([counted('success'), counted('failure')], ['1', '1']);
  assert.equal(metrics.text().match(/last_config_info\{/g)?.length, 1);
  encryption.close();
});

test('an unhealthy or unreachable key management service fails the health check, and is checked again later', async () => {
  let health = 'ok';
  const clock = new FakeClock();
  let asked = 0;
  let plaintext: Buffer = Buffer.alloc(0);
  const wrapped = { ciphertext: Buffer.from('w'), keyId: '1', annotations: new Map<string, Buffer>() };
  const provider = await kmsProvider({
    name: 'vault',
    clock,
    logger: silentLogger,
    service: {
      status: () => (
        asked++,
        health === '' ? Promise.reject(new Error('away')) : Promise.resolve({ healthz: health, keyId: '1' })
      ),
      encrypt: (seed) => ((plaintext = seed), Promise.resolve(wrapped)),
      decrypt: () => Promise.resolve(plaintext),
      close: () => undefined,
    },
  });
  const [check] = rowOf(provider).keyServices;
  assert.ok(check);
  await check();
  health = 'ill';
  await check();
  assert.equal(asked, 1, 'one that has just answered is not asked again');
  await clock.advance(30_000);
  await assert.rejects(check(), /"ill"/);
  health = '';
  await assert.rejects(check(), /away/);
  health = 'ok';
  await check();
  provider.close?.();
});

test('a provider that is closed during a check does not call its key management service again', async () => {
  const clock = new FakeClock();
  let plaintext: Buffer = Buffer.alloc(0);
  let asked = 0;
  const answer = Promise.withResolvers<{ healthz: string; keyId: string }>();
  const wrapped = { ciphertext: Buffer.from('w'), keyId: '1', annotations: new Map<string, Buffer>() };
  const provider = await kmsProvider({
    name: 'vault',
    clock,
    logger: silentLogger,
    service: {
      status: () => (asked++, answer.promise),
      encrypt: (seed) => ((plaintext = seed), Promise.resolve(wrapped)),
      decrypt: () => Promise.resolve(plaintext),
      close: () => undefined,
    },
  });
  await clock.advance(60_000);
  assert.equal(asked, 1);
  provider.close?.();
  answer.resolve({ healthz: 'ok', keyId: '1' });
  await clock.advance(120_000);
  assert.equal(asked, 1);
});
