import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mergeTypeOf } from '../../../../api/codec/structured-merge/merge-types.ts';
import { typeErrors } from '../../../../api/codec/structured-merge/typed-value.ts';

test('the first of several members that a schema does not have is reported', () => {
  const type = mergeTypeOf({
    name: 'T',
    fields: new Map([['t', { name: 't', required: false, type: { kind: 'scalar', scalar: 'string' } }]]),
  });
  assert.deepEqual(typeErrors(type, { t: 'x', a: 1, b: 2 }), ['.a: field not declared in schema']);
});
