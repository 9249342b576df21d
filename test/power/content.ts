/** Models the content of a file: the bytes that a power failure cannot take, and the changes since the last sync. */
import type { Random } from '../soak/random.ts';

/** The size of a sector, which a disk writes as a whole or not at all. */
const SECTOR_BYTES = 512;

type Edit = { readonly at: number; readonly data: Buffer } | { readonly size: number };

/** What a power failure leaves of the edits that were not synced: those up to one that is torn, or any of their sectors. */
export type Leaves = 'nothing' | 'all' | 'beginning' | 'sectors';

/** The content of one file. */
export class Content {
  #bytes = Buffer.alloc(0);
  #size = 0;
  /** Edits since the last sync. */
  #edits: Edit[] = [];

  /** Begins with bytes that are on the disk. */
  static of(bytes: Buffer): Content {
    const content = new Content();
    content.#apply({ at: 0, data: bytes });
    return content;
  }

  /** Adds an edit, which is lost in a power failure before the next sync. */
  edit(edit: Edit): void {
    this.#edits.push(edit);
  }

  /** Makes all edits durable. */
  sync(): void {
    for (const edit of this.#edits) this.#apply(edit);
    this.#edits = [];
  }

  /** Returns what the process reads. */
  current(): Buffer {
    return this.#with(this.#edits);
  }

  /** Returns the bytes that the disk has after a power failure. */
  afterPowerFailure(leaves: Leaves, random: Random): Buffer {
    switch (leaves) {
      case 'nothing':
        return this.#with([]);
      case 'all':
        return this.#with(this.#edits);
      case 'beginning': {
        const whole = random.between(0, this.#edits.length);
        const torn = this.#edits[whole];
        return this.#with([...this.#edits.slice(0, whole), ...(torn === undefined ? [] : firstSectors(torn, random))]);
      }
      case 'sectors':
        return this.#with(this.#edits.flatMap((edit) => someSectors(edit, random)));
    }
  }

  #with(edits: readonly Edit[]): Buffer {
    const copy = Content.of(this.#bytes.subarray(0, this.#size));
    for (const edit of edits) copy.#apply(edit);
    return copy.#bytes.subarray(0, copy.#size);
  }

  #apply(edit: Edit): void {
    const end = 'size' in edit ? edit.size : edit.at + edit.data.length;
    if (end > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(end, 2 * this.#bytes.length));
      this.#bytes.copy(larger, 0, 0, this.#size);
      this.#bytes = larger;
    }
    if ('size' in edit) {
      if (end < this.#size) this.#bytes.fill(0, end, this.#size);
      this.#size = end;
    } else {
      edit.data.copy(this.#bytes, edit.at);
      this.#size = Math.max(this.#size, end);
    }
  }
}

/** Splits a write into what falls into each sector of the file. */
function sectorsOf(edit: Edit): Edit[] {
  if ('size' in edit) return [edit];
  const parts: Edit[] = [];
  for (let from = 0; from < edit.data.length;) {
    const to = Math.min(edit.data.length, from + SECTOR_BYTES - ((edit.at + from) % SECTOR_BYTES));
    parts.push({ at: edit.at + from, data: edit.data.subarray(from, to) });
    from = to;
  }
  return parts;
}

function firstSectors(edit: Edit, random: Random): Edit[] {
  const parts = sectorsOf(edit);
  return parts.slice(0, random.between(0, parts.length));
}

/** Returns all sectors, none or about half of them: a power failure within a write, or with writes in another order. */
function someSectors(edit: Edit, random: Random): Edit[] {
  const share = random.pick([0, 0.5, 1]);
  return sectorsOf(edit).filter(() => random.next() < share);
}
