/** Time against size: the measurement itself, and every regular expression of the program. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_EXPONENT, measureGrowth, type Stopwatch } from '../../fuzz/growth.ts';
import { readExpressions, successfulAttack } from '../../fuzz/regular-expressions.ts';

/** A stopwatch for runs that return their time. */
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

test('what is fast at every size is not judged', async () => {
  assert.equal(await measureGrowth(() => 0.1, { maxBytes, stopwatch: stated }), undefined);
});

test('expressions that are known to backtrack are found', async () => {
  for (const expression of [/^(\w+\s?)*$/, /x+$/, /^[ \t]+|[ \t]+$/g, /(\d+)(ms|s)/g, /a.*b.*c/]) {
    const found = await successfulAttack({ file: '', literal: String(expression), expression });
    assert.ok(found !== undefined, String(expression));
  }
});

/** What may take longer, and why. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  'controlplane/server/connect/html-links.ts': 'a tag of a page is bounded by LONGEST_TAG',
};

test('every regular expression of the program takes linear time', async (t) => {
  const expressions = readExpressions();
  assert.ok(expressions.length > 400, `only ${expressions.length} expressions were read`);
  const slow: string[] = [];
  for (const candidate of expressions) {
    if (candidate.file in EXCEPTIONS) continue;
    const found = await successfulAttack(candidate);
    if (found !== undefined) slow.push(`${candidate.file} ${candidate.literal} ${JSON.stringify(found)}`);
  }
  t.diagnostic(`${expressions.length} expressions`);
  assert.deepEqual(slow, []);
});
