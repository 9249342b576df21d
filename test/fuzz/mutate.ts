/** Mutates bytes in ways that often break parsers. The fuzzer calls it for every new input. */
import type { Random } from './random.ts';

const MAX_BYTES = 1 << 16;

/** Texts that are difficult for decoders of any format. */
const HARD: readonly string[] = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  '\0',
  '\ufeff',
  '\ud7ff',
  '💩',
  '-',
  '0',
  '-0',
  '1e999',
  '9223372036854775807',
  '9223372036854775808',
  '-9223372036854775809',
  '18446744073709551616',
  '0.000000000000000000000000000001',
  '1'.repeat(400),
  'null',
  'true',
  '""',
  '{}',
  '[]',
  '\\u0000',
  '\\ud800',
  ' ',
  '\n',
  '\t',
  '\r\n',
  'a'.repeat(300),
  '~1',
  '~0',
  '/',
  '//',
  '..',
  '%2e',
  '*',
];

const INVALID_UTF8: readonly Buffer[] = [
  Buffer.from([0xff]),
  Buffer.from([0xc0, 0x80]),
  Buffer.from([0xed, 0xa0, 0x80]),
  Buffer.from([0xf4, 0x90, 0x80, 0x80]),
  Buffer.from([0xff, 0xff, 0xff, 0xff, 0x0f]),
  Buffer.from([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
];

export interface MutationSource {
  readonly corpus: readonly Buffer[];
  /** Words of the format. */
  readonly words: readonly string[];
}

/** Returns a mutated copy of the input, of one to six mutations. `corpus` and `words` are spliced into it. */
export function mutate(input: Buffer, { corpus, words }: MutationSource, random: Random): Buffer {
  let bytes = input;
  for (let rounds = 1 + random.below(6); rounds > 0; rounds -= 1) bytes = once(bytes, { corpus, words }, random);
  // Copies the bytes, because a slice would keep the larger buffer in memory.
  return Buffer.from(bytes.subarray(0, MAX_BYTES));
}

function once(bytes: Buffer, { corpus, words }: MutationSource, random: Random): Buffer {
  const at = random.below(bytes.length + 1);
  const end = Math.min(bytes.length, at + random.below(random.pick([2, 8, 64, 1024])));
  const splice = (middle: Uint8Array): Buffer => Buffer.concat([bytes.subarray(0, at), middle, bytes.subarray(end)]);
  const insert = (middle: Uint8Array): Buffer => Buffer.concat([bytes.subarray(0, at), middle, bytes.subarray(at)]);
  switch (random.below(11)) {
    case 0:
      return splice(Buffer.alloc(0));
    case 1: {
      if (bytes.length === 0) return bytes;
      const copy = Buffer.from(bytes);
      const index = random.below(copy.length);
      copy[index] = (copy[index] ?? 0) ^ (1 << random.below(8));
      return copy;
    }
    case 2:
      return insert(Buffer.from([random.below(256)]));
    case 3:
      return insert(Buffer.from(random.pick(HARD) ?? ''));
    case 4:
      return insert(random.pick(INVALID_UTF8) ?? bytes);
    case 5:
    case 6:
      return insert(Buffer.from(random.pick(words) ?? ''));
    case 7:
      return splice(Buffer.from(random.pick(words) ?? ''));
    case 8: {
      const part = bytes.subarray(at, end);
      return insert(Buffer.concat(Array.from({ length: 1 + random.below(random.pick([3, 30, 300])) }, () => part)));
    }
    case 9: {
      const other = random.pick(corpus) ?? bytes;
      return splice(other.subarray(random.below(other.length + 1)).subarray(0, 1 + random.below(256)));
    }
    default: {
      const other = random.pick(corpus) ?? bytes;
      return Buffer.concat([bytes.subarray(0, at), other.subarray(random.below(other.length + 1))]);
    }
  }
}
