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

test('parts that are added as the body is sent come out like those that were there before', () => {
  const parts = fc.array(fc.uint8Array({ maxLength: 40 }));
  fc.assert(
    fc.property(fc.array(parts), fc.nat(200), fc.integer({ min: 1, max: 100 }), (items, limit, chunkBytes) => {
      const expected = items.flat().flatMap((bytes) => [...bytes]);
      const lazy = (): Pieces => {
        let next = 0;
        return new Pieces((to) => {
          const item = items[next];
          next += 1;
          for (const bytes of item ?? []) to.add(Buffer.from(bytes));
          return item !== undefined;
        });
      };
      assert.deepEqual([...lazy().whole()], expected);
      const pieces = lazy();
      pieces.gather(limit);
      assert.ok(pieces.bytes > limit || pieces.bytes === expected.length);
      const chunks = [...pieces.chunks(() => Buffer.alloc(chunkBytes))];
      assert.deepEqual([...Buffer.concat(chunks)], expected);
    }),
  );
});

test('an item is read when its bytes are sent', () => {
  const read: number[] = [];
  const pieces = new Pieces((to) => {
    read.push(read.length);
    to.add(Buffer.from('abcd'));
    return read.length < 100;
  });
  const chunks = pieces.chunks(() => Buffer.alloc(10));
  chunks.next();
  assert.ok(read.length <= 3);
});
