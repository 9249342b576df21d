/** Tests the schemas of servers behind APIServices: which parts of their documents are used, and how they are merged. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject, JsonValue } from '../../../../../api/meta/object.ts';
import { checkEncodable } from '../../../../../controlplane/server/openapi/encode-document.ts';
import {
  type BackendOpenApi,
  fetchOpenApi,
  mergeOpenApi,
  partOf,
} from '../../../../../controlplane/registry/aggregation/backend-openapi.ts';

const GV = { group: 'a.io', version: 'v1' };
const PATH = '/apis/a.io/v1/things';

function fetchFrom(document: unknown, url: unknown = ''): Promise<BackendOpenApi> {
  const index = { paths: { 'apis/a.io/v1': { serverRelativeURL: url } } };
  return fetchOpenApi(
    (path) => Promise.resolve(path === '/openapi/v2' ? document : index),
    GV,
    undefined,
    checkEncodable,
  );
}

const reference = (name: string): JsonObject => ({ $ref: `#/definitions/${name}` });
const DOCUMENT = {
  paths: {
    '/apis/a.io/v1/things': { get: { schema: reference('Thing') }, parameters: [{ $ref: '#/parameters/p' }] },
    '/apis/a.io/v10/things': {},
    '/apis/b.io/v1/others': { get: { schema: reference('Other') } },
  },
  definitions: {
    Thing: { properties: { meta: reference('Meta'), inner: reference('Inner') } },
    Inner: { properties: { again: reference('Inner') } },
    Meta: { type: 'object', description: 'theirs' },
    Other: {},
  },
  parameters: { p: { name: 'p' }, q: { name: 'q' } },
};

test('only the parts of a document about the group and version are taken, with everything that they refer to', () => {
  const part = partOf(DOCUMENT, '/apis/a.io/v1');
  assert.deepEqual(Object.keys(part.paths), ['/apis/a.io/v1/things']);
  assert.deepEqual(Object.keys(part.definitions).sort(), ['Inner', 'Meta', 'Thing']);
  assert.deepEqual(Object.keys(part.parameters), ['p']);
});

test('types that both have are shared, others of the same name are renamed with what refers to them', () => {
  const own: JsonObject = {
    paths: { '/api/v1/pods': {} },
    definitions: { Meta: { type: 'object', description: 'ours' }, Inner: { type: 'string' } },
    parameters: {},
  };
  mergeOpenApi(own, { path: 'apis/a.io/v1', url: '', ...partOf(DOCUMENT, '/apis/a.io/v1') });
  assert.deepEqual(own['definitions'], {
    Meta: { type: 'object', description: 'ours' },
    Inner: { type: 'string' },
    Inner_v2: { properties: { again: reference('Inner_v2') } },
    Thing: { properties: { meta: reference('Meta'), inner: reference('Inner_v2') } },
  });
  assert.deepEqual(Object.keys(own['paths'] as object), ['/api/v1/pods', '/apis/a.io/v1/things']);
});

test('a document is fetched again only when its hash has changed; a server without OpenAPI 3 is called each time', async () => {
  const asked: string[] = [];
  let url = '/openapi/v3/apis/a.io/v1?hash=1';
  const fetch = (path: string): Promise<unknown> => {
    asked.push(path);
    if (path === '/openapi/v2') return Promise.resolve(DOCUMENT);
    return url === ''
      ? Promise.reject(new Error('404'))
      : Promise.resolve({ paths: { 'apis/a.io/v1': { serverRelativeURL: url } } });
  };
  const gv = { group: 'a.io', version: 'v1' };
  const first = await fetchOpenApi(fetch, gv, undefined, () => undefined);
  assert.equal(first.url, url);
  assert.equal(await fetchOpenApi(fetch, gv, first, () => undefined), first);
  assert.deepEqual(asked, ['/openapi/v3', '/openapi/v2', '/openapi/v3']);
  url = '/openapi/v3/apis/a.io/v1?hash=2';
  assert.equal((await fetchOpenApi(fetch, gv, first, () => undefined)).url, url);
  url = '';
  assert.equal((await fetchOpenApi(fetch, gv, first, () => undefined)).url, '');
});

function chain(length: number): JsonObject {
  const definitions: JsonObject = {};
  for (let at = 0; at < length; at += 1) definitions[`d${at}`] = reference(`d${at + 1}`);
  return { paths: { [PATH]: { get: { responses: { 200: { schema: reference('d0') } } } } }, definitions };
}

function nested(depth: number): JsonValue {
  let value: JsonValue = {};
  for (let at = 0; at < depth; at += 1) value = { items: value };
  return { paths: { [PATH]: { get: { responses: { 200: { schema: value } } } } } };
}

const hostile: readonly (readonly [string, JsonValue])[] = [
  ['is nested three thousand times', nested(3000)],
  ['has a path that is a text', { paths: { [PATH]: 'x' } }],
  ['has a list where an operation belongs', { paths: { [PATH]: { get: [] } } }],
  ['has a member that no document has', { paths: { [PATH]: { get: { constructor: 1 } } } }],
  [
    'has two hundred thousand values',
    { paths: { [PATH]: { get: { tags: Array.from({ length: 200_000 }, () => 'x') } } } },
  ],
  ['has three megabytes of text', { paths: { [PATH]: { get: { description: 'x'.repeat(3_000_000) } } } }],
];
for (const [what, document] of hostile) {
  test(`a document of a server that ${what} is not merged into the document of the cluster`, async () => {
    await assert.rejects(fetchFrom(document));
  });
}

test('definitions that refer to each other ten thousand times are followed', async () => {
  const { definitions } = await fetchFrom(chain(10_000));
  assert.equal(Object.keys(definitions).length, 10_000);
});

test('the name of a method of all objects is no definition', () => {
  const { definitions } = partOf({ paths: { [PATH]: reference('constructor') }, definitions: {} }, '/apis/a.io/v1');
  assert.deepEqual(Object.keys(definitions), []);
});

const DOCUMENT_OF_NOTHING = {};
for (const url of [
  'https://evil.example.com/openapi/v3/apis/a.io/v1',
  '/api/v1/secrets',
  '/openapi/v3/apis/a.io/v1/../../../../api/v1/secrets',
  { toString: 1 },
  '/openapi/v3/apis/a.io/v1?' + 'x'.repeat(2000),
]) {
  test(`the index of OpenAPI 3 does not send clients to ${JSON.stringify(url).slice(0, 60)} of a server`, async () => {
    assert.equal((await fetchFrom(DOCUMENT_OF_NOTHING, url)).url, '');
  });
}
