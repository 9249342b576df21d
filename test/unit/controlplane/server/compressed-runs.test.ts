import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { inOneSlice } from '../../../../api/machinery/time-slice.ts';
import {
  compressRun,
  gzipOf,
  plainBytes,
  type Run,
  type RunsSummary,
  summaryOf,
} from '../../../../controlplane/server/compressed-runs.ts';

const summarized = (runs: readonly Run[]): RunsSummary => inOneSlice(summaryOf(runs, { isSpent: false }));

test('runs in any order are one gzip stream of their bytes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 2000 })), async (parts) => {
      const runs = await Promise.all(parts.map((part) => compressRun(Buffer.from(part))));
      const whole = Buffer.concat(parts);
      const zipped = gzipOf(runs, summarized(runs));
      assert.deepEqual(gunzipSync(Buffer.concat(zipped)), whole);
      assert.ok(
        runs.every(({ deflated }) => zipped.includes(deflated)),
        'no response has a copy of a document',
      );
      const plain: Buffer[] = [];
      for await (const bytes of plainBytes(runs)) plain.push(bytes);
      assert.deepEqual(Buffer.concat(plain), whole);
    }),
    { numRuns: 50 },
  );
});

test('the digest depends on the runs and their order', async () => {
  const [a, b] = [await compressRun('a'), await compressRun('b')];
  assert.equal(summarized([a, b]).hash, summarized([await compressRun('a'), b]).hash);
  assert.notEqual(summarized([a, b]).hash, summarized([b, a]).hash);
});

test('a document of thousands of runs is assembled in slices', async () => {
  const run = await compressRun('x');
  const work = summaryOf(
    Array.from({ length: 5000 }, () => run),
    { isSpent: true },
  );
  let pauses = 0;
  while (work.next().done !== true) pauses += 1;
  assert.equal(pauses, 5000);
});

test('a run keeps no more memory than twice its compressed size, although zlib returns a piece of a large chunk', async () => {
  const { deflated } = await compressRun('a run of a document '.repeat(100));
  assert.ok(deflated.length < 1000);
  assert.ok(deflated.buffer.byteLength <= 2 * deflated.length);
});
