import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Pieces } from '../../../../controlplane/server/pieces.ts';

test('parts come out in their order, whole or in chunks, from where each begins', () => {
  const part = fc.record({ bytes: fc.uint8Array({ maxLength: 40 }), from: fc.nat(40) });
  fc.assert(
    fc.property(fc.array(part), fc.integer({ min: 1, max: 100 }), (parts, chunkBytes) => {
      const pieces = new Pieces();
      const expected: number[] = [];
      for (const { bytes, from } of parts) {
        const start = Math.min(from, bytes.length);
        pieces.add(Buffer.from(bytes), start);
        expected.push(...bytes.subarray(start));
      }
      assert.equal(pieces.bytes, expected.length);
      assert.deepEqual([...pieces.whole()], expected);
      const chunks = [...pieces.chunks(() => Buffer.alloc(chunkBytes))];
      assert.deepEqual([...Buffer.concat(chunks)], expected);
      for (const chunk of chunks.slice(0, -1)) assert.equal(chunk.length, chunkBytes);
    }),
  );
});

test('a single whole buffer is not copied', () => {
  const buffer = Buffer.from('abc');
  assert.equal(Pieces.of([buffer]).whole(), buffer);
});
