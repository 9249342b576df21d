import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorMessage, toError } from '../../../../api/meta/error-message.ts';

test('the message of an error is its text without its name', () => {
  assert.equal(errorMessage(new TypeError('not a number')), 'not a number');
});

test('a thrown value that is not an error is its text', () => {
  assert.equal(errorMessage('stopped'), 'stopped');
  assert.equal(errorMessage(undefined), 'undefined');
  assert.equal(toError('stopped').message, 'stopped');
});

test('an error stays the same object', () => {
  const error = new RangeError('too long');
  assert.equal(toError(error), error);
});
