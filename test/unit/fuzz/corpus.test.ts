/** Runs the kept inputs of the fuzzer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCorpus } from '../../fuzz/corpus.ts';
import { mutate } from '../../fuzz/mutate.ts';
import { Random } from '../../fuzz/random.ts';
import { loadTarget, targetNames } from '../../fuzz/targets.ts';

for (const name of targetNames) {
  test(`${name} takes its corpus with no other than the declared errors`, async () => {
    const target = await loadTarget(name);
    try {
      for (const input of [...target.seeds, ...readCorpus(name)]) await target.execute(Buffer.from(input));
    } finally {
      await target.close?.();
    }
  });
}

test('the same seed makes the same inputs', () => {
  const make = (): Buffer[] => {
    const random = new Random(7);
    const corpus = [Buffer.from('abc'), Buffer.from('{"a":1}')];
    return Array.from({ length: 100 }, () => mutate(Buffer.from('[1,2]'), { corpus, words: ['x', 'y'] }, random));
  };
  assert.deepEqual(make(), make());
});
