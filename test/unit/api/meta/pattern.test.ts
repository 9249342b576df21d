/** Regular expressions of users are refused if they would take long to compile. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePattern } from '../../../../api/meta/pattern.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const TOO_LARGE = /expression too large/;

for (const pattern of [
  'a{1000}'.repeat(100),
  '(a|b){1000}'.repeat(100),
  `(${'ab'.repeat(100)}){900}`,
  `${'(x{0,900}|'.repeat(60)}y${')'.repeat(60)}`,
  '[]a{3}]{1000}\\Q(\\E'.repeat(60),
  'x'.repeat(60_000),
]) {
  test(`a pattern that multiplies is refused before it is compiled: ${pattern.slice(0, 24)}`, () => {
    assert.throws(() => compilePattern(pattern), TOO_LARGE);
  });
}

for (const [pattern, text] of [
  ['^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\\.){1,15}$', 'a.b-c.'],
  ['^((a{10}){10}){10}$', 'a'.repeat(1000)],
  ['\\Qa{1000}\\E'.repeat(50), 'a{1000}'.repeat(50)],
  ['^[{1000}]{3}$', '{1}'],
  ['^\\p{Lu}{2,}a{,3}$', 'ABa{,3}'],
] as const) {
  test(`${pattern.slice(0, 40)} is compiled`, () => {
    assert.equal(compilePattern(pattern).matcher(text).find(), true);
  });
}

test('measuring a pattern takes linear time', async () => {
  for (const part of ['[', '(', '\\Q', '{1', 'a{2}', '[[:', '\\p{']) {
    const run = (size: number): void =>
      assert.throws(() => compilePattern(`${part.repeat(size / part.length)}${'x'.repeat(60_000)}`));
    await assertLinearTime(run, { minBytes: 16_384, maxBytes: 16_384, noticeableMs: 250 });
    const short = (size: number): void => {
      try {
        compilePattern(part.repeat(size / part.length));
      } catch (error) {
        assert.ok(error instanceof Error);
      }
    };
    await assertLinearTime(short, { minBytes: 16_384, maxBytes: 16_384, noticeableMs: 250 });
  }
});
