/**
 * Tests encrypted values of etcd, against what a kube-apiserver 1.36.2 has written with the configuration below
 * (`recorded/encrypted.jsonl`), and what it answered for the same objects (`recorded/encrypted-answers.jsonl`).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseExactJson } from '../../../../../api/codec/json.ts';
import { createProtobufCodec } from '../../../../../api/codec/protobuf.ts';
import type { JsonObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import { encryptedValues } from '../../../../../controlplane/storage/encryption/encrypted-values.ts';
import { parseEncryptionConfig } from '../../../../../controlplane/storage/encryption/encryption-config.ts';
import { parseObject } from '../../../../../controlplane/storage/object-bytes.ts';
import { etcdKeys } from '../../../../../controlplane/storage/etcd/keys.ts';
import { etcdValues } from '../../../../../controlplane/storage/etcd/values.ts';

const secret = Buffer.from('0123456789abcdef0123456789abcdef').toString('base64');
const provider = (resource: string, name: string): string =>
  `- resources: [${resource}]\n  providers:\n  - ${name}: {keys: [{name: key1, secret: ${secret}}]}\n  - identity: {}\n`;
const CONFIG = `kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
${provider('secrets', 'aescbc')}${provider('configmaps', 'secretbox')}${provider('serviceaccounts', 'aesgcm')}`;

const lines = (name: string): JsonObject[] =>
  readFileSync(join(import.meta.dirname, 'recorded', name), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => parseExactJson(line) as JsonObject);

const schema = loadSchema();
const layout = etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }));
const keys = etcdKeys('/registry');

test('values that kube-apiserver has encrypted are read as it answers them, and ours have its form', async () => {
  const values = encryptedValues(
    await parseEncryptionConfig(CONFIG, 'encryption.yaml', () => assert.fail('no key management service')),
  );
  const answers = new Map(lines('encrypted-answers.jsonl').map((one) => [String(one['kind']), one]));
  const rows = lines('encrypted.jsonl');
  assert.equal(rows.length, 3);
  for (const row of rows) {
    const etcdKey = String(row['key']);
    const key = keys.fromEtcd(etcdKey) ?? assert.fail(etcdKey);
    const kept = Buffer.from(String(row['value']), 'base64');
    const plain = values.open(key, kept, etcdKey);
    const object = parseObject(layout.fromEtcd(plain));
    object.metadata.resourceVersion = String(row['modRevision']);
    assert.deepEqual(object, answers.get(object.kind ?? ''), etcdKey);
    const prefix = /^k8s:enc:\w+:v1:key1:/.exec(kept.toString('latin1'))?.[0] ?? assert.fail(etcdKey);
    const sealed = values.seal(key, layout.toEtcd(layout.fromEtcd(plain)), etcdKey);
    assert.equal(sealed.toString('latin1', 0, prefix.length), prefix);
    assert.equal(sealed.length, kept.length);
    assert.deepEqual(values.open(key, sealed, etcdKey), plain);
  }
});

test('an encrypted value is bound to its key in etcd, where the provider can bind it', async () => {
  const values = encryptedValues(
    await parseEncryptionConfig(CONFIG, 'encryption.yaml', () => assert.fail('no key management service')),
  );
  const row = lines('encrypted.jsonl').find((one) => String(one['key']).includes('serviceaccounts'));
  const kept = Buffer.from(String(row?.['value']), 'base64');
  assert.throws(
    () => values.open('/core/serviceaccounts/default/a1', kept, '/registry/serviceaccounts/default/other'),
    /cannot be decrypted/,
  );
});
