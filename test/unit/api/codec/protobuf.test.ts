import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { MAX_VALUES } from '../../../../api/codec/limits.ts';
import { createProtobufCodec, MessageError } from '../../../../api/codec/protobuf.ts';
import { MessageTypes, hasMessage } from '../../../../api/codec/protobuf-messages.ts';
import { ProtobufReader, ProtobufWriter } from '../../../../api/codec/protobuf-wire.ts';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { generateObject } from '../../../fakes/generated-object.ts';

const schema = loadSchema();
const codec = createProtobufCodec(schema);
const pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'p', labels: { a: 'b' }, creationTimestamp: '2024-01-02T03:04:05Z' },
  spec: {
    containers: [{ name: 'c', livenessProbe: { httpGet: { port: 80 } } }],
    volumes: [{ name: 'v', emptyDir: {} }],
  },
};

test('an encoded object decodes to the same object, for every type', () => {
  const types = new MessageTypes(schema, () => undefined);
  for (const name of schema.structNames()) {
    const struct = schema.struct(name);
    if (struct === undefined || !hasMessage(struct)) continue;
    const type = types.of(struct);
    for (let seed = 1; seed <= 8; seed += 1) {
      const object = generateObject(struct, seed);
      const writer = new ProtobufWriter();
      writer.reset();
      type.write(writer, object);
      const reader = new ProtobufReader(writer.take());
      assert.deepEqual(type.read(reader), object, `${name}, seed ${seed}`);
      assert.ok(reader.done);
    }
  }
});

test('every served kind has a message', () => {
  for (const { group, version, kind } of builtinResources()) assert.ok(codec.has(group, version, kind), kind);
  assert.equal(codec.has('example.com', 'v1', 'Thing'), false);
});

test('an enveloped object comes back with its type', () => {
  const bytes = codec.encodeEnveloped(pod);
  assert.equal(bytes.subarray(0, 4).toString('latin1'), 'k8s\0');
  assert.deepEqual(codec.decode(bytes), pod);
});

test('a time of the year 0 comes back, as JSON may have it', () => {
  const old = { ...pod, metadata: { ...pod.metadata, deletionTimestamp: '0000-05-05T00:00:00Z' } };
  assert.deepEqual(codec.decode(codec.encodeEnveloped(old)), old);
});

test('the bytes of a small object are what kube-apiserver would write, without the zero values', () => {
  const bytes = codec.encode({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'a' },
    data: { k: 'v', b: 'c' },
  });
  assert.equal(bytes.toString('hex'), '0a030a016112060a016212016312060a016b120176');
});

test('a list around finished items is the list of them', () => {
  const item = codec.encodeItem(pod);
  const bytes = Buffer.concat(codec.list('v1', 'PodList', { resourceVersion: '7' }, [item, item]));
  const { apiVersion: _apiVersion, kind: _kind, ...bare } = pod;
  assert.deepEqual(codec.decode(bytes), {
    apiVersion: 'v1',
    kind: 'PodList',
    metadata: { resourceVersion: '7' },
    items: [bare, bare],
  });
});

test('an embedded object may be protobuf itself', () => {
  const event = Buffer.concat(codec.watchEvent('ADDED', [codec.encodeEnveloped(pod)]));
  const watchEvent = schema.struct('io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent');
  assert.ok(watchEvent !== undefined);
  const types = new MessageTypes(schema, (bytes) => codec.decode(bytes));
  assert.deepEqual(types.of(watchEvent).read(new ProtobufReader(event)), { type: 'ADDED', object: pod });
});

test('packed numbers are read, unknown fields are passed over', () => {
  // PodSecurityContext.supplementalGroups is field 4; field 100 does not exist.
  const struct = schema.struct('io.k8s.api.core.v1.PodSecurityContext');
  assert.ok(struct !== undefined);
  const type = new MessageTypes(schema, () => undefined).of(struct);
  const packed = Buffer.from([0x22, 0x02, 0x05, 0x07, 0xa0, 0x06, 0x01, 0x20, 0x09]);
  assert.deepEqual(type.read(new ProtobufReader(packed)), { supplementalGroups: [5, 7, 9] });
});

test('bytes that are no message of Kubernetes are refused with 400', () => {
  for (const bytes of [
    Buffer.from('{}'),
    Buffer.from('k8s\0'),
    Buffer.concat(codec.envelop('v1', 'Nothing', Buffer.alloc(0))),
  ]) {
    assert.throws(
      () => codec.decode(bytes),
      (error) => error instanceof StatusError && error.code === 400,
    );
  }
});

test('bytes that are cut or changed never do worse than 400', () => {
  const bytes = codec.encodeEnveloped(pod);
  fc.assert(
    fc.property(fc.nat(bytes.length - 1), fc.nat(255), fc.boolean(), (at, byte, cut) => {
      const changed = cut ? bytes.subarray(0, at) : Buffer.from(bytes);
      if (!cut) changed[at] = byte;
      try {
        codec.decode(changed);
      } catch (error) {
        assert.ok(error instanceof StatusError && error.code === 400, String(error));
      }
    }),
    { numRuns: 500 },
  );
});

test('a length beyond the end is refused before anything is allocated', () => {
  const message = Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]);
  assert.throws(() => codec.decode(Buffer.concat(codec.envelop('v1', 'Pod', message))), /unexpected EOF/);
});

test('a message of a million empty items is refused', () => {
  const containers = Buffer.alloc(2_000_000, Buffer.from([0x12, 0x00]));
  const head = Buffer.from([
    0x12,
    ...[0, 7, 14].map((shift) => ((containers.length >> shift) & 127) | 128),
    containers.length >> 21,
  ]);
  const bytes = Buffer.concat(codec.envelop('v1', 'Pod', Buffer.concat([head, containers])));
  assert.throws(() => codec.decode(bytes, MAX_VALUES), /exceeded the limit of \d+ values/);
});

test('a schema with items has no fields that are zero, also in the binary form of the generated clients', () => {
  const name = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';
  const struct = schema.struct(name);
  assert(struct !== undefined);
  const types = new MessageTypes(schema, () => undefined);
  const writer = new ProtobufWriter();
  writer.reset();
  // The items schema contains an empty id (field 1), as Go writes it.
  types.of(struct).write(writer, { type: 'array', items: { type: 'string' } });
  const bytes = writer.take();
  const inner = Buffer.from([0x2a, 0x06, ...Buffer.from('string')]);
  const at = bytes.indexOf(inner);
  assert.ok(at > 0);
  const withId = Buffer.concat([bytes.subarray(0, at), Buffer.from([0x0a, 0x00]), bytes.subarray(at)]);
  // The lengths of the two enclosing messages precede their content, with the tag of the inner one in between.
  for (const length of [at - 1, at - 3]) withId[length] = (withId[length] ?? 0) + 2;
  assert.deepEqual(types.of(struct).read(new ProtobufReader(withId)), { type: 'array', items: { type: 'string' } });
});

test('a body whose envelope leaves out its type is of the expected type', () => {
  const expected = { apiVersion: 'v1', kind: 'ConfigMap' };
  const message = codec.encode({ ...expected, metadata: { name: 'a' } });
  for (const apiVersion of ['', 'a/b/c']) {
    const body = codec.decodeBody(Buffer.concat(codec.envelop(apiVersion, '', message)), {
      expected,
      maxValues: MAX_VALUES,
    });
    assert.deepEqual(body, { ...expected, metadata: { name: 'a' } }, apiVersion);
  }
  const unknown = codec.decodeBody(Buffer.concat(codec.envelop('v2', 'ConfigMap', message)), {
    expected,
    maxValues: MAX_VALUES,
  });
  assert.deepEqual(unknown, { apiVersion: 'v2', kind: 'ConfigMap' });
});

test('a message that cannot be decoded is refused in the words of the decoders of Go', () => {
  const expected = { apiVersion: 'v1', kind: 'Pod' };
  const cases: Readonly<Record<string, string>> = {
    '00': 'proto: Pod: illegal tag 0 (wire type 0)',
    '0c': 'proto: Pod: wiretype end group for non-group',
    '0801': 'proto: wrong wireType = 0 for field ObjectMeta',
    '0a02087f': 'proto: wrong wireType = 0 for field Name',
    '0a05': 'unexpected EOF',
    '0affffffffffffffffff01': 'proto: negative length found during unmarshaling',
    '0affffffffffffffffffff01': 'proto: integer overflow',
    '4f': 'proto: illegal wireType 7',
    '0a035a011c': 'proto: unexpected end of group', // in a label
    '1206120452020801': 'proto: wrong wireType = 0 for field ProbeHandler', // of a liveness probe
  };
  for (const [hex, text] of Object.entries(cases)) {
    const bytes = Buffer.concat(codec.envelop('v1', 'Pod', Buffer.from(hex, 'hex')));
    assert.throws(
      () => codec.decodeBody(bytes, { expected, maxValues: MAX_VALUES }),
      (error) => error instanceof MessageError && error.message === text,
      text,
    );
  }
});

test('groups with unknown numbers are passed over, and a label may reach beyond its entry', () => {
  const expected = { apiVersion: 'v1', kind: 'ConfigMap' };
  const decode = (hex: string) =>
    codec.decodeBody(Buffer.concat(codec.envelop('v1', 'ConfigMap', Buffer.from(hex, 'hex'))), {
      expected,
      maxValues: MAX_VALUES,
    });
  assert.deepEqual(decode('4b08014b4c4c0a030a0161'), { ...expected, metadata: { name: 'a' } });
  // The entry ends after the tag of its value, which takes its length and its bytes from the metadata that follow.
  const following = { metadata: { name: 'abcdefghi' }, data: { '': '\v\n\tabcdefg' } };
  assert.deepEqual(decode('1201120a0b0a09616263646566676869'), { ...expected, ...following });
});
