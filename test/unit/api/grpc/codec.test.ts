/** Tests the codec of gRPC messages against protobufjs, and with bytes that are no message. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import protobuf from 'protobufjs/light.js';
import { buildCodecs } from '../../../../api/grpc/codec.ts';

const TABLES = {
  All: {
    text: '1 string',
    flag: '2 bool',
    raw: '3 bytes',
    small: '4 int32',
    large: '5 int64',
    unsigned: '6 uint32',
    size: '7 uint64',
    labels: '8 map',
    texts: '16 string[]',
    numbers: '17 int64[]',
    part: '18 All',
    parts: '2000 All[]',
  },
} as const;

const reference = protobuf.Root.fromJSON({
  nested: {
    All: {
      fields: {
        text: { id: 1, type: 'string' },
        flag: { id: 2, type: 'bool' },
        raw: { id: 3, type: 'bytes' },
        small: { id: 4, type: 'int32' },
        large: { id: 5, type: 'int64' },
        unsigned: { id: 6, type: 'uint32' },
        size: { id: 7, type: 'uint64' },
        labels: { id: 8, keyType: 'string', type: 'string' } as never,
        texts: { id: 16, rule: 'repeated', type: 'string' },
        numbers: { id: 17, rule: 'repeated', type: 'int64', options: { packed: true } },
        part: { id: 18, type: 'All' },
        parts: { id: 2000, rule: 'repeated', type: 'All' },
      },
    },
  },
}).lookupType('All');

const codec = buildCodecs(TABLES)('All');
const encodeByReference = (value: object): Buffer =>
  Buffer.from(reference.encode(reference.fromObject(value)).finish());
const decodeByReference = (bytes: Uint8Array): object =>
  reference.toObject(reference.decode(bytes), { longs: Number, bytes: Buffer, defaults: true });

const text = fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('__proto__', '\uFFFD', '\uFEFFa'));
const { all } = fc.letrec<{ all: object }>((tie) => ({
  all: fc.record(
    {
      text,
      flag: fc.boolean(),
      raw: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
      small: fc.integer(),
      large: fc.maxSafeInteger(),
      unsigned: fc.nat(2 ** 32 - 1),
      size: fc.maxSafeNat(),
      labels: fc.array(fc.tuple(text, text), { maxLength: 3 }).map((pairs) => Object.fromEntries(pairs)),
      texts: fc.array(text, { maxLength: 3 }),
      numbers: fc.array(fc.maxSafeInteger(), { maxLength: 3 }),
      part: fc.oneof({ maxDepth: 3 }, fc.constant(undefined), tie('all')),
      parts: fc.oneof({ maxDepth: 3 }, fc.constant([]), fc.array(tie('all'), { maxLength: 2 })),
    },
    { requiredKeys: [] },
  ),
}));

test('writes and reads messages as protobufjs does', () => {
  fc.assert(
    fc.property(all, (value) => {
      const bytes = codec.encode(value);
      assert.equal(bytes.toString('hex'), encodeByReference(value).toString('hex'));
      assert.deepEqual(codec.decode(bytes), decodeByReference(bytes));
    }),
  );
});

test('merges the parts of a message that comes twice, as protobufjs does', () => {
  fc.assert(
    fc.property(all, all, (one, other) => {
      const bytes = Buffer.concat([codec.encode(one), codec.encode(other)]);
      assert.deepEqual(codec.decode(bytes), decodeByReference(bytes));
    }),
  );
});

test('accepts and refuses damaged messages as protobufjs does', () => {
  const outcome = (decode: () => object): unknown => {
    try {
      return decode();
    } catch {
      return 'refused';
    }
  };
  fc.assert(
    fc.property(all, fc.nat(), fc.nat(255), fc.boolean(), (value, at, byte, isCut) => {
      const bytes = codec.encode(value);
      if (bytes.length === 0) return;
      bytes[at % bytes.length] = byte;
      const damaged = isCut ? bytes.subarray(0, at % bytes.length) : bytes;
      assert.deepEqual(
        outcome(() => codec.decode(damaged)),
        outcome(() => decodeByReference(damaged)),
      );
    }),
    // Random bytes would in time form groups, which protobufjs can skip.
    { numRuns: 500, seed: 1 },
  );
});

test('reads numbers of 64 bits with the precision of a number', () => {
  const largest = Buffer.from('28ffffffffffffffff7f38ffffffffffffffffff01', 'hex');
  const { large, size } = codec.decode(largest) as { readonly large: number; readonly size: number };
  assert.deepEqual([large, size], [2 ** 63, 2 ** 64]);
});

for (const [name, hex] of [
  ['a field number of zero', '0000'],
  ['a tag of more than 32 bits', 'ffffffffff01'],
  ['text that is not UTF-8', '0a01ff'],
  ['a length beyond the end', '0a0561'],
] as const)
  test(`refuses ${name}`, () => assert.throws(() => codec.decode(Buffer.from(hex, 'hex'))));

test('refuses a message that is nested 10,000 times, without exhausting the stack', () => {
  let nested = Buffer.alloc(0);
  for (let depth = 0; depth < 10_000; depth += 1)
    nested = Buffer.concat([Buffer.from([0x92, 1]), lengthOf(nested), nested]);
  assert.throws(() => codec.decode(nested), /nested too deep/);
});

test('refuses megabytes of empty objects, which take a hundred times their bytes in memory', () => {
  const lists = buildCodecs({ List: { items: '1 Item[]' }, Item: { name: '1 string', labels: '2 map' } })('List');
  const empty = (count: number): Buffer => Buffer.alloc(2 * count, Buffer.from([10, 0]));
  assert.equal((lists.decode(empty(100_000)) as { readonly items: unknown[] }).items.length, 100_000);
  assert.throws(() => lists.decode(empty(2_000_000)), /exceeded the limit of 150000 values/);
});

function lengthOf({ length }: Buffer): Buffer {
  const bytes: number[] = [];
  let rest = length;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}

test('decimals keep all 64 bits, as text', () => {
  const members = buildCodecs({ Member: { id: '1 decimal', others: '2 Member[]' } })('Member');
  const member = { id: '18446744073709551615', others: [{ id: '9007199254740993', others: [] }] };
  const bytes = members.encode(member);
  assert.equal(bytes.subarray(0, 11).toString('hex'), '08ffffffffffffffffff01');
  assert.deepEqual(members.decode(bytes), member);
  assert.deepEqual(members.decode(Buffer.alloc(0)), { id: '0', others: [] });
});
