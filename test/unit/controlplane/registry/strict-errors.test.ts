import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseJson } from '../../../../api/codec/json.ts';
import { decodeStruct } from '../../../../api/schema/decode.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import { strictErrors, strictWarnings } from '../../../../controlplane/registry/strict-errors.ts';

const struct = loadSchema().kind('apps', 'v1', 'Deployment');
assert(struct !== undefined);

function faultsOf(text: string): string[] {
  const { value, duplicates } = parseJson(text);
  assert(struct !== undefined);
  const { unknown } = decodeStruct(struct, value);
  assert.deepEqual(strictWarnings(value, duplicates, unknown), strictErrors(value, duplicates, unknown));
  return strictErrors(value, duplicates, unknown);
}

test('unknown and repeated fields are reported in the order of the text', () => {
  assert.deepEqual(faultsOf('{"spec":{"unknownField":1,"replicas":1,"replicas":2},"other":1}'), [
    'unknown field "spec.unknownField"',
    'duplicate field "spec.replicas"',
    'unknown field "other"',
  ]);
  assert.deepEqual(faultsOf('{"spec":{"replicas":1,"replicas":2,"unknownField":1}}'), [
    'duplicate field "spec.replicas"',
    'unknown field "spec.unknownField"',
  ]);
  assert.deepEqual(faultsOf('{"spec":{"replicas":1,"unknownField":1,"replicas":2}}'), [
    'unknown field "spec.unknownField"',
    'duplicate field "spec.replicas"',
  ]);
});

test('faults inside of lists are in order too', () => {
  const text =
    '{"spec":{"template":{"spec":{"containers":[{"a":1,"name":"x","name":"y"},{"name":"z","name":"z","b":1}]}}}}';
  const at = 'spec.template.spec.containers';
  assert.deepEqual(faultsOf(text), [
    `unknown field "${at}[0].a"`,
    `duplicate field "${at}[0].name"`,
    `duplicate field "${at}[1].name"`,
    `unknown field "${at}[1].b"`,
  ]);
});

test('repeated keys of YAML come before unknown fields', () => {
  const line = 'line 2: key "a" already set in map';
  assert.deepEqual(strictWarnings({ b: 1 }, [line], ['b']), [line, 'unknown field "b"']);
});
