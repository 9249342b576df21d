/** Tests defaults of a schema that do not conform to it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { schemaDefaultErrors } from '../../../../../controlplane/registry/schemas/default-validation.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';

const errorsOf = (spec: JsonSchema): readonly string[] =>
  schemaDefaultErrors({ type: 'object', properties: { spec } }, 'schema').map(String);

test('a default that fits no alternative is an error of the default itself', () => {
  const q: JsonSchema = { type: 'string' };
  assert.deepEqual(errorsOf({ type: 'object', default: {}, properties: { q }, oneOf: [{ required: ['q'] }] }), [
    'schema.properties[spec].default: Invalid value: "": "" must validate one and only one schema (oneOf). Found none valid',
    'schema.properties[spec].default.q: Required value',
  ]);
});

test('an embedded object with invalid metadata is not validated further', () => {
  const [error, ...more] = errorsOf({
    type: 'object',
    'x-kubernetes-embedded-resource': true,
    default: { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'bad/name' }, spec: 'text' },
    properties: { spec: { type: 'integer' } },
  });
  assert.match(error ?? '', /^schema\.properties\[spec\]\.default\.metadata\.name: Invalid value: "bad\/name"/);
  assert.deepEqual(more, []);
});

test('only rules check that a default of an integer or a text is one of both', () => {
  const either: JsonSchema = { 'x-kubernetes-int-or-string': true };
  const ruled: JsonSchema = { ...either, 'x-kubernetes-validations': [{ rule: 'self == self' }] };
  for (const value of [[], {}, true, 1.5]) {
    assert.deepEqual(errorsOf({ type: 'object', properties: { k: { ...either, default: value } } }), []);
    const why =
      'invalid data, expected XIntOrString value to be either a string or integer evaluating rule: self == self';
    assert.deepEqual(errorsOf({ type: 'object', properties: { k: { ...ruled, default: value } } }), [
      `schema.properties[spec].properties[k].default: Invalid value: "": ${why}`,
    ]);
  }
  for (const value of [1, 'x'])
    assert.deepEqual(errorsOf({ type: 'object', properties: { k: { ...ruled, default: value } } }), []);
});
