/**
 * Encodes DNS messages: with compressed names (RFC 1035, 4.1.4), and within a limit, so that as many records as possible
 * reach clients that do not repeat a truncated query over TCP.
 */
import dnsPacket, { type Answer, type Packet } from 'dns-packet';
import { MAX_LABEL_LENGTH } from '../../../api/meta/names.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { HEADER_BYTES } from './message-header.ts';

/** The longest name of a message (RFC 1035, section 2.3.4). */
const MAX_NAME_BYTES = 255;
/** The types whose data is a name, and the members of the data of other types that are names. */
const NAMED_BY_DATA: ReadonlySet<string> = new Set(['CNAME', 'DNAME', 'NS', 'PTR']);
const NAMES_IN_DATA = [
  'target',
  'exchange',
  'mname',
  'rname',
  'mbox',
  'txt',
  'replacement',
  'nextDomain',
  'signersName',
];
/** The types whose data is a name that may be compressed: those of RFC 1035 alone (RFC 3597, section 4). */
const COMPRESSED_DATA: ReadonlySet<string> = new Set(['CNAME', 'NS', 'PTR']);
/** The bytes of a record between its name and its data: type, class, TTL and length. */
const FIXED_BYTES = 10;
/** The bytes of the data of a SRV record before the name of its target. */
const SRV_NUMBER_BYTES = 6;
/** Pointers to names have 14 bits. */
const POINTER = 0xc000;
const LAST_POSITION = 0x3fff;

/** The positions of the numbers of records in the header. */
const COUNTS = { answers: 6, authorities: 8, additionals: 10 } as const;

/**
 * Whether the name can stand in a message. The encoder writes the length of any label into one byte, in which the lengths
 * from 64 on mean something else, and ends a name at an empty label.
 */
export function isEncodable(name: string): boolean {
  // An escaped dot is part of a label.
  const plain = name.replaceAll('\\.', '-').replace(/^\.|\.$/g, '');
  if (plain === '') return true;
  const isLabel = (label: string): boolean => label !== '' && Buffer.byteLength(label) <= MAX_LABEL_LENGTH;
  return Buffer.byteLength(plain) + 2 <= MAX_NAME_BYTES && plain.split('.').every(isLabel);
}

function namesOf(record: Answer): readonly string[] {
  const data: unknown = 'data' in record ? record.data : undefined;
  if (typeof data === 'string') return NAMED_BY_DATA.has(record.type) ? [record.name, data] : [record.name];
  if (typeof data !== 'object' || data === null) return [record.name];
  const members = new Map<string, unknown>(Object.entries(data));
  return [record.name, ...NAMES_IN_DATA.map((name) => members.get(name)).filter((name) => typeof name === 'string')];
}

function assertEncodable(names: readonly string[]): void {
  const wrong = names.find((name) => !isEncodable(name));
  if (wrong !== undefined) throw new Error(`no DNS message can have the name ${quoteText(wrong)}`);
}

/** Encodes a message without records. Throws if it has a name that no message can have. */
export function encodeQuestion(message: Omit<Packet, 'answers' | 'authorities' | 'additionals'>): Buffer {
  assertEncodable((message.questions ?? []).map(({ name }) => name));
  return dnsPacket.encode(message);
}

/** Appends records to a message as long as they fit. Sections must follow each other in the order of the header. */
export class MessageWriter {
  readonly #parts: Buffer[];
  readonly #limit: number;
  #length: number;
  /** The positions of the names of the message, and of their suffixes, by their encoded bytes. */
  readonly #positions = new Map<string, number>();

  /** Starts with the header and the questions. The limit, in bytes, is for them and all records but OPT, which always fits. */
  constructor(message: Omit<Packet, 'answers' | 'authorities' | 'additionals'>, limit: number) {
    const start = encodeQuestion(message);
    this.#limit = limit;
    this.#parts = [start];
    this.#length = start.length;
    for (let at = HEADER_BYTES; at < start.length;) {
      const end = endOfName(start, at);
      this.#remember(start.subarray(at, end), at);
      at = end + 4;
    }
  }

  /** Appends the records, or none of them if they do not fit. Throws if one has a name that no message can have. */
  addAll(section: keyof typeof COUNTS, records: readonly Answer[]): boolean {
    const [parts, length] = [this.#parts.length, this.#length];
    const whole = records.every((record) => this.add(section, record));
    if (!whole) {
      const added = this.#parts.length - parts;
      this.#parts.length = parts;
      this.#length = length;
      this.#count(section, -added);
      // Names of the removed records have no positions any more.
      for (const [name, at] of this.#positions) if (at >= length) this.#positions.delete(name);
    }
    return whole;
  }

  /** Appends the record, unless it does not fit. Throws if it has a name that no message can have. */
  add(section: keyof typeof COUNTS, record: Answer): boolean {
    assertEncodable(namesOf(record));
    const encoded = dnsPacket.encode({ answers: [record] }).subarray(HEADER_BYTES);
    const nameEnd = endOfName(encoded, 0);
    const name = this.#compressed(encoded.subarray(0, nameEnd));
    const dataAt = this.#length + name.length + FIXED_BYTES;
    const fixed = Buffer.from(encoded.subarray(nameEnd, nameEnd + FIXED_BYTES));
    let data = encoded.subarray(nameEnd + FIXED_BYTES);
    if (COMPRESSED_DATA.has(record.type)) data = this.#compressed(data);
    if (record.type !== 'OPT' && dataAt + data.length > this.#limit) return false;
    if (record.type !== 'OPT') fixed.writeUInt16BE(data.length, FIXED_BYTES - 2);
    this.#parts.push(Buffer.concat([name, fixed, data]));
    this.#length = dataAt + data.length;
    this.#remember(encoded.subarray(0, nameEnd), dataAt - FIXED_BYTES - name.length, name);
    if (COMPRESSED_DATA.has(record.type)) this.#remember(encoded.subarray(nameEnd + FIXED_BYTES), dataAt, data);
    if (record.type === 'SRV') this.#remember(data.subarray(SRV_NUMBER_BYTES), dataAt + SRV_NUMBER_BYTES);
    this.#count(section, 1);
    return true;
  }

  /** Returns the whole message. `flags` are set in addition to those of the start. */
  message(flags = 0): Buffer {
    const [start = Buffer.alloc(HEADER_BYTES)] = this.#parts;
    start.writeUInt16BE(start.readUInt16BE(2) | flags, 2);
    return Buffer.concat(this.#parts);
  }

  #count(section: keyof typeof COUNTS, change: number): void {
    const [start] = this.#parts;
    const at = COUNTS[section];
    start?.writeUInt16BE(start.readUInt16BE(at) + change, at);
  }

  /** Replaces the longest suffix of the name that the message already has by a pointer to it. */
  #compressed(name: Buffer): Buffer {
    for (let at = 0; name[at] !== 0; at += 1 + (name[at] ?? 0)) {
      const position = this.#positions.get(name.toString('latin1', at));
      if (position === undefined) continue;
      const pointer = Buffer.alloc(2);
      pointer.writeUInt16BE(POINTER | position);
      return Buffer.concat([name.subarray(0, at), pointer]);
    }
    return name;
  }

  /** Stores the positions of a name and its suffixes. `written` is the form of the name in the message. */
  #remember(name: Buffer, position: number, written: Buffer = name): void {
    for (let at = 0; name[at] !== 0 && at + 2 < written.length; at += 1 + (name[at] ?? 0)) {
      const key = name.toString('latin1', at);
      if (position + at <= LAST_POSITION && !this.#positions.has(key)) this.#positions.set(key, position + at);
    }
  }
}

/** Returns the position after an encoded name without a pointer. */
function endOfName(message: Buffer, start: number): number {
  let at = start;
  while ((message[at] ?? 0) !== 0) at += 1 + (message[at] ?? 0);
  return at + 1;
}
