/**
 * Sends requests for custom resources whose answers were compared with those of apiextensions-apiserver 1.36: content types,
 * methods, kinds, embedded objects, scale and server-side apply.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { JsonObject } from '../../api/meta/object.ts';
import type { Answer } from '../hostile/send.ts';
import { type Call, TestedPlane } from './tested-plane.ts';

const THINGS = '/apis/requests.example.com/v1/namespaces/default/things';
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const APPLY = 'application/apply-patch+yaml';
const TABLE = 'as=Table;v=v1;g=meta.k8s.io';
const METADATA = 'as=PartialObjectMetadata;v=v1;g=meta.k8s.io';
const ALL_TYPES = 'application/json, application/yaml, application/vnd.kubernetes.protobuf';

let tested: TestedPlane;
const call = (request: Call): Promise<Answer> => tested.call(request);

const thing = (name: string, spec: JsonObject = {}): JsonObject => ({
  apiVersion: 'requests.example.com/v1',
  kind: 'Thing',
  metadata: { name },
  spec,
});

const spec: JsonObject = {
  type: 'object',
  properties: {
    replicas: { type: 'integer' },
    count: { type: 'integer' },
    on: { type: 'boolean' },
    set: { type: 'array', items: { type: 'string' }, 'x-kubernetes-list-type': 'set' },
    address: { type: 'string', format: 'ipv4' },
    open: {
      type: 'object',
      'x-kubernetes-preserve-unknown-fields': true,
      properties: { known: { type: 'object', properties: { a: { type: 'string' } } } },
    },
    objects: { type: 'object', additionalProperties: { type: 'object', properties: { x: { type: 'integer' } } } },
    inner: { type: 'object', 'x-kubernetes-embedded-resource': true, 'x-kubernetes-preserve-unknown-fields': true },
    low: { type: 'integer', 'x-kubernetes-validations': [{ rule: 'self < 5' }] },
  },
};

const definition = (plural: string, schema: JsonObject, more: JsonObject = {}): JsonObject => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: `${plural}.requests.example.com` },
  spec: {
    group: 'requests.example.com',
    scope: 'Namespaced',
    names: { plural, singular: plural.slice(0, -1), kind: plural === 'things' ? 'Thing' : 'Other', ...more },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        schema: { openAPIV3Schema: schema },
        subresources: { scale: { specReplicasPath: '.spec.replicas', statusReplicasPath: '.status.replicas' } },
      },
    ],
  },
});

before(async () => {
  tested = await TestedPlane.start();
  const body = definition('things', { type: 'object', properties: { spec, status: { type: 'object' } } });
  await tested.define(body, THINGS);
  assert.equal((await call({ method: 'POST', path: THINGS, body: thing('one') })).status, 201);
});

after(() => tested.close());

const create = (name: string, of: JsonObject): Call => ({ method: 'POST', path: THINGS, body: thing(name, of) });
const apply = (name: string, of: JsonObject): Call => ({
  method: 'PATCH',
  path: `${THINGS}/${name}?fieldManager=tester`,
  type: APPLY,
  body: thing(name, of),
});

interface Case extends Call {
  readonly name: string;
  readonly status: number;
  readonly contains?: string;
}

/** Tests the cases. `contains` is a part of the message of a Status, or of the text of another response. */
function holds(cases: readonly Case[]): void {
  for (const { name, status, contains, ...request } of cases) {
    test(name, async () => {
      const answer = await call(request);
      assert.equal(answer.status, status, answer.text.slice(0, 500));
      if (contains === undefined) return;
      const isStatus = /^\{\s*"kind":\s*"Status"/.test(answer.text);
      const shown = isStatus ? (JSON.parse(answer.text) as { message: string }).message : answer.text;
      assert.ok(shown.includes(contains), shown.slice(0, 500));
    });
  }
}

describe('content types of custom resources', () => {
  const one = `${THINGS}/one`;
  holds([
    { name: 'application/* means JSON', path: one, accept: 'application/*', status: 200, contains: '"kind":"Thing"' },
    { name: 'a refusal lists protobuf', path: one, accept: 'text/plain', status: 406, contains: ALL_TYPES },
    { name: 'objects have no protobuf', path: one, accept: 'application/vnd.kubernetes.protobuf', status: 406 },
    {
      name: 'metadata has protobuf',
      path: one,
      accept: `application/vnd.kubernetes.protobuf;${METADATA}`,
      status: 200,
      contains: 'PartialObjectMetadata',
    },
    {
      name: 'an error for a client that wants a Table as YAML is JSON',
      path: `${THINGS}/none`,
      accept: `application/yaml;${TABLE}`,
      status: 404,
      contains: 'things.requests.example.com "none" not found',
    },
    {
      name: 'metadata of a list is refused by the name of the Go type',
      path: THINGS,
      accept: `application/json;${METADATA}`,
      status: 406,
      contains: 'the requested object is a list (*unstructured.UnstructuredList)',
    },
    {
      name: 'a parameter without a value is refused',
      ...create('typed', {}),
      type: 'application/json; charset',
      status: 415,
      contains: ALL_TYPES,
    },
  ]);
});

describe('methods on custom resources', () => {
  holds([
    { name: 'HEAD of an object', method: 'HEAD', path: `${THINGS}/one`, status: 200 },
    { name: 'HEAD of a list', method: 'HEAD', path: THINGS, status: 200 },
    { name: 'PUT without a name', ...create('x', {}), method: 'PUT', status: 400, contains: 'name must be provided' },
    {
      name: 'DELETE of a subresource',
      method: 'DELETE',
      path: `${THINGS}/one/scale`,
      status: 405,
      contains: 'delete is not supported on resources of kind "things.requests.example.com"',
    },
    {
      name: 'DELETE in all namespaces has no path',
      method: 'DELETE',
      path: '/apis/requests.example.com/v1/things',
      status: 404,
      contains: '404 page not found',
    },
  ]);
});

describe('bodies of custom resources', () => {
  const post = (body: string): Call => ({ method: 'POST', path: THINGS, body });
  holds([
    {
      name: 'a kind is required',
      ...post('{"apiVersion":"requests.example.com/v1"}'),
      status: 400,
      contains: `the object provided is unrecognized (must be of type Thing): Object 'Kind' is missing in '{"apiVersion":"requests.example.com/v1"}' ({"apiVersion":"requests.exampl ...)`,
    },
    {
      name: 'null has no kind',
      ...post('null'),
      status: 400,
      contains: "Object 'Kind' is missing in 'null' (6e756c6c)",
    },
    {
      name: 'a version is a text',
      ...post('{"apiVersion":5,"kind":"Thing"}'),
      status: 400,
      contains: 'json: cannot unmarshal number into Go struct field .apiVersion of type string',
    },
    {
      name: 'metadata of an embedded object',
      ...create('embedded', { inner: { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'b', labels: { a: 1 } } } }),
      status: 400,
      contains:
        'spec.inner.metadata: Invalid value: {"labels":{"a":1},"name":"b"}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string',
    },
    {
      name: 'a null in a map is dropped',
      ...create('nulls', { objects: { k: null } }),
      status: 201,
      contains: '"objects":{}',
    },
    {
      name: 'rules are not evaluated for an object without a name',
      method: 'POST',
      path: THINGS,
      body: { apiVersion: 'requests.example.com/v1', kind: 'Thing', spec: { low: 1 } },
      status: 422,
      contains: '<nil>: Invalid value: null: some validation rules were not checked',
    },
    {
      name: 'a dry run takes a resource version',
      method: 'POST',
      path: `${THINGS}?dryRun=All`,
      body: { ...thing('dry'), metadata: { name: 'dry', resourceVersion: '5' } },
      status: 201,
    },
    {
      name: 'the replicas of another type',
      method: 'POST',
      path: THINGS,
      body: { ...thing('scaled'), spec: 'text' },
      status: 422,
      contains:
        '.spec.replicas: Invalid value: 0: .spec.replicas accessor error: text is of the type string, expected map[string]interface{}',
    },
    {
      name: 'the uid of another object',
      method: 'PUT',
      path: `${THINGS}/one`,
      body: { ...thing('one'), metadata: { name: 'one', uid: 'nope' } },
      status: 409,
      contains: 'Key: /registry/requests.example.com/things/default/one',
    },
    {
      name: 'a strict patch shows the object in the order of its names',
      method: 'PATCH',
      path: `${THINGS}/one?fieldValidation=Strict`,
      type: 'application/merge-patch+json',
      body: '{"spec":{"unknown":1}}',
      status: 422,
      contains: 'patch: Invalid value: "{\\"apiVersion\\":\\"requests.example.com/v1\\",\\"kind\\":\\"Thing\\"',
    },
  ]);
});

describe('server-side apply of custom resources', () => {
  const refused = (name: string, of: JsonObject, contains: string): Case => ({
    name,
    ...apply('a', of),
    status: 500,
    contains,
  });
  holds([
    refused('a number', { count: '4' }, '.spec.count: expected numeric (int or float), got string'),
    refused('a boolean', { on: 'yes' }, '.spec.on: expected boolean, got &{yes}'),
    refused('a list', { set: { b: 1, a: [2] } }, '.spec.set: expected list, got &{map[a:[2] b:1]}'),
    {
      name: 'a text with a format is checked by the schema',
      ...apply('a', { address: 5 }),
      status: 422,
      contains: 'spec.address: Invalid value: "int64": spec.address in body must be of type ipv4',
    },
    {
      name: 'objects below one that preserves unknown fields preserve theirs',
      ...apply('open', { open: { known: { a: 'x', b: 1 } } }),
      status: 201,
      contains: '"f:known":{"f:a":{},"f:b":{}}',
    },
  ]);
});

describe('definitions', () => {
  const post = (body: JsonObject): Call => ({ method: 'POST', path: DEFINITIONS, body });
  const other = (schema: JsonObject, more?: JsonObject): Call => post(definition('others', schema, more));
  const rule = (text: string): JsonObject => ({
    type: 'object',
    properties: { spec: { type: 'string', 'x-kubernetes-validations': [{ rule: text }] } },
  });
  holds([
    {
      name: 'the default of a whole object needs a kind',
      ...other({ type: 'object', properties: { a: { type: 'string' } }, default: {} }),
      status: 422,
      contains: 'openAPIV3Schema.default.kind: Required value',
    },
    {
      name: 'an empty short name',
      ...other({ type: 'object' }, { shortNames: [''] }),
      status: 422,
      contains: 'spec.names.shortNames[0]',
    },
    {
      name: 'a rule that ends after an operator',
      ...other(rule('self ==')),
      status: 422,
      contains: "expecting {'[', '{', '(', '.',",
    },
    {
      name: 'a rule that ends after the parenthesis of a call',
      ...other(rule('self.contains(')),
      status: 422,
      contains: "expecting {'[', '{', '(', ')', '.',",
    },
    {
      name: 'the rule is shown as Go writes JSON',
      ...other(rule('self.foo && 1 < 2')),
      status: 422,
      contains: 'self.foo \\u0026\\u0026 1 \\u003c 2',
    },
  ]);
});

test('changes without a manager and a user agent are those of an unknown manager', async () => {
  const { text } = await call(create('unnamed', {}));
  assert.match(text, /"manager":"unknown"/);
});
