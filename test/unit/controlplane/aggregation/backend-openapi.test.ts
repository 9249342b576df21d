/** The schemas of servers behind APIServices: what is taken of their documents, and how it fits into another one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { fetchOpenApi, mergeOpenApi, partOf } from '../../../../controlplane/aggregation/backend-openapi.ts';

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

test('of a document only what is about the group and version is taken, with all that it refers to', () => {
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

test('a document is fetched again only when its hash has changed; one without OpenAPI 3 is asked each time', async () => {
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
  const first = await fetchOpenApi(fetch, gv, undefined);
  assert.equal(first.url, url);
  assert.equal(await fetchOpenApi(fetch, gv, first), first);
  assert.deepEqual(asked, ['/openapi/v3', '/openapi/v2', '/openapi/v3']);
  url = '/openapi/v3/apis/a.io/v1?hash=2';
  assert.equal((await fetchOpenApi(fetch, gv, first)).url, url);
  url = '';
  assert.equal((await fetchOpenApi(fetch, gv, first)).url, '');
});
