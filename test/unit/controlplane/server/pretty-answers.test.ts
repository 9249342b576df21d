/**
 * Tests the text of JSON answers, over HTTP: 'api/http/pretty.ts', 'controlplane/server/response.ts',
 * 'controlplane/server/media-type.ts', 'controlplane/server/formatted-list.ts', 'controlplane/server/version.ts' and
 * 'controlplane/server/index-page.ts'. The expected texts are those of kube-apiserver 1.36.2.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { wantsPretty } from '../../../../api/http/pretty.ts';
import { TestedPlane } from '../../../integration/tested-plane.ts';

const NAMESPACE = '/api/v1/namespaces/default';
const MISSING = `${NAMESPACE}/configmaps/missing`;
const TABLE = 'application/json;as=Table;g=meta.k8s.io;v=v1';

let tested: TestedPlane;
before(async () => {
  tested = await TestedPlane.start();
});
after(() => tested.close());

const textOf = async (path: string, accept?: string): Promise<string> =>
  (await tested.call({ path, ...(accept === undefined ? {} : { accept }) })).text;

describe('one line ends in a newline', () => {
  for (const path of [NAMESPACE, '/api/v1/namespaces', MISSING, '/api', '/apis', '/apis/apps', '/apis/apps/v1'])
    test(path, async () => assert.match(await textOf(path), /^\{[^\n]*\}\n$/));
  test('a table', async () => assert.match(await textOf(NAMESPACE, TABLE), /^\{[^\n]*\}\n$/));
});

describe('an indented text does not', () => {
  for (const path of [NAMESPACE, '/api/v1/namespaces', MISSING, '/api', '/apis', '/apis/apps', '/apis/apps/v1'])
    for (const [how, at, accept] of [
      ['by the query', `${path}?pretty=true`, undefined],
      ['by the Accept header', path, 'application/json;pretty=1'],
    ] as const)
      test(`${path} ${how}`, async () => assert.match(await textOf(at, accept), /^\{\n {2}"kind": [^]*\n\}$/));
  for (const path of ['/version', '/']) test(path, async () => assert.match(await textOf(path), /^\{\n {2}"[^]*\n\}$/));
});

describe('errors', () => {
  for (const [accept, form] of [
    ['application/json', /^\{"kind":"Status".*\}\n$/],
    ['application/yaml', /^apiVersion: v1\ncode: 404\n/],
    [`${TABLE},application/json`, /^\{"kind":"Status".*\}\n$/],
    [TABLE, /^\{\n {2}"kind": "Status"[^]*\}$/],
    ['text/plain', /^\{\n {2}"kind": "Status"[^]*\}$/],
  ] as const)
    test(`accepted as ${accept}`, async () => assert.match(await textOf(MISSING, accept), form));
});

test('the list of paths has the prefix of OpenAPI documents', async () => {
  const { paths } = JSON.parse(await textOf('/')) as { readonly paths: readonly string[] };
  assert.ok(paths.includes('/openapi/v3/'));
});

test('browsers and command-line tools get indented texts, unless the query says otherwise', () => {
  for (const [pretty, userAgent, expected] of [
    [null, 'curl/8', true],
    ['', 'Wget/1', true],
    [null, 'Mozilla/5.0 (X11)', true],
    [null, 'Mozilla/4.0', false],
    ['0', 'curl/8', false],
    ['x', 'curl/8', false],
    ['T', 'kubectl/v1', true],
  ] as const)
    assert.equal(wantsPretty({ pretty, userAgent }), expected, `${pretty} ${userAgent}`);
});
