/**
 * Decodes the rows in the pages of a damaged database without SQLite, which stops at the first error. A row counts only if its
 * checksum matches. The format is SQLite's (https://www.sqlite.org/fileformat2.html#b_tree_pages).
 */
import { checksumOf } from './row-checksum.ts';
import { PAGE_BYTES } from './database-format.ts';

/**
 * A row with more than `MAX_LOCAL` bytes has between `MIN_LOCAL` and `MAX_LOCAL` of them in its page, and the others in
 * overflow pages.
 */
const MAX_LOCAL = PAGE_BYTES - 35;
const MIN_LOCAL = Math.floor(((PAGE_BYTES - 12) * 32) / 255) - 23;
const OVERFLOW_BYTES = PAGE_BYTES - 4;
/** The largest length of a row. It is far larger than any object, so a larger length is damage. */
const MAX_PAYLOAD = 64 << 20;
const FILE_HEADER_BYTES = 100;

/** The first byte of a page of a b-tree. */
export const PAGE_TYPES = { interior: 0x05, leaf: 0x0d, indexLeaf: 0x0a } as const;

type PageReader = (page: number) => Buffer | undefined;

/** A row whose checksum matched. `value` is null for a deletion, `expires` is in milliseconds. */
export interface SalvagedRow {
  readonly revision: number;
  readonly key: string;
  readonly value: Buffer | null;
  readonly created: number;
  readonly expires: number;
}

interface LeafRows {
  readonly rows: readonly SalvagedRow[];
  /** The keys of the rows that are damaged, or `?` for a key that cannot be read. */
  readonly lost: readonly string[];
}

type Column = number | string | Buffer | null;

/** Returns the offset of the page's header. The first page begins with the header of the file. */
export const headerAt = (page: number): number => (page === 1 ? FILE_HEADER_BYTES : 0);

/**
 * Returns the rows of the log in a leaf page. A row is lost if its checksum does not match, or if its revision is not above
 * that of the row before. Rows of other tables are skipped, and do not count as lost unless they cannot be decoded.
 */
export function leafRows(number: number, page: Buffer, read: PageReader): LeafRows {
  const rows: SalvagedRow[] = [];
  const lost: string[] = [];
  let last = 0;
  for (const at of cellsOf(page, headerAt(number), 8)) {
    const cell = cellAt(page, at, read);
    const row = cell === undefined ? undefined : rowOf(cell.rowid, cell.columns);
    if (row !== undefined && row.isWhole && row.value.revision > last) {
      rows.push(row.value);
      last = row.value.revision;
    } else if (row !== undefined) lost.push(row.value.key);
    else if (cell === undefined || cell.columns.length === 6) lost.push('?');
  }
  return { rows, lost };
}

function rowOf(
  revision: number,
  columns: readonly Column[],
): { readonly value: SalvagedRow; readonly isWhole: boolean } | undefined {
  const [rowidColumn, key, value, created, expires, checksum, ...more] = columns;
  if (rowidColumn !== null || typeof key !== 'string' || more.length > 0) return undefined;
  if (typeof created !== 'number' || typeof expires !== 'number') return undefined;
  if (value !== null && !Buffer.isBuffer(value)) return undefined;
  return { value: { revision, key, value, created, expires }, isWhole: checksum === checksumOf(key, value) };
}

/** Returns the root page of the table `log`, which the schema on the first page names. */
export function rootOfLog(page: Buffer, read: PageReader): number | undefined {
  for (const at of cellsOf(page, headerAt(1), 8)) {
    const [, name, , root] = cellAt(page, at, read)?.columns ?? [];
    if (name === 'log' && typeof root === 'number') return root;
  }
  return undefined;
}

/** Returns the marks (`compacted`, `last`) in a leaf page of an index. */
export function marksIn(page: Buffer, read: PageReader): ReadonlyMap<string, number> {
  const marks = new Map<string, number>();
  for (const at of cellsOf(page, 0, 8)) {
    const length = varint(page, at);
    const columns = length === undefined ? undefined : recordOf(payloadAt(page, length.next, length.value, read));
    const [name, revision] = columns ?? [];
    if (typeof name === 'string' && typeof revision === 'number') marks.set(name, revision);
  }
  return marks;
}

/** Returns the pages below an interior page. */
export function childrenOf(number: number, page: Buffer): readonly number[] {
  const header = headerAt(number);
  const children = cellsOf(page, header, 12).flatMap((at) => (at + 4 <= PAGE_BYTES ? [page.readUInt32BE(at)] : []));
  return [...children, page.readUInt32BE(header + 8)];
}

/** Returns the offsets of the cells. Offsets beyond the page are damage and are left out. */
function cellsOf(page: Buffer, header: number, headerBytes: number): readonly number[] {
  const count = page.readUInt16BE(header + 3);
  const found: number[] = [];
  for (let at = 0; at < count; at += 1) {
    const pointer = header + headerBytes + 2 * at;
    if (pointer + 2 > PAGE_BYTES) break;
    const cell = page.readUInt16BE(pointer);
    if (cell > pointer && cell < PAGE_BYTES) found.push(cell);
  }
  return found;
}

function cellAt(
  page: Buffer,
  at: number,
  read: PageReader,
): { readonly rowid: number; readonly columns: readonly Column[] } | undefined {
  const length = varint(page, at);
  const rowid = length === undefined ? undefined : varint(page, length.next);
  if (length === undefined || rowid === undefined) return undefined;
  const columns = recordOf(payloadAt(page, rowid.next, length.value, read));
  return columns === undefined ? undefined : { rowid: rowid.value, columns };
}

/** Returns the payload of a cell with its overflow pages, or `undefined` if a part is missing. */
function payloadAt(page: Buffer, at: number, length: number, read: PageReader): Buffer | undefined {
  if (length > MAX_PAYLOAD) return undefined;
  if (length <= MAX_LOCAL) return at + length <= PAGE_BYTES ? page.subarray(at, at + length) : undefined;
  const surplus = MIN_LOCAL + ((length - MIN_LOCAL) % OVERFLOW_BYTES);
  const local = surplus <= MAX_LOCAL ? surplus : MIN_LOCAL;
  if (at + local + 4 > PAGE_BYTES) return undefined;
  const parts = [page.subarray(at, at + local)];
  let next = page.readUInt32BE(at + local);
  // Each iteration takes the bytes of one page, so that the loop terminates even if the chain has a circle.
  for (let left = length - local; left > 0; left -= OVERFLOW_BYTES) {
    const overflow = read(next);
    if (overflow === undefined) return undefined;
    parts.push(overflow.subarray(4, 4 + Math.min(left, OVERFLOW_BYTES)));
    next = overflow.readUInt32BE(0);
  }
  return Buffer.concat(parts);
}

function recordOf(payload: Buffer | undefined): readonly Column[] | undefined {
  const header = payload === undefined ? undefined : varint(payload, 0);
  if (payload === undefined || header === undefined || header.value > payload.length) return undefined;
  const columns: Column[] = [];
  let body = header.value;
  for (let at = header.next; at < header.value;) {
    const type = varint(payload, at);
    if (type === undefined || columns.length > 16) return undefined;
    at = type.next;
    const size = sizeOf(type.value);
    if (size === undefined || body + size > payload.length) return undefined;
    columns.push(columnOf(type.value, payload.subarray(body, body + size)));
    body += size;
  }
  return columns;
}

const INTEGER_BYTES = [0, 1, 2, 3, 4, 6, 8] as const;

function sizeOf(type: number): number | undefined {
  if (type >= 12) return Math.floor((type - 12) / 2);
  if (type === 7) return 8;
  if (type === 8 || type === 9) return 0;
  return INTEGER_BYTES[type];
}

function columnOf(type: number, bytes: Buffer): Column {
  if (type === 0) return null;
  if (type === 7) return bytes.readDoubleBE(0);
  if (type === 8 || type === 9) return type - 8;
  if (type >= 12) return type % 2 === 0 ? bytes : bytes.toString('utf8');
  return bytes.length === 8 ? Number(bytes.readBigInt64BE(0)) : bytes.readIntBE(0, bytes.length);
}

/**
 * Decodes a varint: seven bits in each byte, the highest first, and eight bits in the ninth byte. Returns `undefined` if it
 * exceeds the buffer or 2^53.
 */
function varint(bytes: Buffer, start: number): { readonly value: number; readonly next: number } | undefined {
  let value = 0;
  for (let at = start; at < start + 9; at += 1) {
    const byte = bytes[at];
    if (byte === undefined) return undefined;
    value = at === start + 8 ? value * 256 + byte : value * 128 + (byte & 0x7f);
    if (!Number.isSafeInteger(value)) return undefined;
    if (byte < 0x80 || at === start + 8) return { value, next: at + 1 };
  }
  return undefined;
}
