import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { matchingBlocks } from '../../../../api/schema/matching-blocks.ts';

const lines = (text: string): string[] => [...text];

describe('matching blocks', () => {
  it('are the longest common run, and then what is around it', () => {
    assert.deepEqual(matchingBlocks(lines('abxcd'), lines('cdabxz')), [{ a: 0, b: 2, size: 3 }]);
    assert.deepEqual(matchingBlocks(lines('xaby'), lines('xzaby')), [
      { a: 0, b: 0, size: 1 },
      { a: 1, b: 2, size: 3 },
    ]);
  });
  it('begin at the first of equal runs', () => {
    assert.deepEqual(matchingBlocks(lines('ab'), lines('abcab')), [{ a: 0, b: 0, size: 2 }]);
  });
  it('do not start at popular lines of a long text, but contain them', () => {
    const popular = Array.from({ length: 200 }, () => 'x');
    assert.deepEqual(matchingBlocks(['x'], popular), [{ a: 0, b: 0, size: 1 }]);
    assert.deepEqual(matchingBlocks(['y', 'x'], [...popular, 'a']), []);
    assert.deepEqual(matchingBlocks(['k', 'x'], ['k', ...popular]), [{ a: 0, b: 0, size: 2 }]);
  });
  it('are not searched in what remains after four million comparisons', () => {
    const equal = (count: number): string[] => Array.from({ length: count }, () => 'x');
    const longest = (count: number) => matchingBlocks([...equal(count), 'end'], [...equal(198), 'end']);
    assert.deepEqual(longest(20_000), [{ a: 19_802, b: 0, size: 199 }]);
    assert.deepEqual(longest(30_000), [{ a: 0, b: 0, size: 198 }]);
  });
});
