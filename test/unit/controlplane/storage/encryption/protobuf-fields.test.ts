/** Tests protobuf fields: integers at and above the limit of 64 bits, and maps. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mapField, mapOf, readFields } from '../../../../../controlplane/storage/encryption/protobuf-fields.ts';

/** Returns a message with an integer in field 1 that takes this many bytes. */
const withIntegerOf = (bytes: number): Buffer => Buffer.from([8, ...Array<number>(bytes - 1).fill(255), 1]);

test('an integer of 64 bits, which takes ten bytes, is read', () => {
  assert.equal(readFields(withIntegerOf(10)).get(1)?.length, 1);
});

// An integer of 148 bytes can exceed the numbers of JavaScript, which end at 2^1024.
for (const bytes of [11, 148, 100_000])
  test(`an integer of ${bytes} bytes is refused`, () => {
    assert.throws(() => readFields(withIntegerOf(bytes)), /^Error: a message has an integer that is too long$/);
  });

test('a map keeps the entry whose key and value are empty', () => {
  const map = new Map([
    ['', Buffer.alloc(0)],
    ['a', Buffer.from('b')],
  ]);
  assert.deepEqual(mapOf(readFields(mapField(4, map)), 4), map);
});
