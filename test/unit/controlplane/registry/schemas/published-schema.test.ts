/** Tests the schema of a custom resource in OpenAPI documents, with which kubectl validates objects before it sends them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JsonObject } from '../../../../../api/meta/object.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { publishedSchema } from '../../../../../controlplane/registry/schemas/published-schema.ts';

const INFO = {
  group: 'shop.example.com',
  version: 'v1',
  kind: 'Order',
  resource: 'orders',
  singular: 'order',
  namespaced: true,
  shortNames: [],
  categories: [],
  verbs: [],
  subresources: [],
};
const OPEN = 'x-kubernetes-preserve-unknown-fields';

const published = (schema: JsonSchema): { v2: JsonObject; v3: JsonObject } =>
  publishedSchema(INFO, schema, { texts: { apiVersion: 'APIVersion defines it.', kind: 'Kind names it.' } });

/** Returns the value at a member of the published properties. */
function property(schema: JsonObject, name: string): unknown {
  return (schema['properties'] as JsonObject)[name];
}

test('members that every object has are included, with the schema of the version', () => {
  const both = published({ type: 'object', properties: { spec: { type: 'string' } } });
  for (const schema of [both.v2, both.v3]) {
    assert.deepEqual(Object.keys(schema['properties'] as JsonObject), ['spec', 'apiVersion', 'kind', 'metadata']);
    assert.match((property(schema, 'apiVersion') as { description: string }).description, /^APIVersion defines /);
  }
});

test('version 2 lists no members of an object that keeps unknown ones, because kubectl would refuse the others', () => {
  const root = published({ type: 'object', [OPEN]: true, properties: { a: { type: 'string' } } });
  assert.deepEqual(Object.keys(root.v2), ['type', 'x-kubernetes-group-version-kind']);
  assert.equal(root.v3[OPEN], true);
  assert.deepEqual(property(root.v3, 'a'), { type: 'string' });
});

test('version 2 leaves open what an object within may hold, null too', () => {
  const spec: JsonSchema = { type: 'object', [OPEN]: true, properties: { a: { type: 'object' } } };
  const { v2, v3 } = published({ type: 'object', properties: { spec } });
  assert.deepEqual(property(v2, 'spec'), { [OPEN]: true });
  assert.deepEqual(property(v3, 'spec'), spec);
});

test('version 2 omits nullable members and does not require them', () => {
  const may: JsonSchema = { type: 'object', nullable: true, properties: { x: { type: 'string' } } };
  const { v2 } = published({
    type: 'object',
    properties: { may, must: { type: 'string' } },
    required: ['may', 'must'],
  });
  assert.deepEqual(property(v2, 'may'), {});
  assert.deepEqual(v2['required'], ['must']);
  const alone = published({ type: 'object', properties: { may }, required: ['may'] });
  assert.equal('required' in alone.v2, false);
  const values = published({ type: 'object', additionalProperties: may, required: ['a'] });
  assert.equal('required' in values.v2, false);
});

test('version 2 has neither alternatives nor lists without items', () => {
  const list: JsonSchema = { type: 'array', [OPEN]: true, items: { type: 'object' }, maxItems: 3 };
  const or: JsonSchema = { 'x-kubernetes-int-or-string': true, anyOf: [{ type: 'integer' }, { type: 'string' }] };
  const { v2 } = published({ type: 'object', properties: { list, or }, allOf: [{ required: ['or'] }] });
  assert.deepEqual(property(v2, 'list'), { [OPEN]: true, maxItems: 3 });
  assert.deepEqual(property(v2, 'or'), { 'x-kubernetes-int-or-string': true });
  assert.equal('allOf' in v2, false);
});

test('an embedded object has the members of every object', () => {
  const template: JsonSchema = { type: 'object', 'x-kubernetes-embedded-resource': true, required: ['spec'] };
  const { v2, v3 } = published({ type: 'object', properties: { templates: { type: 'array', items: template } } });
  for (const schema of [v2, v3]) {
    const inner = (property(schema, 'templates') as { items: JsonObject }).items;
    assert.deepEqual(Object.keys(inner['properties'] as JsonObject), ['apiVersion', 'kind', 'metadata']);
    assert.deepEqual(inner['required'], ['spec', 'kind', 'apiVersion']);
  }
  const open = published({ type: 'object', properties: { template: { ...template, [OPEN]: true } } });
  assert.equal('properties' in (property(open.v2, 'template') as JsonObject), false);
  assert.equal('properties' in (property(open.v3, 'template') as JsonObject), true);
});

test('version 2 has rules and no default values, and a member may be named default', () => {
  const spec: JsonSchema = {
    type: 'object',
    default: {},
    properties: { default: { type: 'string', default: 'x' } },
    'x-kubernetes-validations': [{ rule: 'true' }],
  };
  const { v2, v3 } = published({ type: 'object', properties: { spec } });
  assert.deepEqual(property(v2, 'spec'), {
    type: 'object',
    properties: { default: { type: 'string' } },
    'x-kubernetes-validations': [{ rule: 'true' }],
  });
  assert.deepEqual(property(v3, 'spec'), spec);
});

test('version 3 writes as alternatives that a value is an integer or a string', () => {
  const either = [{ type: 'integer' }, { type: 'string' }];
  const one: JsonSchema = { 'x-kubernetes-int-or-string': true };
  const known: JsonSchema = { ...one, anyOf: [{ type: 'integer' }, { type: 'string' }] };
  const more: JsonSchema = { ...one, anyOf: [{ minimum: 1 }], allOf: [{ maxLength: 3 }] };
  const { v2, v3 } = published({ type: 'object', properties: { one, known, more } });
  assert.deepEqual(property(v3, 'one'), known);
  assert.deepEqual(property(v3, 'known'), known);
  assert.deepEqual(property(v3, 'more'), { ...more, allOf: [{ anyOf: either }, { maxLength: 3 }] });
  assert.deepEqual(property(v2, 'one'), one);
});

test('selectable fields are listed by their paths', () => {
  const { v2, v3, selectableFields } = publishedSchema(INFO, { type: 'object' }, { selectableFields: ['spec.color'] });
  for (const schema of [v2, v3])
    assert.deepEqual(schema['x-kubernetes-selectable-fields'], [{ fieldPath: 'spec.color' }]);
  assert.deepEqual(selectableFields, [{ fieldPath: 'spec.color' }]);
});
