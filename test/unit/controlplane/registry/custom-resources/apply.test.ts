/** Tests server-side apply of custom resources: fields that are set and empty, nulls, lists, and values without a schema. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { createSchemaReader } from '../../../../../controlplane/registry/custom-resources/schema-reader.ts';
import { structTypeOf } from '../../../../../controlplane/registry/schemas/schema-type.ts';
import { createFieldManagement } from '../../../../../controlplane/registry/managed-fields.ts';

const metadata = loadSchema().struct('io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta');
assert(metadata !== undefined);
const gvk = { group: 'example.com', version: 'v1', kind: 'Thing' };

interface Step {
  readonly properties: Readonly<Record<string, JsonSchema>>;
  readonly manager: string;
  readonly spec: unknown;
}

/** Applies specs one after the other. Returns the final object. */
function appliedBy(steps: readonly Step[]): KubeObject | undefined {
  assert(metadata !== undefined);
  let live: KubeObject | undefined;
  for (const { properties, manager, spec } of steps) {
    const schema: JsonSchema = { type: 'object', properties: { spec: { type: 'object', properties } } };
    const struct = structTypeOf(gvk, schema, metadata);
    const reader = createSchemaReader(schema, metadata);
    const management = createFieldManagement(systemClock, { ...gvk, struct, reader, applyDefaults: undefined });
    const body = { apiVersion: 'example.com/v1', kind: 'Thing', metadata: { name: 'a' }, spec };
    const made = management.apply(
      live,
      { type: 'apply', body, duplicates: [], force: false },
      {
        manager,
        apiVersion: 'example.com/v1',
        subresource: '',
        resetFields: [],
        target: { namespace: '', name: 'a' },
        validation: 'Strict',
        warn: () => undefined,
      },
    );
    live = { ...made, metadata: { ...made.metadata, uid: 'u' } };
  }
  return live;
}

/** Applies specs one after the other as one manager. Returns the final spec. */
function applied(properties: Readonly<Record<string, JsonSchema>>, ...specs: readonly unknown[]): unknown {
  return appliedBy(specs.map((spec) => ({ properties, manager: 'm', spec })))?.['spec'];
}

const text: JsonSchema = { type: 'string' };
const open = { 'x-kubernetes-preserve-unknown-fields': true } as const;

describe('what loses its last member is empty and stays', () => {
  test('an object of the schema', () => {
    const properties = { a: { type: 'object', properties: { x: text } } };
    assert.deepEqual(applied(properties, { a: { x: '1' } }, { a: {} }), { a: {} });
    assert.deepEqual(applied(properties, { a: { x: '1' } }, {}), {});
  });
  test('a map', () => {
    const properties = { a: { type: 'object', additionalProperties: text } };
    assert.deepEqual(applied(properties, { a: { x: '1' } }, { a: {} }), { a: {} });
  });
  test('an object that no schema describes', () => {
    const properties = { p: { type: 'object', ...open } };
    assert.deepEqual(applied(properties, { p: { q: { r: 1 } } }, { p: { q: {} } }), { p: { q: {} } });
  });
});

describe('a list that preserves unknown fields', () => {
  const l: JsonSchema = { type: 'array', ...open, items: { type: 'object', properties: { n: { type: 'integer' } } } };
  test('keeps those of its items', () => {
    assert.deepEqual(applied({ l }, { l: [{ a: 1, n: 2 }] }), { l: [{ a: 1, n: 2 }] });
  });
  test('is checked where it is described', () => {
    assert.throws(() => applied({ l }, { l: [{ n: 'x' }] }), /\.spec\.l\[0\]\.n: expected numeric/);
  });
});

describe('an unknown field is refused', () => {
  const item: JsonSchema = { type: 'object', properties: { x: text } };
  test('inside an atomic list', () => {
    const l: JsonSchema = { type: 'array', items: item };
    assert.throws(() => applied({ l }, { l: [{ y: 1 }] }), /\.spec\.l\[0\]\.y: field not declared in schema/);
  });
  test('inside an atomic object', () => {
    const o: JsonSchema = { ...item, 'x-kubernetes-map-type': 'atomic' };
    assert.throws(() => applied({ o }, { o: { y: 1 } }), /\.spec\.o\.y: field not declared in schema/);
  });
  test('but not where no schema describes the value, which may be of any type', () => {
    const l: JsonSchema = { type: 'array', items: { type: 'object', properties: { v: { ...open } } } };
    const spec = { l: [{ v: 'a' }, { v: [1] }, { v: { b: 1 } }] };
    assert.deepEqual(applied({ l }, spec), spec);
  });
});

test('a null that is applied is kept for validation, unless a default replaces it', () => {
  const properties: Record<string, JsonSchema> = { a: text, b: { type: 'string', default: 'x' } };
  assert.deepEqual(applied(properties, { a: null, b: null }), { a: null, b: 'x' });
});

test('an item of a list with keys has one of its keys', () => {
  const items: JsonSchema = { type: 'object', properties: { k: text, v: text }, required: ['k'] };
  const l: JsonSchema = { type: 'array', items, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['k'] };
  assert.throws(
    () => applied({ l }, { l: [{ k: 'a' }, { v: 'b' }] }),
    /\.spec\.l: element 1: associative list with keys has an element that omits all key fields \["k"\] \(and doesn't/,
  );
});

describe('a schema in which a map and a list become one value', () => {
  const map: JsonSchema = { type: 'object', additionalProperties: text };
  const parts = { m: map, l: { type: 'array', 'x-kubernetes-list-type': 'set', items: text } } as const;
  const wholes = { m: { ...map, 'x-kubernetes-map-type': 'atomic' }, l: { type: 'array', items: text } } as const;
  const first = { properties: parts, manager: 'one', spec: { m: { a: '1' }, l: ['x'] } };

  test('makes an owner of a part the owner of the whole', () => {
    const both = appliedBy([first, { properties: wholes, manager: 'one', spec: { m: { b: '2' }, l: ['y'] } }]);
    assert.deepEqual(both?.['spec'], { m: { b: '2' }, l: ['y'] });
    const spec = { 'f:m': {}, 'f:l': {} };
    assert.deepEqual(both.metadata.managedFields?.[0]?.fieldsV1, { 'f:spec': spec });
    const other = { properties: wholes, manager: 'two', spec: { m: { b: '2' }, l: ['y'] } };
    assert.throws(() => appliedBy([first, other]), /conflicts with "one"/);
  });

  test('leaves the whole with its owner if the parts are owned again', () => {
    const whole = { ...first, properties: wholes };
    const later = appliedBy([whole, { properties: parts, manager: 'two', spec: { m: { b: '2' }, l: ['y'] } }]);
    assert.deepEqual(later?.['spec'], { m: { a: '1', b: '2' }, l: ['x', 'y'] });
  });
});

test('an object whose status has another type than the schema gets no managed fields, although the status is dropped', () => {
  const members = { type: 'object', properties: { n: { type: 'integer' } } } as const;
  const schema: JsonSchema = { type: 'object', properties: { spec: members, status: members } };
  const struct = structTypeOf(gvk, schema, metadata);
  const reader = createSchemaReader(schema, metadata);
  const management = createFieldManagement(systemClock, { ...gvk, struct, reader, applyDefaults: undefined });
  const write = { manager: 'm', apiVersion: 'example.com/v1', subresource: '', resetFields: [['status']] };
  const object = { apiVersion: 'example.com/v1', kind: 'Thing', metadata: { name: 'a' }, spec: { n: 1 } };
  const fieldsOf = (status: object): unknown =>
    management.update(undefined, { ...object, status }, write).metadata.managedFields?.[0]?.fieldsV1;
  assert.deepEqual(fieldsOf({ n: 2 }), { 'f:spec': { '.': {}, 'f:n': {} } });
  assert.equal(fieldsOf({ n: 'text' }), undefined);
});

test('a text with a format takes any scalar, but no list and no map', () => {
  const properties: Readonly<Record<string, JsonSchema>> = { a: { type: 'string', format: 'date-time' } };
  for (const a of [5, true, 'x']) appliedBy([{ properties, manager: 'm', spec: { a } }]);
  for (const a of [['x'], { b: 1 }])
    assert.throws(
      () => appliedBy([{ properties, manager: 'm', spec: { a } }]),
      /\.spec\.a: expected any scalar, got &\{/,
    );
});
