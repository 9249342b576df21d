/** Tests the kind in bodies of custom resources. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import { customDecoder } from '../../../../../controlplane/registry/custom-resources/custom-decoder.ts';
import { atOnce } from '../../../../../api/machinery/pausing.ts';
import {
  builtInReader,
  createDecoder,
  type Decoder,
  type ExpectedKind,
  type PatchedObject,
} from '../../../../../controlplane/registry/object-decoding.ts';

type Context = Parameters<Decoder['decodePatched']>[0];

const decoded: KubeObject = { metadata: { name: 'x' } };

/** Stands for the decoder of the schema, which sets the kind. */
const inner = {
  // oxlint-disable-next-line require-yield -- nothing pauses here
  *decodeBody() {
    return decoded;
  },
  // oxlint-disable-next-line require-yield -- nothing pauses here
  *decodePatched() {
    return decoded;
  },
} as unknown as Decoder;

const thing = { group: 'a.io', version: 'v1', kind: 'Thing' } as ExpectedKind;
const context = {} as Context;

function decode(kind: string, expected: ExpectedKind, wrapped = inner): KubeObject[] {
  const value = { apiVersion: 'a.io/v1', kind, metadata: { name: 'x' } };
  const decoder = customDecoder(wrapped);
  const patched = { value, duplicates: [], shown: () => '' } as PatchedObject;
  return [
    atOnce(decoder.decodePatched(context, patched, expected, 'Ignore')),
    atOnce(decoder.decodeBody(context, { value, duplicates: [] }, expected, 'Ignore')),
  ];
}

test('another kind is refused, except in the body of a status, whose object keeps its kind', () => {
  assert.throws(() => decode('Other', thing), /kind: Invalid value: "Other": must be Thing/);
  assert.deepEqual(decode('Other', { ...thing, isStatus: true }), [decoded, decoded]);
  assert.throws(() => decode('', { ...thing, isStatus: true }), /Object 'Kind' is missing/);
});

test('the decoder of the schema reads a status that names another kind as the kind of its path', () => {
  const schema = loadSchema();
  const struct = schema.kind('', 'v1', 'ConfigMap');
  assert.ok(struct !== undefined);
  const status = { ...thing, struct, reader: { ...builtInReader }, isStatus: true };
  const read = { apiVersion: 'a.io/v1', kind: 'Thing', metadata: { name: 'x' } };
  assert.deepEqual(decode('Other', status, createDecoder(schema)), [read, read]);
});
