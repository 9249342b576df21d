import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { compressRun, digestOf, gzipOf, plainBytes } from '../../../../controlplane/server/compressed-runs.ts';

test('runs in any order are one gzip stream of their bytes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 2000 })), async (parts) => {
      const runs = await Promise.all(parts.map((part) => compressRun(Buffer.from(part))));
      const whole = Buffer.concat(parts);
      const zipped = gzipOf(runs);
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
  assert.equal(digestOf([a, b]), digestOf([await compressRun('a'), b]));
  assert.notEqual(digestOf([a, b]), digestOf([b, a]));
});
