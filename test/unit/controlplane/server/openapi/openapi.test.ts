/**
 * Tests the documents of OpenAPI, from 'controlplane/server/openapi/document-v2.ts',
 * 'controlplane/server/openapi/document-v3.ts', 'controlplane/server/openapi/operations.ts',
 * 'controlplane/server/openapi/parameters.ts', 'controlplane/server/openapi/schemas.ts',
 * 'controlplane/server/openapi/source.ts', 'controlplane/server/openapi/registered-versions.ts',
 * 'controlplane/server/openapi/shared-parameters.ts', 'controlplane/server/openapi/group-names.ts' and
 * 'controlplane/server/openapi/discovery-paths.ts'.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { JsonObject } from '../../../../../api/meta/object.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import type { ResourceInfo } from '../../../../../api/schema/schema.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { ResourceCatalog } from '../../../../../controlplane/model/rest.ts';
import { installOpenApi } from '../../../../../controlplane/server/openapi/openapi.ts';
import { PathHandlers } from '../../../../../controlplane/server/path-handlers.ts';
import { fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { at, members } from '../../../../fakes/json-tree.ts';
import { startFakeServer, type FakeServer } from '../../../../fakes/fake-server.ts';

const PROTO2 = 'application/com.github.proto-openapi.spec.v2@v1.0+protobuf';
const PROTO3 = 'application/com.github.proto-openapi.spec.v3@v1.0+protobuf';
const builtIn = builtinResources();
let thing = fakeInfo('things', 'Thing', { group: 'example.com', custom: { listKind: 'ThingList', deprecation: '' } });
const changed: (() => void)[] = [];
/** How often all rows were read. */
let rowsRead = 0;
const catalog: ResourceCatalog = {
  find: () => undefined,
  resources() {
    rowsRead += 1;
    return [...builtIn, thing];
  },
  onChange: (listener) => {
    changed.push(listener);
    return () => undefined;
  },
};
let thingSchema: JsonObject = { type: 'object', properties: { spec: { type: 'object' } } };
let revision = 1;
let published = 0;

/** Replaces the row and its schema, like a changed definition. */
function changeThing(schema: JsonObject): void {
  thing = { ...thing };
  thingSchema = schema;
  revision += 1;
  for (const listener of changed) listener();
}

const source = {
  catalog,
  schema: loadSchema(),
  release: 'v1.36.2',
  returnsDeleted: ({ kind }: ResourceInfo) => kind === 'Pod',
  customSchema(row: ResourceInfo) {
    if (row.kind !== 'Thing') return undefined;
    return {
      name: 'com.example.v1.Thing',
      revision: String(revision),
      selectableFields: [{ fieldPath: 'spec.color' }],
      get v2() {
        published += 1;
        return thingSchema;
      },
      get v3() {
        published += 1;
        return thingSchema;
      },
    };
  },
};
let fake: FakeServer;

before(async () => {
  const paths = new PathHandlers();
  installOpenApi(paths, source, systemClock);
  fake = await startFakeServer(catalog, { paths });
});

after(() => fake.close());

async function document(path: string): Promise<unknown> {
  const { status, text } = await fake.request('GET', path, { accept: 'application/json' });
  assert.equal(status, 200);
  return JSON.parse(text) as unknown;
}

function referencesIn(value: unknown): string[] {
  return [...JSON.stringify(value).matchAll(/"\$ref":"([^"]+)"/g)].map(([, reference = '']) => reference);
}

function resolve(root: unknown, reference: string): unknown {
  return at(root, ...reference.slice(2).split('/'));
}

test('version 2 has every operation once, and what it refers to is there', async () => {
  const root = await document('/openapi/v2');
  assert.equal(at(root, 'swagger'), '2.0');
  const ids = new Set<string>();
  for (const [, item] of members(at(root, 'paths'))) {
    for (const [method, operation] of members(item)) {
      if (method === 'parameters') continue;
      const id = String(at(operation, 'operationId'));
      assert.ok(!ids.has(id), id);
      ids.add(id);
    }
  }
  for (const id of [
    'readCoreV1NamespacedPod',
    'listCoreV1PodForAllNamespaces',
    'connectCoreV1GetNamespacedPodExec',
    'replaceAppsV1NamespacedDeploymentScale',
  ]) {
    assert.ok(ids.has(id), id);
  }
  for (const reference of new Set(referencesIn(root))) assert.ok(resolve(root, reference) !== undefined, reference);
});

test('operations are described, and a deletion returns what the server returns', async () => {
  const root = await document('/openapi/v2');
  const described = (method: string, ...path: string[]): unknown => at(root, 'paths', ...path, method, 'description');
  assert.equal(described('post', '/api/v1/namespaces/{namespace}/pods'), 'create a Pod');
  assert.equal(described('post', '/api/v1/namespaces/{namespace}/events'), 'create an Event');
  assert.equal(described('post', '/api/v1/namespaces/{namespace}/endpoints'), 'create Endpoints');
  const object = '/apis/apps/v1/namespaces/{namespace}/deployments/{name}';
  assert.equal(described('delete', object), 'delete a Deployment');
  assert.equal(described('put', `${object}/status`), 'replace status of the specified Deployment');
  assert.match(
    String(described('get', '/api/v1/watch/pods')),
    /^watch individual changes to a list of Pod\. deprecated: /,
  );
  const deleted = (path: string): unknown => at(root, 'paths', path, 'delete', 'responses', '200', 'schema', '$ref');
  assert.equal(deleted('/api/v1/namespaces/{namespace}/pods/{name}'), '#/definitions/io.k8s.api.core.v1.Pod');
  assert.equal(deleted(object), '#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Status');
});

test('a custom resource has its own media types, list kind and selectable fields', async () => {
  const root = await document('/openapi/v2');
  const list = at(root, 'definitions', 'com.example.v1.ThingList');
  assert.equal(at(list, 'description'), 'ThingList is a list of Thing');
  assert.deepEqual(at(list, 'x-kubernetes-selectable-fields'), [{ fieldPath: 'spec.color' }]);
  const path = members(at(root, 'paths')).find(([name]) => name.endsWith('/things'))?.[0] ?? '';
  const operation = at(root, 'paths', path, 'get');
  assert.equal(at(operation, 'description'), 'list objects of kind Thing');
  assert.deepEqual(at(operation, 'consumes'), ['application/json', 'application/yaml']);
  assert.deepEqual(at(operation, 'produces'), ['application/json', 'application/yaml']);
});

test('both versions list the values of fields, of items and of entries', async () => {
  const core = (await document('/openapi/v3/api/v1')) as JsonObject;
  const schemas = [at(core, 'components', 'schemas'), at(await document('/openapi/v2'), 'definitions')];
  for (const found of schemas) {
    const values = (type: string, ...path: string[]): unknown =>
      at(found, `io.k8s.api.core.v1.${type}`, 'properties', ...path, 'enum');
    assert.deepEqual(values('PodSpec', 'restartPolicy'), ['Always', 'Never', 'OnFailure']);
    assert.ok((values('PersistentVolumeClaimSpec', 'accessModes', 'items') as string[]).includes('ReadWriteOncePod'));
    assert.equal(values('PersistentVolumeClaimSpec', 'accessModes'), undefined);
    const states = values('PersistentVolumeClaimStatus', 'allocatedResourceStatuses', 'additionalProperties');
    assert.ok((states as string[]).includes('NodeResizePending'));
    assert.equal(values('PodSpec', 'nodeName'), undefined);
  }
});

test('version 2 has no default values', async () => {
  const root = await document('/openapi/v2');
  for (const [name, definition] of members(at(root, 'definitions'))) {
    for (const [field, property] of members(at(definition, 'properties') ?? {}))
      assert.equal(at(property, 'default'), undefined, `${name}.${field}`);
  }
});

const ACTIONS = new Set('list get post put patch delete deletecollection connect watch watchlist'.split(' '));

/** Checks what client generators rely on. `ids` are the operation ids of the document. */
function checkOperations(root: unknown, ids: Set<string>): void {
  for (const [path, item] of members(at(root, 'paths'))) {
    const inPath = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => name).sort();
    for (const [method, operation] of members(item)) {
      if (method === 'parameters') continue;
      const where = `${method} ${path}`;
      const id = String(at(operation, 'operationId'));
      assert.match(id, /^[a-zA-Z0-9]+$/, where);
      assert.ok(!ids.has(id), `${id} is there twice`);
      ids.add(id);
      const all = [...members(at(item, 'parameters')), ...members(at(operation, 'parameters'))].map(([, given]) => {
        const reference = at(given, '$ref');
        return typeof reference === 'string' ? resolve(root, reference) : given;
      });
      const names = all.map((parameter) => `${String(at(parameter, 'in'))} ${String(at(parameter, 'name'))}`);
      assert.equal(new Set(names).size, names.length, `${where}: ${names.join()}`);
      const paths = all.filter((parameter) => at(parameter, 'in') === 'path');
      assert.deepEqual(paths.map((parameter) => at(parameter, 'name')).sort(), inPath, where);
      assert.ok(
        paths.every((parameter) => at(parameter, 'required') === true),
        where,
      );
      assert.ok(members(at(operation, 'responses')).length > 1, where);
      const action = at(operation, 'x-kubernetes-action');
      if (action === undefined) {
        assert.match(path, /^\/(?:apis?|version|openid|\.well-known)\b/, where);
        assert.ok(path.endsWith('/'), where);
        continue;
      }
      assert.ok(ACTIONS.has(String(action)), where);
      for (const name of ['group', 'version', 'kind']) {
        assert.equal(typeof at(operation, 'x-kubernetes-group-version-kind', name), 'string', where);
      }
    }
  }
}

test('operations are what generators of clients make methods of', async () => {
  const ids = new Set<string>();
  checkOperations(await document('/openapi/v2'), ids);
  const known = [
    'getAPIVersions',
    'getCoreV1APIResources',
    'getAppsAPIGroup',
    'getAppsV1APIResources',
    'getCodeVersion',
  ];
  for (const id of known) assert.ok(ids.has(id), id);
  const ofThree = new Set<string>();
  for (const [, entry] of members(at(await document('/openapi/v3'), 'paths'))) {
    checkOperations(await document(String(at(entry, 'serverRelativeURL'))), ofThree);
  }
  assert.deepEqual([...ofThree].sort(), [...ids].sort(), 'both versions have the same operations');
});

test('the parameters by which clients recognize features of a server are written in place', async () => {
  const root = await document('/openapi/v2');
  const patch = at(root, 'paths', '/api/v1/namespaces/{namespace}/pods/{name}', 'patch');
  const names = members(at(patch, 'parameters')).map(([, parameter]) => at(parameter, 'name'));
  assert.deepEqual(names, [undefined, 'dryRun', undefined, 'fieldValidation', undefined]);
  assert.deepEqual(at(patch, 'x-kubernetes-group-version-kind'), { group: '', version: 'v1', kind: 'Pod' });
});

test('every document of version 3 is whole, and found through the index', async () => {
  const index = await document('/openapi/v3');
  for (const name of ['apis/example.com/v1', 'api', 'apis', 'apis/apps', 'version', 'openid/v1/jwks']) {
    assert.ok(at(index, 'paths', name) !== undefined, name);
  }
  for (const [, entry] of members(at(index, 'paths'))) {
    const root = await document(String(at(entry, 'serverRelativeURL')));
    for (const reference of new Set(referencesIn(root))) assert.ok(resolve(root, reference) !== undefined, reference);
  }
});

test('lists and structs say how they merge', async () => {
  const schemas = at(await document('/openapi/v3/api/v1'), 'components', 'schemas');
  const ports = at(schemas, 'io.k8s.api.core.v1.Container', 'properties', 'ports');
  assert.equal(at(ports, 'x-kubernetes-list-type'), 'map');
  assert.deepEqual(at(ports, 'x-kubernetes-list-map-keys'), ['containerPort', 'protocol']);
  assert.equal(at(ports, 'x-kubernetes-patch-merge-key'), 'containerPort');
  assert.equal(at(schemas, 'io.k8s.api.core.v1.LocalObjectReference', 'x-kubernetes-map-type'), 'atomic');
  assert.deepEqual(at(schemas, 'io.k8s.api.core.v1.Pod', 'x-kubernetes-group-version-kind'), [
    { group: '', version: 'v1', kind: 'Pod' },
  ]);
});

test('an address with the hash is for ever, one with an old hash leads to the new', async () => {
  const url = String(at(await document('/openapi/v3'), 'paths', 'apis/apps/v1', 'serverRelativeURL'));
  assert.equal((await fake.request('GET', url)).headers['cache-control'], 'public, immutable');
  const plain = (await fake.request('GET', '/openapi/v3/apis/apps/v1')).headers;
  assert.deepEqual([plain['cache-control'], plain['vary']], ['no-cache, private', 'Accept']);
  assert.equal((await fake.request('GET', '/openapi/v3')).headers['etag'], undefined);
  const old = await fake.request('GET', '/openapi/v3/apis/apps/v1?hash=OLD');
  assert.deepEqual([old.status, old.headers['location']], [301, url]);
  assert.deepEqual([old.headers['etag'], old.headers['vary']], [`"${url.split('=')[1]}"`, 'Accept']);
});

test('documents have a binary form, an ETag, and are refused in others', async () => {
  const v2 = await fake.request('GET', '/openapi/v2', { accept: PROTO2 });
  assert.equal(v2.headers['content-type'], 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf');
  assert.ok(v2.text.startsWith('\n\u00032.0'));
  const v3 = await fake.request('GET', '/openapi/v3/apis/apps/v1', { accept: PROTO3 });
  assert.ok(v3.text.startsWith('\n\u00053.0.0'));
  const again = await fake.request('GET', '/openapi/v2', {
    accept: PROTO2,
    'if-none-match': String(v2.headers['etag']),
  });
  assert.equal(again.status, 304);
  assert.equal((await fake.request('GET', '/openapi/v2', { accept: 'text/html' })).status, 406);
  assert.equal((await fake.request('GET', '/openapi/v3/apis/nothing.example.com/v1')).status, 404);
});

test('custom resources have their own schemas, and a change of one is seen', async () => {
  const before_ = await document('/openapi/v3');
  const first = await document('/openapi/v3/apis/example.com/v1');
  assert.ok(at(first, 'components', 'schemas', 'com.example.v1.Thing') !== undefined);
  assert.ok(at(first, 'components', 'schemas', 'com.example.v1.ThingList') !== undefined);
  changeThing({ type: 'object', properties: { spec: { type: 'object', properties: { size: { type: 'integer' } } } } });
  const after_ = await document('/openapi/v3');
  assert.notDeepEqual(at(after_, 'paths', 'apis/example.com/v1'), at(before_, 'paths', 'apis/example.com/v1'));
  assert.deepEqual(at(after_, 'paths', 'apis/apps/v1'), at(before_, 'paths', 'apis/apps/v1'));
  const v2 = await document('/openapi/v2');
  assert.ok(at(v2, 'definitions', 'com.example.v1.Thing') !== undefined);
});

test('the document shows that custom resources accept no strategic merge patches', async () => {
  const patchesOf = async (group: string, path: string): Promise<string[]> => {
    const root = await document(`/openapi/v3/apis/${group}`);
    return Object.keys(at(root, 'paths', `/apis/${group}/${path}`, 'patch', 'requestBody', 'content') as object);
  };
  const strategic = 'application/strategic-merge-patch+json';
  const builtIn = await patchesOf('apps/v1', 'namespaces/{namespace}/deployments/{name}');
  assert.ok(builtIn.includes(strategic));
  const [, thing = ''] =
    members(at(await document('/openapi/v3/apis/example.com/v1'), 'paths'))
      .map(([path]) => /^\/apis\/example\.com\/v1\/(.*\{name\})$/.exec(path))
      .find((match) => match !== null) ?? [];
  assert.deepEqual(
    await patchesOf('example.com/v1', thing),
    builtIn.filter((type) => type !== strategic),
  );
});

test('integers that a double cannot hold are exact in every document', async () => {
  changeThing({
    type: 'object',
    properties: {
      n: { type: 'integer', format: 'int64', maximum: 9223372036854775000n, default: 9223372036854775807n },
    },
  });
  for (const path of ['/openapi/v2', '/openapi/v3/apis/example.com/v1']) {
    const { status, text } = await fake.request('GET', path, { accept: 'application/json' });
    assert.equal(status, 200, path);
    assert.match(text, /"maximum":9223372036854775000,"default":9223372036854775807/, path);
  }
  for (const [path, accept] of [
    ['/openapi/v2', PROTO2],
    ['/openapi/v3/apis/example.com/v1', PROTO3],
  ] as const) {
    assert.equal((await fake.request('GET', path, { accept })).status, 200, path);
  }
});

test('a custom resource has no deprecated paths of watches', async () => {
  const paths = Object.keys(at(await document('/openapi/v2'), 'paths') as object);
  assert.ok(paths.includes('/api/v1/watch/pods'));
  assert.deepEqual(
    paths.filter((path) => path.startsWith('/apis/example.com/') && path.includes('/watch/')),
    [],
  );
});

test('a schema is published once an encoding, and again only when it changes', async () => {
  changeThing({ type: 'object' });
  published = 0;
  await document('/openapi/v2');
  await document('/openapi/v2');
  for (const listener of changed) listener();
  await document('/openapi/v2');
  await fake.request('GET', '/openapi/v2', { accept: PROTO2 });
  assert.equal(published, 2);
});

test('a change is in the next document, whichever encodings were built before', async () => {
  changeThing({ type: 'object', description: 'one' });
  const one = await fake.request('GET', '/openapi/v2', { accept: 'application/json' });
  changeThing({ type: 'object', description: 'two' });
  const two = await fake.request('GET', '/openapi/v2', { accept: 'application/json' });
  assert.match(two.text, /"description":"two"/);
  assert.notEqual(one.headers['etag'], two.headers['etag']);
});

test('hundreds of changes read all rows a few times, although clients want the document', async () => {
  await document('/openapi/v2');
  rowsRead = 0;
  for (let change = 0; change < 300; change += 1) {
    changeThing({ type: 'object', description: `change ${change}` });
    await setImmediate();
  }
  assert.ok(rowsRead < 100, String(rowsRead));
  assert.match((await fake.request('GET', '/openapi/v2', { accept: 'application/json' })).text, /"change 299"/);
});

test('a document of version 3 is kept while resources of other groups change', async () => {
  const one = await fake.request('GET', '/openapi/v3/apis/example.com/v1', { accept: 'application/json' });
  published = 0;
  for (const listener of changed) listener();
  const two = await fake.request('GET', '/openapi/v3/apis/example.com/v1', { accept: 'application/json' });
  assert.equal(published, 0);
  assert.equal(one.headers['etag'], two.headers['etag']);
});

const namesOf = (parameters: unknown): string[] => (parameters as { name: string }[]).map(({ name }) => name);

test("parameters are sorted, and those that all operations of a path have are the path's", async () => {
  const paths = at(await document('/openapi/v3/api/v1'), 'paths');
  const binding = at(paths, '/api/v1/namespaces/{namespace}/pods/{name}/binding');
  const all = ['dryRun', 'fieldManager', 'fieldValidation', 'name', 'namespace', 'pretty'];
  assert.deepEqual(namesOf(at(binding, 'parameters')), all);
  assert.equal(at(binding, 'post', 'parameters'), undefined);
  const list = namesOf(at(paths, '/api/v1/configmaps', 'parameters'));
  assert.deepEqual(list, [...list].sort());
  assert.ok(list.includes('shardSelector'));
});

test('items have no defaults, and required fields stand in the order of the Go type', async () => {
  const schemas = at(await document('/openapi/v3/apis/networking.k8s.io/v1'), 'components', 'schemas');
  const required = at(schemas, 'io.k8s.api.networking.v1.HTTPIngressPath', 'required');
  assert.deepEqual(required, ['pathType', 'backend']);
  const items = at(schemas, 'io.k8s.api.networking.v1.IngressList', 'properties', 'items', 'items');
  assert.deepEqual(items, { $ref: '#/components/schemas/io.k8s.api.networking.v1.Ingress' });
  const options = at(schemas, 'io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions', 'x-kubernetes-group-version-kind');
  assert.deepEqual(
    (options as { group: string }[]).map(({ group }) => group),
    ['', 'networking.k8s.io'],
  );
});
