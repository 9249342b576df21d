/** Errors of an update are compared with the old object: which values count as unchanged, and the cost of the comparison. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject, KubeObject } from '../../../../../api/meta/object.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { customObjectErrors } from '../../../../../controlplane/registry/custom-resources/object-validation.ts';
import { atOnce } from '../../../../../api/machinery/pausing.ts';
import { compileRules } from '../../../../../controlplane/registry/schemas/rule-compilation.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const validateCustomObject = (...args: Parameters<typeof customObjectErrors>) => atOnce(customObjectErrors(...args));

const numbers = (count: number): number[] => Array.from({ length: count }, (_item, index) => index);

function validate(spec: JsonSchema, object: JsonObject, old: JsonObject): string[] {
  const schema: JsonSchema = { type: 'object', properties: { spec } };
  const { rules } = compileRules(schema, '');
  const made = (value: JsonObject): KubeObject => ({ metadata: { name: 'a' }, ...value }) as unknown as KubeObject;
  return validateCustomObject({ schema, rules, scale: undefined }, made(object), made(old)).map(String);
}

const plain: JsonSchema = { type: 'array', items: { type: 'integer', maximum: 1 } };
const keyed: JsonSchema = {
  type: 'array',
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['name'],
  items: {
    type: 'object',
    properties: { name: { type: 'string' }, n: { type: 'integer', maximum: 1 } },
    'x-kubernetes-validations': [{ rule: 'self.n >= 0' }],
  },
};
const items = (count: number, n: (index: number) => number): JsonObject[] =>
  numbers(count).map((index) => ({ name: `n${index}`, n: n(index) }));

describe('an error of an update', () => {
  test('is let through where the list that it is in has not changed', () => {
    assert.deepEqual(validate(plain, { spec: [0, 5] }, { spec: [0, 5] }), []);
    assert.equal(validate(plain, { spec: [1, 5] }, { spec: [0, 5] }).length, 1);
  });
  test('is let through where the item of the same keys has not changed, wherever it stands', () => {
    const old = [
      { name: 'a', n: 5 },
      { name: 'b', n: 0 },
    ];
    assert.deepEqual(validate(keyed, { spec: old.toReversed() }, { spec: old }), []);
    assert.equal(validate(keyed, { spec: [{ name: 'a', n: 6 }] }, { spec: old }).length, 1);
    assert.equal(validate(keyed, { spec: [{ name: 'c', n: 5 }] }, { spec: old }).length, 1);
  });
});

describe('the time of an update grows with the size of its lists', () => {
  test('where half of a list is invalid and the last item has changed', async () => {
    const run = (size: number): unknown => {
      const list = numbers(size).map((index) => (index < size / 2 ? 0 : 5));
      return validate(plain, { spec: [...list, 1] }, { spec: [...list, 0] });
    };
    await assertLinearTime(run, { minBytes: 16_384, maxBytes: 16_384, noticeableMs: 250 });
  });
  test('where each item of a keyed list is invalid', async () => {
    const run = (size: number): unknown =>
      validate(keyed, { spec: items(size, () => 6) }, { spec: items(size, () => 5).toReversed() });
    await assertLinearTime(run, { minBytes: 4096, maxBytes: 4096, noticeableMs: 250 });
  });
  test('where rules compare each item of a keyed list with the old one', async () => {
    const run = (size: number): unknown =>
      validate(keyed, { spec: items(size, () => 1) }, { spec: items(size, () => 0).toReversed() });
    await assertLinearTime(run, { minBytes: 4096, maxBytes: 4096, noticeableMs: 250 });
  });
});
