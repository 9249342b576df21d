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
  it('end when there are too many comparisons', () => {
    const many = Array.from({ length: 199 }, () => 'x');
    const long = Array.from({ length: 40_000 }, () => 'x');
    assert.ok(matchingBlocks(long, many).length < 400);
  });
});
