/**
 * Reads the headers of a tar archive (POSIX ustar and pax, and names of GNU tar) from an untrusted source. A header costs
 * bounded time and memory: names and pax records have 64 KiB at most, and there are 100,000 headers at most. As in Go's
 * `archive/tar`, by which container runtimes read archives, global pax records change no entry, and links have no content.
 */
const BLOCK = 512;
const MAX_HEADERS = 100_000;
/** The size limit of the pax records or the long name of an entry. */
const MAX_EXTENSION_BYTES = 64 * 1024;

type TarType = 'file' | 'link' | 'symlink' | 'character-device' | 'block-device' | 'directory' | 'fifo' | 'unknown';

/** An entry as its headers describe it. Its names and its mode are not validated. */
interface TarHeader {
  readonly name: string;
  readonly type: TarType;
  readonly linkname: string;
  readonly sizeBytes: number;
  readonly mode: number;
  /** What the caller leaves unread is skipped. */
  readonly content: AsyncIterable<Buffer>;
}

const TYPES: ReadonlyMap<string, TarType> = new Map([
  ['\0', 'file'],
  ['0', 'file'],
  ['1', 'link'],
  ['2', 'symlink'],
  ['3', 'character-device'],
  ['4', 'block-device'],
  ['5', 'directory'],
  ['6', 'fifo'],
  ['7', 'file'],
]);

/**
 * Yields the headers of an archive. Rejects with a one-line message if the archive is truncated, damaged or beyond a limit, or
 * has pax records of a sparse file. A sparse file in the format of GNU tar has the type `unknown`.
 */
export async function* tarHeaders(source: AsyncIterable<Buffer>): AsyncGenerator<TarHeader, void, undefined> {
  const bytes = new ByteReader(source);
  let extensions: Extensions = {};
  let count = 0;
  for (;;) {
    const block = await bytes.take(BLOCK);
    if (block === undefined) return;
    if (block.every((byte) => byte === 0)) continue;
    count += 1;
    if (count > MAX_HEADERS) throw new Error(`it has more than ${MAX_HEADERS} headers`);
    const header = headerOf(block);
    if (EXTENSIONS.has(header.flag)) {
      extensions = { ...extensions, ...(await extensionOf(header, bytes)) };
      continue;
    }
    const entry = entryOf(header, extensions);
    extensions = {};
    const content = new Content(bytes, entry.sizeBytes);
    yield { ...entry, content };
    await content.skip();
  }
}

/** What the headers before an entry say of it. */
interface Extensions {
  readonly path?: string;
  readonly linkpath?: string;
  readonly size?: string;
}

interface RawHeader {
  readonly name: string;
  readonly linkname: string;
  readonly flag: string;
  readonly sizeBytes: number;
  readonly mode: number;
}

function entryOf({ name, linkname, flag, sizeBytes, mode }: RawHeader, extensions: Extensions) {
  const path = extensions.path ?? name;
  const isOldDirectory = (flag === '\0' || flag === '0') && path.endsWith('/');
  const type = isOldDirectory ? 'directory' : (TYPES.get(flag) ?? 'unknown');
  const size = extensions.size === undefined ? sizeBytes : sizeOf(extensions.size);
  return {
    name: path,
    type,
    linkname: extensions.linkpath ?? linkname,
    sizeBytes: type === 'file' || type === 'unknown' ? size : 0,
    mode,
  };
}

function sizeOf(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new Error('Invalid tar header: the size is no number.');
  return Number(text);
}

const TEXT = { name: [0, 100], linkname: [157, 257], magic: [257, 263], prefix: [345, 500] } as const;
const NUMBERS = { mode: [100, 108], size: [124, 136], checksum: [148, 156] } as const;

function headerOf(block: Buffer): RawHeader {
  const { name, linkname, magic, prefix } = TEXT;
  const { mode, size, checksum } = NUMBERS;
  if (numberOf(block, checksum) !== sumOf(block))
    throw new Error('Invalid tar header: its checksum is wrong, as in a file that is no archive.');
  const kind = block.toString('latin1', ...magic);
  if (kind !== 'ustar\0' && kind !== 'ustar ') throw new Error('Invalid tar header: unknown format.');
  const folder = kind === 'ustar\0' ? textOf(block, prefix) : '';
  const sizeBytes = numberOf(block, size);
  if (!(sizeBytes >= 0)) throw new Error('Invalid tar header: the size is no number.');
  return {
    name: folder === '' ? textOf(block, name) : `${folder}/${textOf(block, name)}`,
    linkname: textOf(block, linkname),
    flag: block.toString('latin1', 156, 157),
    sizeBytes,
    mode: numberOf(block, mode),
  };
}

type Range = readonly [from: number, to: number];

function textOf(block: Buffer, [from, to]: Range): string {
  const end = block.subarray(from, to).indexOf(0);
  return block.toString('utf8', from, end < 0 ? to : from + end);
}

/** Reads octal digits, or a large number in binary form (GNU tar). Returns 0 for an empty field, and NaN for any other text. */
function numberOf(block: Buffer, [from, to]: Range): number {
  const field = block.subarray(from, to);
  const [first = 0] = field;
  if (first === 0x80) return field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0);
  const text = field.toString('latin1').replaceAll('\0', ' ').trim();
  if (text === '') return 0;
  return /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
}

/** Returns the checksum of a header, in which the bytes of the checksum field count as spaces. */
function sumOf(block: Buffer): number {
  const [from, to] = NUMBERS.checksum;
  let sum = (to - from) * 0x20;
  for (let at = 0; at < BLOCK; at += 1) if (at < from || at >= to) sum += block[at] ?? 0;
  return sum;
}

/** Types of headers that are no entries: pax records, global pax records, a long name, and a long link target. */
const EXTENSIONS: ReadonlySet<string> = new Set(['x', 'g', 'L', 'K']);

async function extensionOf({ flag, sizeBytes }: RawHeader, bytes: ByteReader): Promise<Extensions> {
  if (sizeBytes > MAX_EXTENSION_BYTES) throw new Error(`it has a header of more than ${MAX_EXTENSION_BYTES} bytes`);
  const text = await bytes.take(sizeBytes);
  if (text === undefined) throw unexpectedEnd();
  await bytes.skip(paddingOf(sizeBytes));
  if (flag === 'g') return {};
  if (flag === 'x') return paxRecords(text);
  const name = textOf(text, [0, text.length]);
  return flag === 'L' ? { path: name } : { linkpath: name };
}

const SPACE = 0x20;
const EQUALS = 0x3d;
const LINE_FEED = 0x0a;

/**
 * Parses pax records. Each is `LENGTH KEY=VALUE\n`, where the length is that of the whole record in bytes. Throws for malformed
 * records.
 */
function paxRecords(bytes: Buffer): Extensions {
  const records: { path?: string; linkpath?: string; size?: string } = {};
  for (let at = 0; at < bytes.length;) {
    const space = bytes.subarray(at, at + 10).indexOf(SPACE);
    const length = space <= 0 ? Number.NaN : Number(bytes.toString('latin1', at, at + space));
    const record = bytes.subarray(at + space + 1, at + length);
    const equals = record.indexOf(EQUALS);
    if (!Number.isInteger(length) || record.at(-1) !== LINE_FEED || equals < 0 || at + length > bytes.length)
      throw new Error('Invalid tar header: its pax records are malformed.');
    const key = record.toString('utf8', 0, equals);
    // Readers of sparse files take the name and the size of the entry from such records.
    if (key.startsWith('GNU.sparse.')) throw new Error('it has a sparse file');
    if (key === 'path' || key === 'linkpath' || key === 'size')
      records[key] = record.toString('utf8', equals + 1, record.length - 1);
    at += length;
  }
  return records;
}

const paddingOf = (sizeBytes: number): number => (BLOCK - (sizeBytes % BLOCK)) % BLOCK;

/** The bytes of a source, in pieces of any size. */
class ByteReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #unread: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** Resolves to the next bytes, `most` at most, and to `undefined` at the end. */
  async some(most: number): Promise<Buffer | undefined> {
    while (this.#unread.length === 0) {
      const next = await this.#chunks.next();
      if (next.done === true) return undefined;
      this.#unread = next.value;
    }
    const piece = this.#unread.subarray(0, most);
    this.#unread = this.#unread.subarray(piece.length);
    return piece;
  }

  /** Resolves to exactly `size` bytes, and to `undefined` if none is left. */
  async take(size: number): Promise<Buffer | undefined> {
    const pieces: Buffer[] = [];
    for (let remaining = size; remaining > 0;) {
      const piece = await this.some(remaining);
      if (piece === undefined && pieces.length === 0) return undefined;
      if (piece === undefined) throw unexpectedEnd();
      pieces.push(piece);
      remaining -= piece.length;
    }
    return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
  }

  async skip(size: number): Promise<void> {
    for (let remaining = size; remaining > 0;) {
      const piece = await this.some(remaining);
      if (piece === undefined) throw unexpectedEnd();
      remaining -= piece.length;
    }
  }
}

const unexpectedEnd = (): Error => new Error('Unexpected end of data');

/** The content of one entry, which is read once. */
class Content implements AsyncIterable<Buffer> {
  readonly #bytes: ByteReader;
  readonly #padding: number;
  #remainingBytes: number;

  constructor(bytes: ByteReader, sizeBytes: number) {
    this.#bytes = bytes;
    this.#remainingBytes = sizeBytes;
    this.#padding = paddingOf(sizeBytes);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    while (this.#remainingBytes > 0) {
      const piece = await this.#bytes.some(this.#remainingBytes);
      if (piece === undefined) throw unexpectedEnd();
      this.#remainingBytes -= piece.length;
      yield piece;
    }
  }

  /** Skips what was not read, and what fills the last block. */
  async skip(): Promise<void> {
    await this.#bytes.skip(this.#remainingBytes + this.#padding);
    this.#remainingBytes = 0;
  }
}
