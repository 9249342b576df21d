/**
 * Tests a key management service with wrong responses: at the start, when its key changes, and when an older value is
 * decrypted. It uses gRPC on a unix socket, like real services.
 */
import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import grpc from '@grpc/grpc-js';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import {
  encryptedValues,
  type EncryptedValues,
} from '../../../../../controlplane/storage/encryption/encrypted-values.ts';
import { connectKeyService } from '../../../../../controlplane/storage/encryption/key-service.ts';
import { kmsProvider } from '../../../../../controlplane/storage/encryption/kms.ts';
import {
  bytesField,
  bytesOf,
  mapField,
  readFields,
} from '../../../../../controlplane/storage/encryption/protobuf-fields.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const { Server, ServerCredentials } = grpc;
const directory = temporaryFolder();
const TEXT = Buffer.from('the clear text of a secret, long enough to be found');
const KEY = '/core/secrets/default/a';

/** A response of the service, or `undefined` if it never responds. */
type Answer = Buffer | undefined | { readonly code: number };
interface Behaviour {
  status(): Answer;
  encrypt(plaintext: Buffer): Answer;
  decrypt(ciphertext: Buffer): Answer;
}

const masterKey = randomBytes(32);
const sealed = (plaintext: Buffer): Buffer =>
  createCipheriv('aes-256-ctr', masterKey, Buffer.alloc(16)).update(plaintext);
const good = (keyId: string): Behaviour => ({
  status: () => Buffer.concat([bytesField(1, 'v2'), bytesField(2, 'ok'), bytesField(3, keyId)]),
  encrypt: (plaintext) => Buffer.concat([bytesField(1, sealed(plaintext)), bytesField(2, keyId)]),
  decrypt: (ciphertext) =>
    bytesField(1, createDecipheriv('aes-256-ctr', masterKey, Buffer.alloc(16)).update(ciphertext)),
});

let behaviour: Behaviour = good('key-1');
const keep = (bytes: Buffer): Buffer => bytes;
const server = new Server();
const method = (name: string) => ({
  path: `/v2.KeyManagementService/${name}`,
  requestStream: false,
  responseStream: false,
  requestSerialize: keep,
  requestDeserialize: keep,
  responseSerialize: keep,
  responseDeserialize: keep,
});
type Done = (error: { code: number } | null, answer?: Buffer) => void;
const reply = (answer: Answer, done: Done): void => {
  if (answer === undefined) return;
  if (Buffer.isBuffer(answer)) done(null, answer);
  else done(answer);
};
const socket = join(directory, 'kms.sock');
server.addService(
  { Status: method('Status'), Encrypt: method('Encrypt'), Decrypt: method('Decrypt') },
  {
    Status: (_call: unknown, done: Done) => reply(behaviour.status(), done),
    Encrypt: (call: { request: Buffer }, done: Done) =>
      reply(behaviour.encrypt(bytesOf(readFields(call.request), 1)), done),
    Decrypt: (call: { request: Buffer }, done: Done) =>
      reply(behaviour.decrypt(bytesOf(readFields(call.request), 1)), done),
  },
);
await new Promise<void>((resolve, reject) =>
  server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
    error === null ? resolve() : reject(error),
  ),
);

after(() => {
  server.forceShutdown();
  rmSync(directory, { recursive: true, force: true });
});

beforeEach(() => {
  behaviour = good('key-1');
});

async function connect(): Promise<EncryptedValues> {
  const service = await connectKeyService({ name: 'vault', endpoint: `unix://${socket}`, timeoutMs: 1500 });
  const provider = await kmsProvider({ name: 'vault', service, clock: systemClock, logger: silentLogger });
  return encryptedValues([{ resources: ['secrets'], providers: [provider] }]);
}

/** Wrong responses to Encrypt. */
const ENCRYPTIONS: Readonly<Record<string, (plaintext: Buffer, keyId: string) => Answer>> = {
  'is no message': () => Buffer.from([0xff, 0xff, 0xff]),
  'is cut off': (plaintext) => bytesField(1, sealed(plaintext)).subarray(0, 10),
  'has no ciphertext': (_plaintext, keyId) => bytesField(2, keyId),
  'has a ciphertext of 2 KB': (_plaintext, keyId) =>
    Buffer.concat([bytesField(1, randomBytes(2048)), bytesField(2, keyId)]),
  'has a ciphertext of 3 MB': (_plaintext, keyId) =>
    Buffer.concat([bytesField(1, randomBytes(3 * 1024 * 1024)), bytesField(2, keyId)]),
  'has the clear text as ciphertext': (plaintext, keyId) =>
    Buffer.concat([bytesField(1, plaintext), bytesField(2, keyId)]),
  'has the clear text in an annotation': (plaintext, keyId) =>
    Buffer.concat([
      bytesField(1, sealed(plaintext)),
      bytesField(2, keyId),
      mapField(3, new Map([['seed.example.com', plaintext]])),
    ]),
  'has annotations of 100 KB': (plaintext, keyId) =>
    Buffer.concat([
      bytesField(1, sealed(plaintext)),
      bytesField(2, keyId),
      mapField(3, new Map([['a.example.com', randomBytes(100_000)]])),
    ]),
  'has no key ID': (plaintext) => bytesField(1, sealed(plaintext)),
  'has a ciphertext of something else': (_plaintext, keyId) =>
    Buffer.concat([bytesField(1, sealed(randomBytes(32))), bytesField(2, keyId)]),
  'is an error': () => ({ code: 14 }),
  'never comes': () => undefined,
};

for (const [what, encrypt] of Object.entries(ENCRYPTIONS)) {
  test(`a key management service whose encryption ${what} is not used: neither at the start nor as its next key`, async () => {
    behaviour = { ...good('key-1'), encrypt: (plaintext) => encrypt(plaintext, 'key-1') };
    await assert.rejects(connect(), /^KeyServiceError: the key management service cannot be used: /);

    behaviour = good('key-1');
    const values = await connect();
    const before = values.seal(KEY, TEXT);
    let offered = Buffer.alloc(0);
    behaviour = {
      ...good('key-2'),
      encrypt: (plaintext) => {
        offered = Buffer.from(plaintext);
        return encrypt(plaintext, 'key-2');
      },
    };
    await assert.rejects(async () => values.keyServices[0]?.(), /cannot be used/);
    const kept = values.seal(KEY, TEXT);
    assert.equal(kept.includes(TEXT) || kept.includes(offered), false, 'nothing is kept in clear text');
    values.close();

    behaviour = good('key-1');
    const later = await connect();
    await later.unlock([before, kept].map((value) => ({ key: KEY, value })));
    for (const value of [before, kept]) assert.deepEqual(later.open(KEY, value), TEXT);
    later.close();
  });
}

test('a key management service that encrypts with another key than it reports keeps the key of before', async () => {
  const values = await connect();
  behaviour = { ...good('key-3'), status: () => good('key-2').status() };
  for (let i = 0; i < 3; i++)
    await assert.rejects(async () => values.keyServices[0]?.(), /encrypts with the key "key-3" and reports "key-2"/);
  const fields = readFields(values.seal(KEY, TEXT).subarray('k8s:enc:kms:v2:vault:'.length));
  assert.equal(bytesOf(fields, 2).toString(), 'key-1');
  values.close();
});

const REPORTS: Readonly<Record<string, Answer>> = {
  'is no message': Buffer.from([0xff]),
  'is empty': Buffer.alloc(0),
  'names no key': bytesField(2, 'ok'),
  'is an error': { code: 13 },
  'never comes': undefined,
};

for (const [what, status] of Object.entries(REPORTS)) {
  test(`a key management service whose status ${what} is unhealthy, and values are still encrypted`, async () => {
    const values = await connect();
    behaviour = { ...good('key-1'), status: () => status };
    await assert.rejects(async () => values.keyServices[0]?.(), /cannot be used/);
    const kept = values.seal(KEY, TEXT);
    assert.equal(kept.includes(TEXT), false);
    assert.deepEqual(values.open(KEY, kept), TEXT);
    values.close();
  });
}

/** Wrong responses to Decrypt. */
const DECRYPTIONS: Readonly<Record<string, Answer>> = {
  'is no message': Buffer.from([0x0a, 0x7f]),
  'is empty': Buffer.alloc(0),
  'is another seed': bytesField(1, randomBytes(32)),
  'is too long': bytesField(1, randomBytes(64)),
  'never comes': undefined,
};

for (const [what, answer] of Object.entries(DECRYPTIONS)) {
  test(`a key management service whose decryption ${what} gives no value, and the value is there once it is mended`, async () => {
    const first = await connect();
    const kept = { key: KEY, value: first.seal(KEY, TEXT) };
    first.close();
    const values = await connect();
    behaviour = { ...good('key-1'), decrypt: () => answer };
    await assert.rejects(async () => {
      await values.unlock([kept]);
      values.open(KEY, kept.value);
    });
    values.close();
    behaviour = good('key-1');
    const mended = await connect();
    await mended.unlock([kept]);
    assert.deepEqual(mended.open(KEY, kept.value), TEXT);
    mended.close();
  });
}
