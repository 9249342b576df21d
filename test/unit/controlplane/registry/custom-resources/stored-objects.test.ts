/**
 * Tests the pure functions by which stored custom resources are compared with their schema, with each other and with CEL's
 * names.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { JsonObject } from '../../../../../api/meta/object.ts';
import { conforms } from '../../../../../controlplane/registry/schemas/conformity.ts';
import { Correlation } from '../../../../../controlplane/registry/schemas/correlation.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { KeyedItems } from '../../../../../controlplane/registry/schemas/keyed-items.ts';
import { celView } from '../../../../../controlplane/registry/schemas/rule-values.ts';

describe('a stored object conforms to its schema', () => {
  const schema: JsonSchema = {
    type: 'object',
    properties: {
      spec: {
        type: 'object',
        properties: { size: { type: 'integer', default: 1 }, note: { type: 'string', nullable: true, default: 'x' } },
      },
      open: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
    },
  };
  for (const [what, object, expected] of [
    ['with its defaults and metadata', { kind: 'A', metadata: { name: 'a' }, spec: { size: 2, note: null } }, true],
    ['with unknown fields where they are preserved', { open: { any: { thing: 1 } } }, true],
    ['but not with a field to prune', { spec: { size: 1, note: 'x', more: 1 } }, false],
    ['but not with a missing default', { spec: { note: 'x' } }, false],
    ['but not with null in place of a default', { spec: { size: null, note: 'x' } }, false],
  ] as const)
    it(what, () => assert.equal(conforms(object as unknown as JsonObject, schema), expected));
});

describe('the items of a keyed list', () => {
  it('are found by their keys, the first one of those that repeat', () => {
    const first = { name: 'a', port: 1, n: 1 };
    const list = [first, { name: 'a', port: 1, n: 2 }, 'no object'];
    assert.equal(new KeyedItems().find(list, ['name', 'port'], { name: 'a', port: 1 }), first);
  });

  it('differ by a key that is absent or null, and by one that the prototype has', () => {
    const items = new KeyedItems();
    const list = [{ name: null }, { name: 'b' }];
    assert.equal(items.find(list, ['name'], {}), undefined);
    assert.equal(items.find(list, ['name'], { name: null }), list[0]);
    assert.equal(new KeyedItems().find([{ constructor: 'x' }], ['constructor'], {}), undefined);
  });
});

describe('a value at the path of an error', () => {
  const schema: JsonSchema = {
    type: 'object',
    properties: {
      list: {
        type: 'array',
        'x-kubernetes-list-map-keys': ['name'],
        items: { type: 'object', properties: { name: { type: 'string' }, n: { type: 'integer' } } },
      },
      plain: { type: 'array', items: { type: 'integer' } },
    },
  };
  const old = {
    list: [
      { name: 'a', n: 1 },
      { name: 'b', n: 2 },
    ],
    plain: [1, 2],
  };
  for (const [path, now, expected] of [
    ['list[0].n', { list: [{ name: 'b', n: 2 }] }, true],
    ['list[0].n', { list: [{ name: 'b', n: 3 }] }, false],
    ['list[0].n', { list: [{ name: 'c', n: 1 }] }, false],
    ['plain[1]', { plain: [1, 2] }, true],
    ['plain[1]', { plain: [0, 2] }, false],
    ['plain[7]', { plain: [1, 2] }, true],
    ['', old, true],
  ] as const)
    it(`${path === '' ? 'of the whole object' : path} is ${expected ? 'unchanged' : 'changed'} in ${JSON.stringify(now)}`, () =>
      assert.equal(new Correlation(schema).isUnchanged(path, now as unknown as JsonObject, old), expected));
});

describe('the view of a value for rules', () => {
  it('is the value itself where no name must be escaped', () => {
    const value = { a: 1 };
    assert.equal(celView(value, { type: 'object', properties: { a: { type: 'integer' } } }), value);
  });

  it('is a copy with the names of CEL where one must be, and leaves the value as it is', () => {
    const schema: JsonSchema = { type: 'object', properties: { 'a-b': { type: 'integer' }, c: { type: 'integer' } } };
    const value = { 'a-b': 1, c: 2 };
    assert.deepEqual({ ...(celView(value, schema) as object) }, { a__dash__b: 1, c: 2 });
    assert.deepEqual(value, { 'a-b': 1, c: 2 });
  });
});
