import assert from 'node:assert/strict';
import { test } from 'node:test';
import { imageFault } from '../../../../agent/runtime/image-faults.ts';

test('an image with a command that lists of containers have no room for is not used', () => {
  assert.equal(imageFault({ user: '', command: 100_000 }), '');
  assert.match(imageFault({ user: '', command: 200_000 }), /its command has 200000 characters/);
});
