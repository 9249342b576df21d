/**
 * Generates the id of each request: a random UUID (RFC 9562, version 4). `crypto.randomUUID` joins its text from twenty
 * strings, all of which V8 keeps as long as the headers of the response. Here the text is one string.
 */
import { randomFillSync } from 'node:crypto';

const ID_BYTES = 16;
const HYPHEN = 0x2d;
const DIGITS = Buffer.from('0123456789abcdef');
/** Random bytes for the next ids. */
const random = Buffer.alloc(ID_BYTES * 256);
const text = Buffer.alloc(36);
let used = random.length;

/** Returns a new id. Random bytes are drawn for many ids at a time. */
export function newAuditId(): string {
  if (used === random.length) {
    randomFillSync(random);
    used = 0;
  }
  random[used + 6] = ((random[used + 6] ?? 0) & 0x0f) | 0x40;
  random[used + 8] = ((random[used + 8] ?? 0) & 0x3f) | 0x80;
  let to = 0;
  for (let at = 0; at < ID_BYTES; at += 1) {
    if (at === 4 || at === 6 || at === 8 || at === 10) text[to++] = HYPHEN;
    const byte = random[used + at] ?? 0;
    text[to++] = DIGITS[byte >> 4] ?? 0;
    text[to++] = DIGITS[byte & 0x0f] ?? 0;
  }
  used += ID_BYTES;
  return text.toString('latin1');
}
