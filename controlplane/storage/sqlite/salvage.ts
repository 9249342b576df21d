/**
 * Reads a damaged database for `orchlet doctor --data`. It finds every row whose checksum matches, on whatever page it is, and
 * lists the damage. It opens the files read-only and without SQLite, which would write to them.
 *
 * The pages count as they were after the last complete transaction. Pages that SQLite has freed are skipped if the list of free
 * pages can be read, because they contain deleted rows. Rows that follow a damaged frame of the write-ahead log count if they
 * are newer than all others.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { RecordColumns } from '../stored-log.ts';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { openDatabase } from './database.ts';
import { childrenOf, headerAt, leafRows, marksIn, PAGE_TYPES, rootOfLog, type SalvagedRow } from './salvage-rows.ts';
import { readFrames, readLog } from './write-ahead-log.ts';
import { PAGE_BYTES } from './database-format.ts';

const MAGIC = 'SQLite format 3\0';
const HEADER = { pageBytes: 16, pages: 28, freeTrunk: 32, freePages: 36 } as const;
const APPEND_BYTES = 2 << 20;
/** The maximum number of lines for one kind of damage in a report. */
const SHOWN = 20;
/** The number of pages in which the marks are searched. Their table is near the start of the file. */
const MARK_PAGES = 64;

/** What could be read, and what not. */
export interface Salvage {
  /** The rows in the order of their revisions. */
  readonly rows: readonly SalvagedRow[];
  /** The damage in sentences for the operator. The list is empty without damage. */
  readonly damage: readonly string[];
  readonly lastRevision: number;
}

/** Reads the database. Throws if the file cannot be opened. */
export function salvage(file: string): Salvage {
  const descriptor = openSync(file, 'r');
  try {
    return new Scan(descriptor, fstatSync(descriptor).size, readLog(`${file}-wal`) ?? Buffer.alloc(0)).run();
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a new database with these rows. Its history begins after the last of them. */
export function writeSalvaged(file: string, { rows, lastRevision }: Salvage): void {
  const database = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
  try {
    let from = 0;
    while (from < rows.length) {
      let to = from;
      for (let bytes = 0; to < rows.length && bytes < APPEND_BYTES; to += 1) bytes += rows[to]?.value?.length ?? 0;
      database.append(columnsOf(rows.slice(from, to)));
      from = to;
    }
    database.remove({ compactedRevision: lastRevision, lastRevision, lastCompaction: undefined }, []);
  } finally {
    database.close();
  }
}

function columnsOf(rows: readonly SalvagedRow[]): RecordColumns {
  const values = Buffer.concat(rows.map(({ value }) => value ?? Buffer.alloc(0)));
  return {
    revisions: rows.map(({ revision }) => revision),
    keys: rows.map(({ key }) => key),
    createRevisions: rows.map(({ created }) => created),
    expiries: rows.map(({ expires }) => expires),
    lengths: rows.map(({ value }) => value?.length ?? -1),
    values: values.buffer.slice(values.byteOffset, values.byteOffset + values.byteLength) as ArrayBuffer,
  };
}

class Scan {
  readonly #descriptor: number;
  readonly #sizeBytes: number;
  readonly #log: ReturnType<typeof readFrames>;
  readonly #logPages = new Map<number, Buffer>();
  readonly #rows = new Map<number, SalvagedRow>();
  readonly #damage: string[] = [];
  readonly #badPages = new Set<number>();
  readonly #lost: string[] = [];

  constructor(descriptor: number, sizeBytes: number, log: Buffer) {
    this.#descriptor = descriptor;
    this.#sizeBytes = sizeBytes;
    this.#log = readFrames(log, PAGE_BYTES);
    for (const { page, image } of this.#log.whole) this.#logPages.set(page, image);
  }

  run(): Salvage {
    const first = this.#page(1);
    if (
      first === undefined ||
      first.toString('latin1', 0, MAGIC.length) !== MAGIC ||
      first.readUInt16BE(HEADER.pageBytes) !== PAGE_BYTES
    )
      this.#damage.push('the header of the file is not that of a database of orchlet');
    const inFile = Math.floor(this.#sizeBytes / PAGE_BYTES);
    const expected = first?.readUInt32BE(HEADER.pages) ?? 0;
    const missing = [...pagesBetween(inFile + 1, expected)].filter((page) => !this.#logPages.has(page)).length;
    if (missing > 0) this.#damage.push(`the file ends after ${inFile} of ${expected} pages: ${missing} are missing`);
    const free = this.#freePages(first);
    const reached = this.#walk(first);
    const pages = Math.max(inFile, ...this.#logPages.keys());
    let strays = 0;
    for (let page = 1; page <= pages; page += 1) {
      if (reached.has(page) || free.has(page)) continue;
      strays += this.#takeLeaf(page) > 0 ? 1 : 0;
    }
    if (strays > 0) this.#damage.push(`${strays} pages with rows are not connected to the rest; their rows are taken`);
    this.#takeBehindDamage();
    return this.#report(this.#marks(pages));
  }

  #page(page: number): Buffer | undefined {
    const logged = this.#logPages.get(page);
    if (logged !== undefined) return logged;
    if (page < 1 || page * PAGE_BYTES > this.#sizeBytes) return undefined;
    const buffer = Buffer.alloc(PAGE_BYTES);
    try {
      readSync(this.#descriptor, buffer, 0, PAGE_BYTES, (page - 1) * PAGE_BYTES);
    } catch (error) {
      // The disk cannot read a sector of this page.
      this.#badPages.add(page);
      this.#damage.push(`page ${page} cannot be read: ${errorMessage(error)}`);
      return undefined;
    }
    return buffer;
  }

  /** Returns the pages in the list of free pages: the trunk pages, and the leaf pages that they list. */
  #freePages(first: Buffer | undefined): ReadonlySet<number> {
    const free = new Set<number>();
    let trunk = first?.readUInt32BE(HEADER.freeTrunk) ?? 0;
    while (trunk !== 0 && !free.has(trunk)) {
      free.add(trunk);
      const page = this.#page(trunk);
      const count = page?.readUInt32BE(4) ?? PAGE_BYTES;
      if (page === undefined || count > PAGE_BYTES / 4 - 2) break;
      for (let at = 0; at < count; at += 1) free.add(page.readUInt32BE(8 + 4 * at));
      trunk = page.readUInt32BE(0);
    }
    const expected = first?.readUInt32BE(HEADER.freePages) ?? 0;
    if (free.size !== expected)
      this.#damage.push(`${free.size} of ${expected} free pages are known: objects that were deleted may come back`);
    return free;
  }

  /** Takes the rows of the table, from its root page down. Returns the visited pages. */
  #walk(first: Buffer | undefined): ReadonlySet<number> {
    const visited = new Set<number>();
    const root = first === undefined ? undefined : rootOfLog(first, (page) => this.#page(page));
    if (root === undefined) this.#damage.push('the table of records cannot be found: every page is searched');
    const next = root === undefined ? [] : [root];
    for (let number = next.pop(); number !== undefined; number = next.pop()) {
      if (visited.has(number)) continue;
      const page = this.#page(number);
      const type = page?.[headerAt(number)];
      if (page === undefined || (type !== PAGE_TYPES.interior && type !== PAGE_TYPES.leaf)) {
        this.#badPages.add(number);
        continue;
      }
      visited.add(number);
      if (type === PAGE_TYPES.leaf) this.#takeLeaf(number);
      else next.push(...childrenOf(number, page));
    }
    return visited;
  }

  /** Takes the rows of a leaf page. Returns their number. */
  #takeLeaf(number: number): number {
    const page = this.#page(number);
    if (page === undefined || page[headerAt(number)] !== PAGE_TYPES.leaf) return 0;
    const { rows, lost } = leafRows(number, page, (other) => this.#page(other));
    for (const row of rows) this.#rows.set(row.revision, row);
    this.#lost.push(...lost);
    return rows.length;
  }

  #takeBehindDamage(): void {
    const { behindDamage } = this.#log;
    if (behindDamage.length === 0) return;
    const newest = this.#newest();
    for (const { page, image } of behindDamage) this.#logPages.set(page, image);
    let taken = 0;
    for (const { page, image } of behindDamage) {
      if (image[headerAt(page)] !== PAGE_TYPES.leaf) continue;
      for (const row of leafRows(page, image, (other) => this.#page(other)).rows) {
        if (row.revision <= newest) continue;
        if (!this.#rows.has(row.revision)) taken += 1;
        this.#rows.set(row.revision, row);
      }
    }
    this.#damage.push(`the write-ahead log is damaged; ${taken} writes behind the damage are taken`);
  }

  #marks(pages: number): ReadonlyMap<string, number> {
    for (let page = 1; page <= Math.min(pages, MARK_PAGES); page += 1) {
      const content = this.#page(page);
      const marks = content?.[0] === PAGE_TYPES.indexLeaf ? marksIn(content, (other) => this.#page(other)) : undefined;
      if (marks?.has('compacted') === true) return marks;
    }
    this.#damage.push('the mark of the compacted history cannot be read');
    return new Map();
  }

  #newest(): number {
    let newest = 0;
    for (const revision of this.#rows.keys()) newest = Math.max(newest, revision);
    return newest;
  }

  #report(marks: ReadonlyMap<string, number>): Salvage {
    const rows = [...this.#rows.values()].sort((left, right) => left.revision - right.revision);
    const lastRevision = Math.max(this.#newest(), marks.get('last') ?? 0);
    if (this.#badPages.size > 0)
      this.#damage.push(`pages that cannot be read: ${shown([...this.#badPages].map(String))}`);
    if (this.#lost.length > 0)
      this.#damage.push(`rows that cannot be read: ${this.#lost.length}, of ${shown([...new Set(this.#lost)])}`);
    const compacted = marks.get('compacted');
    if (compacted !== undefined) {
      const from = Math.max(compacted, 2);
      const present = rows.filter(({ revision }) => revision > from).length;
      const missing = lastRevision - from - present;
      if (missing > 0)
        this.#damage.push(
          `${missing} of the last ${lastRevision - from} writes are missing: their objects may be older than they were, or come back although they were deleted`,
        );
    }
    return { rows, damage: this.#damage, lastRevision };
  }
}

function* pagesBetween(from: number, to: number): Generator<number, void, undefined> {
  // A damaged header may contain any number, so the range is limited.
  for (let page = from; page <= Math.min(to, from + (1 << 22)); page += 1) yield page;
}

function shown(items: readonly string[]): string {
  const more = items.length - SHOWN;
  return `${items.slice(0, SHOWN).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
