/** Tests definitions with which a small object would become large, or a write would take long. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject, JsonValue } from '../../../../../api/meta/object.ts';
import { isStatusError } from '../../../../../api/meta/status-error.ts';
import { applyDefaults, applyDefaultsToStored } from '../../../../../controlplane/registry/schemas/defaulting.ts';
import { findAll, parseJsonPath } from '../../../../../controlplane/registry/schemas/json-path.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { validateValue } from '../../../../../controlplane/registry/schemas/value-validation.ts';

const numbered = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_item, index) => make(index));

describe('defaults', () => {
  const large: JsonValue = Object.fromEntries(numbered(1000, (index) => [`k${index}`, 'v']));
  const text = 'v'.repeat(10_000);
  const bombs: Readonly<Record<string, readonly [JsonSchema, JsonValue]>> = {
    'of null items': [{ type: 'array', items: { type: 'object', default: large } }, null],
    'of members of empty items': [
      { type: 'array', items: { type: 'object', properties: { a: { type: 'object', default: large } } } },
      {},
    ],
    'of long texts': [
      { type: 'array', items: { type: 'object', properties: { a: { type: 'string', default: text } } } },
      {},
    ],
  };
  for (const [name, [list, item]] of Object.entries(bombs)) {
    const schema: JsonSchema = { type: 'object', properties: { list } };
    const listOf = (count: number): JsonObject => ({ list: numbered(count, () => structuredClone(item)) });
    test(`${name} make no object larger than an object may be`, () => {
      const isTooLarge = (error: unknown): boolean => isStatusError(error, 'RequestEntityTooLarge');
      assert.throws(() => applyDefaults(listOf(90_000), schema), isTooLarge);
      const stored = listOf(5000);
      applyDefaultsToStored(stored, schema);
      assert.ok(JSON.stringify(stored).length < 4 * 1024 * 1024);
    });
    test(`${name} are all set where they fit`, () => {
      const object = listOf(10);
      applyDefaults(object, schema);
      assert.ok(JSON.stringify(object).length > 80_000);
      const stored = listOf(10);
      applyDefaultsToStored(stored, schema);
      assert.deepEqual(stored, object);
    });
  }
});

describe('an enumeration of thousands of values', () => {
  const values = numbered(3000, (index) => `value-${index}`);
  const schema: JsonSchema = { type: 'array', items: { type: 'string', enum: values } };
  test('is looked up by each item, not compared with it value by value', () => {
    const start = process.cpuUsage();
    assert.deepEqual(
      validateValue(
        numbered(90_000, () => 'value-2999'),
        schema,
        'a',
      ),
      [],
    );
    assert.ok(process.cpuUsage(start).user < 2_000_000);
  });
  test('is written once for all items that are not in it', () => {
    const errors = validateValue(
      numbered(20_000, () => 'x'),
      schema,
      'a',
    );
    assert.equal(errors.length, 20_000);
    assert.equal(errors[7]?.field, 'a[7]');
    assert.equal(errors[0]?.detail, errors.at(-1)?.detail);
    assert.match(errors[0]?.detail ?? '', /^supported values: "value-0", "value-1", /);
  });
  test('distinguishes texts from numbers and reads objects whatever the order of their members', () => {
    const mixed: JsonSchema = { enum: [...numbered(20, (index) => index), { a: 1, b: 2 }] };
    const fits = (value: JsonValue): boolean => validateValue(value, mixed, 'a').length === 0;
    assert.deepEqual([7, '7', { b: 2, a: 1 }, { a: 1 }].map(fits), [true, false, true, false]);
  });
});

test('descents in a filter share one budget with the whole path', () => {
  const path = parseJsonPath('.list[?(@..x)].n') ?? assert.fail();
  const item = (index: number): JsonObject => ({ n: index, deep: numbered(1000, (at) => ({ y: at })) });
  assert.deepEqual(findAll({ list: [{ n: 1, x: 2 }, item(2)] }, path), [1]);
  assert.deepEqual(findAll({ list: [{ n: 1, x: 2 }, ...numbered(90, item)] }, path), [1]);
  assert.deepEqual(findAll({ list: [{ n: 1, x: 2 }, ...numbered(900, item)] }, path), []);
});
