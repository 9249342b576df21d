/** Numbers of JSON in messages. The texts are those that kube-apiserver 1.36 showed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goType, goValue } from '../../../../api/meta/go-text.ts';
import { invalid } from '../../../../api/meta/field-error.ts';

test('an integer of more than 64 bits is shown as the float64 that Go reads', () => {
  const huge = 100_000_000_000_000_000_000n;
  assert.deepEqual([goType(huge), goValue(huge)], ['float64', '1e+20']);
  assert.equal(invalid('a', huge, 'no').body(), 'Invalid value: 1e+20: no');
  const large = 9_223_372_036_854_775_807n;
  assert.deepEqual([goType(large), goValue(large)], ['int64', '9223372036854775807']);
});
