/** Tests which schemas are structural: every value has one type, and `allOf` and similar keywords can only restrict it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { isReadable, structuralErrors } from '../../../../../controlplane/registry/schemas/structural-schema.ts';

const root = (properties: Record<string, JsonSchema>, more: JsonSchema = {}): JsonSchema => ({
  type: 'object',
  properties,
  ...more,
});
const errorsOf = (schema: JsonSchema): string[] => structuralErrors(schema, 's').map(String);

describe('a schema is structural', () => {
  for (const [what, schema] of [
    ['if every value has its type', root({ a: { type: 'array', items: { type: 'string' } } })],
    [
      'if the alternatives of an integer or a text name its types',
      root({
        a: { 'x-kubernetes-int-or-string': true, anyOf: [{ type: 'integer' }, { type: 'string' }] },
        b: {
          'x-kubernetes-int-or-string': true,
          allOf: [{ anyOf: [{ type: 'integer' }, { type: 'string' }] }, { maximum: 1 }],
        },
      }),
    ],
    [
      'if a junction restricts a described member',
      root({ a: { type: 'string' } }, { anyOf: [{ properties: { a: { minLength: 1 } } }] }),
    ],
  ] as const)
    it(what, () => assert.deepEqual(errorsOf(schema), []));

  for (const [what, schema, error] of [
    ['without a type at the root', { properties: {} }, 's.type: Required value: must not be empty at the root'],
    [
      'without a type of a field',
      root({ a: {} }),
      's.properties[a].type: Required value: must not be empty for specified object fields',
    ],
    [
      'with a list without items',
      root({ a: { type: 'array' } }),
      's.properties[a].items: Required value: must be specified',
    ],
    [
      'with a type inside of anyOf',
      root({}, { anyOf: [{ type: 'object' }] }),
      's.anyOf[0].type: Forbidden: must be empty to be structural',
    ],
    [
      'with types in the second schema of allOf, which no integer or text allows',
      root({
        a: {
          'x-kubernetes-int-or-string': true,
          allOf: [{ maximum: 1 }, { anyOf: [{ type: 'integer' }, { type: 'string' }] }],
        },
      }),
      's.properties[a].allOf[1].anyOf[0].type: Forbidden: must be empty to be structural',
    ],
    [
      'with a member that only a junction describes',
      root({}, { not: { properties: { a: { properties: { b: {} } } } } }),
      's.properties[a]: Required value: because it is defined in s.not.properties[a]',
    ],
    [
      'with items that only a junction describes',
      root({ a: { type: 'object' } }, { oneOf: [{ properties: { a: { items: { minimum: 1 } } } }] }),
      's.properties[a].items: Required value: because it is defined in s.oneOf[0].properties[a].items',
    ],
    [
      'with a malformed pattern',
      root({ a: { type: 'string', pattern: '(' } }),
      's.properties[a].pattern: Invalid value: "("',
    ],
  ] as const)
    it(`not ${what}`, () =>
      assert.ok(
        errorsOf(schema as JsonSchema).some((text) => text.startsWith(error)),
        errorsOf(schema as JsonSchema).join('\n'),
      ));

  it('not with a keyword that nothing can read', () => {
    assert.equal(isReadable(root({ a: { type: 'string' } })), true);
    assert.equal(isReadable(root({ a: { $ref: '#/x' } as JsonSchema })), false);
    assert.equal(isReadable(root({ a: { type: 'array', items: [{ type: 'string' }] } })), false);
  });
});
