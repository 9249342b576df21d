import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkImagePattern, matchesImage } from '../../../../../agent/runtime/images/image-match.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const CASES: readonly (readonly [pattern: string, target: string, matches: boolean])[] = [
  ['example.com', 'example.com/a', true],
  ['*.example.com', 'a.example.com/b', true],
  ['*.example.com', 'a.b.example.com/b', false],
  ['*.example.com:5000/team', 'a.example.com:5000/team/x', true],
  ['*.example.com:5000/team', 'a.example.com/team/x', false],
  ['a*b*c.io', 'aXbYc.io/x', true],
  ['a*b*c.io', 'aXcYb.io/x', false],
  ['regist?y.io', 'registry.io/x', true],
  ['x[a-c].io', 'xb.io/x', true],
  ['x[a-c].io', 'xd.io/x', false],
  ['x[^a-c].io', 'xd.io/x', true],
  ['x[^a-c].io', 'xa.io/x', false],
  ['x[a-].io', 'xa.io/x', false],
  ['[::1]:5000', '[::1]:5000/x', true],
];

for (const [pattern, target, matches] of CASES) {
  test(`${pattern} ${matches ? 'matches' : 'does not match'} ${target}`, () => {
    assert.equal(matchesImage(pattern, target), matches);
  });
}

test('a class that does not end is not a valid pattern', () => {
  assert.throws(() => checkImagePattern('[a.io'), /is not a valid pattern/);
  checkImagePattern('[a].io');
});

test('a pattern of many stars takes time that grows with the length of the name', async () => {
  await assertLinearTime(
    (size) => assert.equal(matchesImage(`${'*a'.repeat(30)}*b.io`, `${'a'.repeat(size)}.io/x`), false),
    { maxBytes: 1 << 16 },
  );
});
