import assert from 'node:assert/strict';
import { it } from 'node:test';
import { checkAnswer } from '../../../../../agent/resources/managers/devicemanager/plugin-limits.ts';

it('an answer of a driver or plugin has 256 KiB at most, and no NUL in any text', () => {
  checkAnswer([{ name: 'x'.repeat(250_000) }]);
  assert.throws(() => checkAnswer([{ name: 'x'.repeat(270_000) }], 'the answer'), /^Error: the answer has more than/);
  assert.throws(() => checkAnswer({ path: 'a\u0000b' }), /^Error: the allocation response has a NUL character/);
  assert.throws(() => checkAnswer({ 'a\u0000b': 1 }), /NUL character/);
});
