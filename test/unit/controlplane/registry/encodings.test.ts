import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { ResourceInfo, Schema } from '../../../../api/schema/schema.ts';
import type { Entry } from '../../../../controlplane/model/rest.ts';
import { flowSchemaColumns } from '../../../../controlplane/registry/kinds/flowcontrol/columns.ts';
import type { ProtobufCodec } from '../../../../api/codec/protobuf.ts';
import { createEncodings } from '../../../../controlplane/registry/encodings.ts';

const CREATED_MS = Date.parse('2026-01-02T03:04:05Z');
const MINUTE_MS = 60_000;
const object = { apiVersion: 'v1', kind: 'Thing', metadata: { name: 'a' } } as unknown as KubeObject;
const entry = { object, bytes: Buffer.from('{}') } as unknown as Entry;
const info = { group: '', kind: 'Thing' } as ResourceInfo;

function encodings() {
  return createEncodings({
    schema: {} as Schema,
    protobuf: {} as ProtobufCodec,
    yaml: String,
    columnsOf: () => ({
      columns: [],
      cells: ({ metadata }) => [
        metadata.name ?? '',
        { sinceMs: CREATED_MS, before: 'up ' },
        { sinceMs: CREATED_MS + 500 },
      ],
    }),
  });
}

test('a row of a table is encoded again exactly when one of its ages has another text', () => {
  const { tableRow } = bound(encodings());
  const first = tableRow(CREATED_MS + 11 * MINUTE_MS + 600);
  assert.equal(String(first), '{"cells":["a","up 11m","11m"],"object":null}');
  assert.equal(tableRow(CREATED_MS + 12 * MINUTE_MS - 1), first);
  const second = tableRow(CREATED_MS + 12 * MINUTE_MS);
  assert.equal(String(second), '{"cells":["a","up 12m","11m"],"object":null}');
  assert.equal(tableRow(CREATED_MS + 12 * MINUTE_MS + 499), second);
  assert.equal(String(tableRow(CREATED_MS + 12 * MINUTE_MS + 500)), '{"cells":["a","up 12m","12m"],"object":null}');
});

test('a row whose ages have other texts shares its object with the row before', () => {
  const all = encodings();
  const one = { object, bytes: Buffer.from('{"kind":"Thing"}') } as unknown as Entry;
  const rowAt = (include: 'Metadata' | 'Object', nowMs: number) =>
    all.tableRow(one, { info, include, version: 'v1', nowMs });
  for (const include of ['Metadata', 'Object'] as const) {
    const first = rowAt(include, CREATED_MS);
    const second = rowAt(include, CREATED_MS + MINUTE_MS);
    assert.notEqual(first[0], second[0]);
    assert.equal(first[1], second[1]);
    assert.equal(first[1], include === 'Object' ? one.bytes : all.metadata(one, 'v1'));
    assert.deepEqual(Object.keys(JSON.parse(Buffer.concat([...second]).toString()) as object), ['cells', 'object']);
  }
});

test('forms of one row that are requested in turns do not mix', () => {
  const all = encodings();
  const one = { object, bytes: Buffer.from('{"kind":"Thing"}') } as unknown as Entry;
  const options = { info, version: 'v1', nowMs: CREATED_MS } as const;
  for (let turn = 0; turn < 2; turn += 1) {
    assert.equal(all.tableRow(one, { ...options, include: 'Object' })[1], one.bytes);
    assert.equal(all.tableRow(one, { ...options, include: 'None' }).length, 1);
    assert.match(String(all.tableRow(one, { ...options, include: 'Metadata' })[1]), /PartialObjectMetadata/);
  }
});

test('encodings of two servers do not mix', () => {
  const one = { object, bytes: Buffer.from('{}') } as unknown as Entry;
  const [a, b] = [encodings(), encodings()];
  assert.notEqual(a.metadata(one, 'v1'), b.metadata(one, 'v1'));
  assert.deepEqual(a.metadata(one, 'v1'), b.metadata(one, 'v1'));
});

test('a row is right after the clock was set back, also to before the creation', () => {
  const { tableRow } = bound(encodings());
  tableRow(CREATED_MS + 12 * MINUTE_MS);
  assert.equal(String(tableRow(CREATED_MS + 3_600)), '{"cells":["a","up 3s","3s"],"object":null}');
  assert.equal(String(tableRow(CREATED_MS - 9_000)), '{"cells":["a","up <invalid>","<invalid>"],"object":null}');
});

test('the metadata of a daemon set lack the annotation that counts its templates', () => {
  const generation = { 'deprecated.daemonset.template.generation': '1' };
  const metadataOf = (kind: string, annotations: Record<string, string>): unknown => {
    const one = { apiVersion: 'apps/v1', kind, metadata: { name: 'a', annotations } };
    const bytes = encodings().metadata({ object: one, bytes: Buffer.from('{}') } as unknown as Entry, 'v1');
    return (JSON.parse(String(bytes)) as KubeObject).metadata;
  };
  assert.deepEqual(metadataOf('DaemonSet', generation), { name: 'a' });
  assert.deepEqual(metadataOf('DaemonSet', { a: 'b', ...generation }), { name: 'a', annotations: { a: 'b' } });
  assert.deepEqual(metadataOf('Deployment', generation), { name: 'a', annotations: generation });
});

test('the rows of flow schemas have the order in which requests match them', () => {
  const schemas = [
    ['a', 100],
    ['c', 1],
    ['b', 1],
    ['d', undefined],
  ].map(
    ([name, matchingPrecedence]) =>
      ({ object: { metadata: { name }, spec: { matchingPrecedence } } }) as unknown as Entry,
  );
  const ofSchemas = createEncodings({
    ...{ schema: {} as Schema, protobuf: {} as ProtobufCodec, yaml: String },
    columnsOf: () => flowSchemaColumns,
  });
  const names = (entries: readonly Entry[]) => entries.map((one) => one.object.metadata.name);
  assert.deepEqual(names(ofSchemas.inRowOrder(info, schemas)), ['d', 'b', 'c', 'a']);
  assert.equal(encodings().inRowOrder(info, schemas), schemas);
});

function bound(all: ReturnType<typeof encodings>) {
  return { tableRow: (nowMs: number) => all.tableRow(entry, { info, include: 'None', version: 'v1', nowMs }) };
}
