/**
 * Makes short names for contents: a 32-bit hash written in letters and digits that form no words, as pod-template hashes are.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import { quoteText } from '../../api/meta/quote.ts';

const SAFE_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/**
 * Returns the hash of a JSON value. Equal values have equal hashes, whatever the order of their members is. `collisionCount`
 * changes the hash, as with pod-template hashes.
 */
export function safeHash(value: unknown, collisionCount = 0): string {
  const text = `${canonical(value)}#${collisionCount}`;
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) {
    hash ^= text.charCodeAt(at);
    hash = Math.imul(hash, 0x01000193) >>> 0;
  }
  return safeEncode(hash);
}

/** Writes the decimal digits of the hash in the alphabet. */
export function safeEncode(hash: number): string {
  return [...String(hash)].map((digit) => SAFE_ALPHABET[digit.charCodeAt(0) % SAFE_ALPHABET.length]).join('');
}

function canonical(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null) return stringifyJson(value) ?? 'null';
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${quoteText(key)}:${canonical(member)}`).join(',')}}`;
}
