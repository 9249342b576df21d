/**
 * Implements XSalsa20-Poly1305 (NaCl's secretbox), which node:crypto does not have. The key has 32 bytes, the nonce has
 * 24, and the tag precedes the ciphertext. Sources: Bernstein, "Extending the Salsa20 nonce"; RFC 8439 for Poly1305. It
 * is meant for small values and not optimized for speed.
 */
import { timingSafeEqual } from 'node:crypto';

/** The size of a nonce. A nonce must never be used twice with the same key; 24 random bytes suffice for that. */
export const NONCE_BYTES = 24;
const TAG_BYTES = 16;
const SIGMA = Uint32Array.from([0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]);

/** Returns the tag, followed by the ciphertext. */
export function sealBox(key: Buffer, nonce: Buffer, text: Buffer): Buffer {
  const { stream, macKey } = streamFor(key, nonce, text.length);
  const out = Buffer.alloc(TAG_BYTES + text.length);
  for (const [i, byte] of text.entries()) out[TAG_BYTES + i] = byte ^ (stream[i] ?? 0);
  poly1305(macKey, out.subarray(TAG_BYTES)).copy(out);
  return out;
}

/** Returns `undefined` if the box was not encrypted with this key. */
export function openBox(key: Buffer, nonce: Buffer, box: Buffer): Buffer | undefined {
  if (box.length < TAG_BYTES) return undefined;
  const text = box.subarray(TAG_BYTES);
  const { stream, macKey } = streamFor(key, nonce, text.length);
  if (!timingSafeEqual(poly1305(macKey, text), box.subarray(0, TAG_BYTES))) return undefined;
  const out = Buffer.alloc(text.length);
  for (const [i, byte] of text.entries()) out[i] = byte ^ (stream[i] ?? 0);
  return out;
}

/**
 * Returns the key stream for a message of `length` bytes, and the authentication key, which is the first 32 bytes of the
 * stream.
 */
function streamFor(key: Buffer, nonce: Buffer, length: number): { readonly stream: Buffer; readonly macKey: Buffer } {
  const subKey = hsalsa20(words(key), words(nonce.subarray(0, 16)));
  const tail = words(nonce.subarray(16, 24));
  const bytes = Buffer.alloc(Math.ceil((32 + length) / 64) * 64);
  for (let block = 0; block * 64 < bytes.length; block++) {
    const counter = Uint32Array.from([tail[0] ?? 0, tail[1] ?? 0, block >>> 0, 0]);
    const state = salsaState(subKey, counter);
    const mixed = rounds(state);
    for (let i = 0; i < 16; i++) bytes.writeUInt32LE(((mixed[i] ?? 0) + (state[i] ?? 0)) >>> 0, block * 64 + i * 4);
  }
  return { stream: bytes.subarray(32), macKey: bytes.subarray(0, 32) };
}

const words = (bytes: Buffer): Uint32Array =>
  Uint32Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readUInt32LE(i * 4));

/**
 * Returns the initial state of Salsa20: the constants are on the diagonal, and the two halves of the key surround the input.
 */
function salsaState(key: Uint32Array, input: Uint32Array): Uint32Array {
  const [s0 = 0, s1 = 0, s2 = 0, s3 = 0] = SIGMA;
  return Uint32Array.from([s0, ...key.subarray(0, 4), s1, ...input, s2, ...key.subarray(4, 8), s3]);
}

function hsalsa20(key: Uint32Array, input: Uint32Array): Uint32Array {
  const mixed = rounds(salsaState(key, input));
  return Uint32Array.from([0, 5, 10, 15, 6, 7, 8, 9], (i) => mixed[i] ?? 0);
}

/** The columns of the 4×4 state, then its rows. */
const QUARTERS: readonly (readonly [number, number, number, number])[] = [
  [0, 4, 8, 12],
  [5, 9, 13, 1],
  [10, 14, 2, 6],
  [15, 3, 7, 11],
  [0, 1, 2, 3],
  [5, 6, 7, 4],
  [10, 11, 8, 9],
  [15, 12, 13, 14],
];

function rounds(state: Uint32Array): Uint32Array {
  const x = Uint32Array.from(state);
  const mix = (to: number, a: number, b: number, bits: number): void => {
    const sum = ((x[a] ?? 0) + (x[b] ?? 0)) >>> 0;
    x[to] = (x[to] ?? 0) ^ ((sum << bits) | (sum >>> (32 - bits)));
  };
  for (let double = 0; double < 10; double++) {
    for (const [a, b, c, d] of QUARTERS) {
      mix(b, a, d, 7);
      mix(c, b, a, 9);
      mix(d, c, b, 13);
      mix(a, d, c, 18);
    }
  }
  return x;
}

const PRIME = (1n << 130n) - 5n;
const CLAMP = 0x0ffffffc0ffffffc0ffffffc0fffffffn;

function poly1305(key: Buffer, text: Buffer): Buffer {
  const r = littleEndian(key.subarray(0, 16)) & CLAMP;
  let sum = 0n;
  for (let at = 0; at < text.length; at += 16) {
    const block = text.subarray(at, at + 16);
    sum = ((sum + littleEndian(block) + (1n << BigInt(8 * block.length))) * r) % PRIME;
  }
  const tag = BigInt.asUintN(128, sum + littleEndian(key.subarray(16, 32)));
  return Buffer.from(tag.toString(16).padStart(32, '0'), 'hex').reverse();
}

const littleEndian = (bytes: Buffer): bigint =>
  bytes.length === 0 ? 0n : BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);
