/**
 * Reads from a DNS response how long it may be cached, and the positions of its TTLs, which shrink with its age (RFC 1035,
 * 2308). The response is not decoded, because it comes from another name server and may be hostile.
 */
import { MAX_LABEL_LENGTH } from '../../../api/meta/names.ts';
import { HEADER_BYTES, NO_ERROR, NO_SUCH_NAME } from './message-header.ts';

interface MessageTtls {
  /** How long the response may be cached: the shortest TTL, or that of a denial. */
  readonly seconds: number;
  /** Whether it states that the name, or records of the type, do not exist. */
  readonly isDenial: boolean;
  /** The positions of the TTLs. */
  readonly offsets: readonly number[];
}

/** The flag of truncated responses. */
const TRUNCATED = 0x0200;
/** Types of records. */
const SOA = 6;
const OPT = 41;

/**
 * Reads the lifetimes of a response and the positions at which they stand. Returns `undefined` for a response that must not be
 * cached: malformed, truncated, an error, or a denial without the SOA record that limits it.
 */
export function messageTtls(message: Buffer): MessageTtls | undefined {
  if (message.length < HEADER_BYTES) return undefined;
  const flags = message.readUInt16BE(2);
  const code = flags & 0xf;
  if ((flags & TRUNCATED) !== 0 || (code !== NO_ERROR && code !== NO_SUCH_NAME)) return undefined;
  const [questions = 0, answers = 0, authorities = 0, additionals = 0] = [4, 6, 8, 10].map((at) =>
    message.readUInt16BE(at),
  );
  let at: number | undefined = HEADER_BYTES;
  for (let left = questions; left > 0; left--) {
    at = afterName(message, at);
    if (at === undefined) return undefined;
    at += 4;
  }
  const isDenial = code === NO_SUCH_NAME || answers === 0;
  const offsets: number[] = [];
  let [least, denial] = [Infinity, Infinity];
  for (let left = answers + authorities + additionals; left > 0; left--) {
    const name = afterName(message, at);
    if (name === undefined || name + 10 > message.length) return undefined;
    const type = message.readUInt16BE(name);
    const ttl = message.readUInt32BE(name + 4);
    const end = name + 10 + message.readUInt16BE(name + 8);
    if (end > message.length) return undefined;
    if (type !== OPT) {
      offsets.push(name + 4);
      least = Math.min(least, ttl);
    }
    // The last number of a SOA record limits how long a denial may be cached.
    if (type === SOA && end - 4 >= name + 10) denial = Math.min(denial, ttl, message.readUInt32BE(end - 4));
    at = end;
  }
  const seconds = isDenial ? denial : least;
  return seconds === Infinity ? undefined : { seconds, isDenial, offsets };
}

/** Returns the position after the name, or `undefined` if the message is too short or has an invalid label. */
function afterName(message: Buffer, start: number): number | undefined {
  let at = start;
  for (;;) {
    const length = message[at];
    if (length === undefined) return undefined;
    if (length === 0) return at + 1;
    // A name is complete at a pointer to an earlier name.
    if (length >= 0xc0) return at + 2;
    if (length > MAX_LABEL_LENGTH) return undefined;
    at += 1 + length;
  }
}

/** Whether the response repeats the question of the query, in any case of letters. */
export function answersQuestion(query: Buffer, response: Buffer): boolean {
  const end = query.length < HEADER_BYTES ? undefined : afterName(query, HEADER_BYTES);
  if (end === undefined || response.length < end + 4 || query.length < end + 4) return false;
  const questionOf = (message: Buffer): string => message.toString('latin1', HEADER_BYTES, end + 4).toLowerCase();
  return response.readUInt16BE(4) === query.readUInt16BE(4) && questionOf(query) === questionOf(response);
}
