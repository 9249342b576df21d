/**
 * Objects of every built-in kind are generated from the schema. Encoding and decoding them in every format results in the same
 * object.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeJson, parseJson } from '../../../../api/codec/json.ts';
import { createProtobufCodec } from '../../../../api/codec/protobuf.ts';
import { MessageTypes } from '../../../../api/codec/protobuf-messages.ts';
import { ProtobufReader } from '../../../../api/codec/protobuf-wire.ts';
import { parseYaml, stringifyYaml } from '../../../../api/codec/yaml.ts';
import { apiVersionOf, type JsonObject, type KubeObject } from '../../../../api/meta/object.ts';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { decodeStruct } from '../../../../api/schema/decode.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { encodeObject, parseObject, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { generateObject } from '../../../fakes/generated-object.ts';

const SEEDS = [1, 2, 3, 4, 5];
const META = 'io.k8s.apimachinery.pkg.apis.meta.v1';
const schema = loadSchema();
const codec = createProtobufCodec(schema);

interface Kind {
  readonly apiVersion: string;
  readonly kind: string;
  readonly make: (seed: number) => KubeObject;
}

/** Returns the kinds of resources and of their subresources. */
function kinds(): Kind[] {
  const found = new Map<string, Kind>();
  for (const info of builtinResources()) {
    const rows = [info, ...info.subresources.flatMap((sub) => (sub.kind === undefined ? [] : [{ ...info, ...sub }]))];
    for (const { group, version, kind } of rows) {
      const struct = schema.kind(group, version, kind);
      if (struct === undefined) continue;
      const apiVersion = apiVersionOf({ group, version });
      found.set(`${apiVersion} ${kind}`, {
        apiVersion,
        kind,
        make: (seed) => ({
          ...generateObject(struct, seed),
          apiVersion,
          kind,
          metadata: { ...(generateObject(struct, seed)['metadata'] as object | undefined), name: 'a' },
        }),
      });
    }
  }
  return [...found.values()];
}
const all = kinds();

/** Removes what JSON has and protobuf does not. */
const asSent = (object: object): unknown => JSON.parse(JSON.stringify(object, exact));
const exact = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? `${value}n` : value);

test('there is a form for every built-in resource', () => {
  for (const { group, version, kind } of builtinResources()) {
    const apiVersion = apiVersionOf({ group, version });
    assert.ok(
      all.some((one) => one.apiVersion === apiVersion && one.kind === kind),
      `${apiVersion} ${kind}`,
    );
  }
  assert.ok(all.length > 60, String(all.length));
});

test('as JSON and as YAML', () => {
  for (const { kind, make } of all) {
    for (const seed of SEEDS) {
      const object = make(seed);
      assert.deepEqual(parseJson(encodeJson(object)).value, object, `${kind}, seed ${seed}`);
      assert.deepEqual(parseYaml(stringifyYaml(object)).value, object, `${kind}, seed ${seed}`);
    }
  }
});

test('as JSON that was read by the schema', () => {
  for (const { apiVersion, kind, make } of all) {
    const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
    const struct = schema.kind(group, version, kind);
    assert.ok(struct !== undefined);
    for (const seed of SEEDS) {
      const read: unknown = decodeStruct(struct, make(seed)).value;
      const again = decodeStruct(struct, parseJson(encodeJson(read)).value);
      assert.deepEqual(again.value, read, `${kind}, seed ${seed}`);
      assert.deepEqual(again.unknown, []);
    }
  }
});

test('as it is stored, with its revision', () => {
  for (const { kind, make } of all) {
    for (const seed of SEEDS) {
      const object = make(seed);
      const stored = parseObject(stampRevision(encodeObject(object), 7));
      const expected = { ...object, metadata: { ...object.metadata, resourceVersion: '7' } };
      assert.deepEqual(asSent(stored), asSent(expected), `${kind}, seed ${seed}`);
    }
  }
});

test('as protobuf, alone, in a list and in a frame of a watch', () => {
  const frame = schema.struct(`${META}.WatchEvent`);
  assert.ok(frame !== undefined);
  const frames = new MessageTypes(schema, (bytes) => codec.decode(bytes)).of(frame);
  for (const { apiVersion, kind, make } of all) {
    const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
    const hasList = codec.has(group, version, `${kind}List`);
    const objects = SEEDS.map((seed) => codec.decode(codec.encodeEnveloped(make(seed))));
    for (const [at, object] of objects.entries()) {
      const bytes = codec.encodeEnveloped(object);
      assert.deepEqual(codec.decode(bytes), object, `${kind}, seed ${SEEDS[at]}`);
      const event = Buffer.concat(codec.watchEvent('MODIFIED', [bytes]));
      assert.deepEqual(frames.read(new ProtobufReader(event)), { type: 'MODIFIED', object }, kind);
    }
    if (!hasList) continue;
    const messages = objects.map((object) => codec.encodeItem(object));
    const list = codec.decode(Buffer.concat(codec.list(apiVersion, `${kind}List`, { resourceVersion: '7' }, messages)));
    const items = objects.map(({ apiVersion: _version, kind: _kind, ...bare }): JsonObject => bare);
    assert.deepEqual(list['items'], items, kind);
    assert.deepEqual(list['metadata'], { resourceVersion: '7' });
  }
});

test('a made-up object loses nothing of what protobuf can say', () => {
  for (const { apiVersion, kind, make } of all) {
    for (const seed of SEEDS) {
      const object = make(seed);
      const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
      const knowsMetadata = schema.kind(group, version, kind)?.fields.has('metadata') === true;
      const { metadata: _metadata, ...bare } = object;
      assert.deepEqual(
        codec.decode(codec.encodeEnveloped(object)),
        knowsMetadata ? object : bare,
        `${kind}, seed ${seed}`,
      );
    }
  }
});

test('Status and the options of every verb', () => {
  for (const kind of [
    'Status',
    'ListOptions',
    'GetOptions',
    'CreateOptions',
    'UpdateOptions',
    'PatchOptions',
    'DeleteOptions',
  ]) {
    const struct = schema.struct(`${META}.${kind}`);
    assert.ok(struct !== undefined, kind);
    const apiVersion = kind === 'Status' ? 'v1' : 'meta.k8s.io/v1';
    for (const seed of SEEDS) {
      const { apiVersion: _version, kind: _kind, ...fields } = generateObject(struct, seed);
      const object = { apiVersion, kind, ...fields };
      assert.deepEqual(parseJson(encodeJson(object)).value, object);
      assert.deepEqual(codec.decode(codec.encodeEnveloped(object)), object, `${kind}, seed ${seed}`);
    }
  }
});
