/** Integers beyond the precision of a double stay exact wherever objects are read, compared, printed or sent. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseJson, stringifyJson } from '../../../../api/codec/json.ts';
import { decodeFieldsV1, encodeFieldsV1 } from '../../../../api/codec/structured-merge/fields-v1.ts';
import { mergeTypeOf } from '../../../../api/codec/structured-merge/merge-types.ts';
import { typeErrors, fieldSetOf } from '../../../../api/codec/structured-merge/typed-value.ts';
import { parseYaml, stringifyYaml } from '../../../../api/codec/yaml.ts';
import type { StructType } from '../../../../api/schema/schema.ts';

const large = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
});

test('JSON and YAML give every 64-bit integer back', () => {
  fc.assert(
    fc.property(large, (n) => {
      const value = { a: n, l: [n], o: { n } };
      assert.deepEqual(parseJson(stringifyJson(value)).value, value);
      assert.deepEqual(parseYaml(stringifyYaml(value)).value, value);
      assert.deepEqual(parseYaml(stringifyJson(value)).value, value);
    }),
  );
});

test('structured merge names items by large integers and shows values that have them', () => {
  const struct: StructType = {
    name: 'T',
    fields: new Map([
      [
        's',
        {
          name: 's',
          required: false,
          listType: 'set',
          type: { kind: 'list', items: { kind: 'scalar', scalar: 'int64' } },
        },
      ],
      ['t', { name: 't', required: false, type: { kind: 'scalar', scalar: 'string' } }],
    ]),
  };
  const type = mergeTypeOf(struct);
  fc.assert(
    fc.property(large, (n) => {
      const set = fieldSetOf(type, { s: [n] });
      assert.match(JSON.stringify(encodeFieldsV1(set)), new RegExp(`v:${n}"`));
      assert.deepEqual(encodeFieldsV1(decodeFieldsV1(encodeFieldsV1(set))), encodeFieldsV1(set));
      assert.deepEqual(typeErrors(type, { t: { n } }), [
        `.t: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"n":${n}}}`,
      ]);
    }),
  );
});
