import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseYaml } from '../../../../../api/codec/yaml.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';
import {
  lineOfField,
  rankOf,
  readDocuments,
  splitDocuments,
} from '../../../../../controlplane/controllers/manifests/manifest-documents.ts';

const read = (text: string | Uint8Array, isJson = false): ReturnType<typeof readDocuments> =>
  readDocuments(Buffer.from(text), { isJson, yaml: { first: parseYaml }, turn: () => undefined });

test('each document of a file is read with the number of its first line', async () => {
  const { documents, faults } = await read(
    [
      '# a comment alone is no document',
      '---',
      'apiVersion: v1',
      'kind: Namespace',
      'metadata: {name: a}',
      '--- # the next',
      'apiVersion: apps/v1',
      'kind: Deployment',
      'metadata:',
      '  name: b',
      '  namespace: c',
      '---',
      '',
    ].join('\n'),
  );
  assert.deepEqual(faults, []);
  assert.deepEqual(
    documents.map(({ group, version, kind, namespace, name, line }) => [group, version, kind, namespace, name, line]),
    [
      ['', 'v1', 'Namespace', '', 'a', 2],
      ['apps', 'v1', 'Deployment', 'c', 'b', 6],
    ],
  );
});

test('a broken document is named with its line in the file and hides no other', async () => {
  const { documents, faults } = await read(
    'apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: B\n  bad: [\n---\napiVersion: v1\nkind: C\nmetadata: {name: c}\n',
  );
  assert.deepEqual(
    documents.map(({ kind }) => kind),
    ['A', 'C'],
  );
  assert.equal(faults.length, 1);
  assert.ok((faults[0]?.line ?? 0) >= 5 && (faults[0]?.line ?? 0) <= 7, JSON.stringify(faults));
});

for (const [what, text, message] of [
  ['a text', 'hello', /must be an object/],
  ['a number', '5', /must be an object/],
  ['a list', '- a', /must be an object/],
  ['no apiVersion', 'kind: A\nmetadata: {name: a}', /apiVersion is missing/],
  ['an apiVersion of three parts', 'apiVersion: a/b/c\nkind: A\nmetadata: {name: a}', /is no apiVersion/],
  ['no kind', 'apiVersion: v1\nmetadata: {name: a}', /kind is missing/],
  ['no metadata', 'apiVersion: v1\nkind: A', /metadata is missing/],
  ['a generated name', 'apiVersion: v1\nkind: A\nmetadata: {generateName: a-}', /metadata.name is missing/],
  ['a name that is a number', 'apiVersion: v1\nkind: A\nmetadata: {name: 5}', /metadata.name is missing/],
  ['a key that is there twice', 'apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: a}', /already set in map/],
] as const) {
  test(`a document with ${what} is a fault`, async () => {
    const { documents, faults } = await read(text);
    assert.deepEqual(documents, []);
    assert.match(faults[0]?.message ?? '', message);
  });
}

test('bytes that are not UTF-8 are a fault of the file', async () => {
  const { faults } = await read(Uint8Array.from([0xff, 0xfe, 0x00]));
  assert.deepEqual(faults, [{ line: 0, message: 'The file is not UTF-8 text' }]);
});

test('the items of a list are objects of their own, in JSON as well', async () => {
  const item = { apiVersion: 'v1', kind: 'A', metadata: { name: 'a' } };
  const { documents } = await read(JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [item, item] }), true);
  assert.equal(documents.length, 2);
});

for (const [what, part] of [
  ['blank lines', '\n'],
  ['comments', '# a\n'],
  ['marks of documents', '---\n'],
  ['blanks', ' '],
] as const) {
  test(`a file of ${what} is split in time that grows with it`, () =>
    assertLinearTime((size) => splitDocuments(part.repeat(Math.ceil(size / part.length))), { maxBytes: 1 << 20 }));
}

test('an object that a file has too many of is not applied', async () => {
  const one = 'apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n';
  const { documents, faults } = await read(one.repeat(1_001));
  assert.equal(documents.length, 1_000);
  assert.match(faults[0]?.message ?? '', /may have 1000 objects/);
});

test('namespaces and definitions come first, and what may refuse others comes last', async () => {
  const kinds = [
    'admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration',
    'apps/v1 Deployment',
    'v1 ConfigMap',
    'apiextensions.k8s.io/v1 CustomResourceDefinition',
    'v1 Namespace',
  ];
  const text = kinds.map((kind) => `apiVersion: ${kind.replace(' ', '\nkind: ')}\nmetadata: {name: a}\n`).join('---\n');
  const { documents } = await read(text);
  assert.deepEqual(
    documents.map((document) => rankOf(document)),
    [4, 3, 2, 1, 0],
  );
});

test('the line of a field is that in the file', async () => {
  const { documents } = await read('---\n---\napiVersion: v1\nkind: A\nmetadata:\n  name: a\nspec:\n  replicas: x\n');
  const [document] = documents;
  assert.ok(document);
  assert.equal(lineOfField(document, 'spec.replicas'), 8);
  assert.equal(lineOfField(document, undefined), document.line);
});
