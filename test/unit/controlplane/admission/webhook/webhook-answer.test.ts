import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodedReview } from '../../../../../controlplane/admission/webhook/webhook-answer.ts';

test('a text that a webhook answers is a string, and other texts are no JSON', () => {
  assert.throws(
    () => decodedReview(Buffer.from('hello')),
    /json: cannot unmarshal string into Go value of type struct/,
  );
  assert.throws(() => decodedReview(Buffer.from('<html>')), /invalid character '<' looking for beginning of value/);
  assert.deepEqual(decodedReview(Buffer.from('{"a":1}')), { a: 1 });
});
