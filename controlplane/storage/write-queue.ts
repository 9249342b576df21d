/**
 * Writes of the revision log that wait for their commit, in order, and which keys have one under way. Writes that stand or
 * fall together stay in one group.
 */
import type { StorageError, StoredValue } from './storage.ts';

/** Checked: `previous` is what is there. */
export interface RequestedWrite {
  readonly key: string;
  readonly value: Buffer | undefined;
  readonly previous: StoredValue | undefined;
  readonly expiresAtMs: number | undefined;
}

export interface PendingWrite extends RequestedWrite {
  /** How many of the writes that follow in the queue stand or fall with this one. */
  readonly alongside: number;
  resolve(revision: number): void;
  reject(error: StorageError): void;
}

const COMMIT_RECORDS = 2000;
/** With the write-ahead log between two checkpoints, less than what is held back on the disk. */
const COMMIT_BYTES = 4 * 1024 * 1024;

export class WriteQueue {
  #waiting: PendingWrite[] = [];
  /** Of each key with a write under way: settles with it. */
  readonly #underWay = new Map<string, Promise<void>>();

  get length(): number {
    return this.#waiting.length;
  }

  /** Resolves to the revision of `write`; `sides` have its outcome. */
  add(write: RequestedWrite, sides: readonly RequestedWrite[]): Promise<number> {
    const written = this.#enqueue(write, sides.length);
    // A failure is the outcome of `write`, which all of them share.
    for (const side of sides) this.#enqueue(side, 0).catch(() => undefined);
    return written;
  }

  #enqueue(write: RequestedWrite, alongside: number): Promise<number> {
    const written = new Promise<number>((resolve, reject) => {
      this.#waiting.push({ ...write, alongside, resolve, reject });
    });
    const settle = (): void => undefined;
    this.#underWay.set(write.key, written.then(settle, settle));
    return written;
  }

  /** Settles with the write of one of the keys that is under way. */
  pendingOf(keys: readonly string[]): Promise<void> | undefined {
    for (const key of keys) {
      const pending = this.#underWay.get(key);
      if (pending !== undefined) return pending;
    }
    return undefined;
  }

  settled(key: string): void {
    this.#underWay.delete(key);
  }

  /** The next writes for one commit. */
  takeGroup(): PendingWrite[] {
    let bytes = 0;
    let taken = 0;
    while (taken < this.#waiting.length) {
      const joined = 1 + (this.#waiting[taken]?.alongside ?? 0);
      for (let at = taken; at < taken + joined; at++) bytes += this.#waiting[at]?.value?.length ?? 0;
      if (taken >= COMMIT_RECORDS || (taken > 0 && bytes > COMMIT_BYTES)) break;
      taken += joined;
    }
    return this.#waiting.splice(0, taken);
  }
}
