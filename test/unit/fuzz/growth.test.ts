/** Tests time as a function of size: the measurement itself, every regular expression of the program, and the parsers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_EXPONENT, measureGrowth, type Stopwatch } from '../../fuzz/growth.ts';
import { inputOf, searchGrowth, type Found } from '../../fuzz/growth-search.ts';
import { Random } from '../../fuzz/random.ts';
import { readExpressions, successfulAttack } from '../../fuzz/regular-expressions.ts';
import { loadTarget } from '../../fuzz/targets.ts';

/** A stopwatch for runs that return their own time. */
const stated: Stopwatch = (run) => Promise.resolve(Number(run()));
const maxBytes = 1 << 16;

for (const [name, time, exponent] of [
  ['linear', (size: number) => size / 1000, 1],
  ['quadratic', (size: number) => size ** 2 / 1e6, 2],
  ['cubic', (size: number) => size ** 3 / 1e9, 3],
] as const) {
  test(`${name} time has the exponent ${exponent}`, async () => {
    assert.equal((await measureGrowth(time, { maxBytes, stopwatch: stated }))?.exponent, exponent);
  });
}

test('exponential time is found at a small size', async () => {
  const growth = await measureGrowth((size) => 2 ** (size - 24), { maxBytes, stopwatch: stated });
  assert.ok(growth !== undefined && growth.exponent > MAX_EXPONENT && growth.sizeBytes <= 64);
});

test('an input that is fast at every size passes', async () => {
  assert.equal(await measureGrowth(() => 0.1, { maxBytes, stopwatch: stated }), undefined);
});

test('expressions that are known to backtrack are found', async () => {
  for (const expression of [/^(\w+\s?)*$/, /x+$/, /^[ \t]+|[ \t]+$/g, /(\d+)(ms|s)/g, /\$\(([^)]*)\)/g]) {
    const found = await successfulAttack({ file: '', literal: String(expression), expression });
    assert.ok(found !== undefined, String(expression));
  }
});

test('every regular expression of the program takes linear time', async (t) => {
  const expressions = readExpressions();
  assert.ok(expressions.length > 400, `only ${expressions.length} expressions were read`);
  const slow: string[] = [];
  for (const candidate of expressions) {
    const found = await successfulAttack(candidate);
    if (found !== undefined) slow.push(`${candidate.file} ${candidate.literal} ${JSON.stringify(found)}`);
  }
  t.diagnostic(`${expressions.length} expressions`);
  assert.deepEqual(slow, []);
});

test('a target that takes quadratic time is found by the words of its format', async () => {
  const found: Found[] = [];
  const target = {
    seeds: [],
    words: ['a', '$('],
    execute: (input: Buffer) => (/\$\(([^)]*)\)/.test(input.toString()) ? '1' : '0'),
  };
  await searchGrowth(target, {
    random: new Random(1),
    until: () => found.length > 0,
    report: (one) => found.push(one),
  });
  assert.match(inputOf(found[0]?.shape ?? assert.fail(), 4).toString(), /^\$\(/);
});

/**
 * The number of random inputs for each target, after those with a single word of the format. `npm run fuzz -- --growth` tries
 * more.
 */
const SHAPES = 12;

for (const name of [
  'html-links',
  'headers',
  'templates',
  'logs',
  'selectors',
  'names',
  'paths',
  'cel-compile',
  'json',
  'yaml',
  'x509',
]) {
  test(`${name} takes time that grows as its input does`, async () => {
    const target = await loadTarget(name);
    const found: Found[] = [];
    const wanted = target.words.filter((word) => word !== '').length + SHAPES;
    let left = wanted;
    try {
      const tried = await searchGrowth(target, {
        random: new Random(1),
        until: () => (left -= 1) < 0,
        report: (one) => found.push(one),
      });
      assert.equal(tried, wanted);
    } finally {
      await target.close?.();
    }
    assert.deepEqual(
      found.map(({ shape, growth }) => ({ input: inputOf(shape, 64).toString('latin1'), growth })),
      [],
    );
  });
}
