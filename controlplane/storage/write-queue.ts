/**
 * Queues the writes of the revision log for their commit, in order, and records the keys with a running write. The operations
 * of one transaction stay in one group.
 */
import type { StorageError } from './storage.ts';
import type { StoredValue } from './resource-versions.ts';

/** A checked write. `previous` is the current value. */
export interface RequestedWrite {
  readonly key: string;
  readonly value: Buffer | undefined;
  readonly previous: StoredValue | undefined;
  readonly expiresAtMs: number | undefined;
}

/** A write that waits for its commit, and the settlement of its promise. */
export interface PendingWrite extends RequestedWrite {
  /** The number of following writes in the queue that belong to the same transaction. */
  readonly joinedWrites: number;
  resolve(revision: number): void;
  reject(error: StorageError): void;
}

/** The number of records from which on a group takes no further transaction. */
const COMMIT_RECORDS = 2000;
/** The maximum size of a group of several transactions. */
const COMMIT_BYTES = 4 * 1024 * 1024;

/** Takes writes in any number; only commits empty it. */
export class WriteQueue {
  #waiting: PendingWrite[] = [];
  /** Keys with a running write, with a promise that settles with the write. */
  readonly #underWay = new Map<string, Promise<void>>();

  get length(): number {
    return this.#waiting.length;
  }

  /** Resolves to the revision of `write`. The `joined` writes have the same outcome. */
  add(write: RequestedWrite, joined: readonly RequestedWrite[]): Promise<number> {
    const written = this.#enqueue(write, joined.length);
    // All operations of the transaction share the outcome of `write`, so a failure is reported there.
    for (const one of joined) this.#enqueue(one, 0).catch(() => undefined);
    return written;
  }

  #enqueue(write: RequestedWrite, joinedWrites: number): Promise<number> {
    const written = new Promise<number>((resolve, reject) => {
      this.#waiting.push({ ...write, joinedWrites, resolve, reject });
    });
    const settle = (): void => undefined;
    this.#underWay.set(write.key, written.then(settle, settle));
    return written;
  }

  /** Returns the promise of a running write of one of the keys, or `undefined` if none is running. */
  pendingOf(keys: readonly string[]): Promise<void> | undefined {
    for (const key of keys) {
      const pending = this.#underWay.get(key);
      if (pending !== undefined) return pending;
    }
    return undefined;
  }

  /** Records that the write of a key is no longer running. */
  settled(key: string): void {
    this.#underWay.delete(key);
  }

  /**
   * Takes the next writes for one commit: at least one transaction, and whole transactions until a limit is reached. Returns an
   * empty list if none is waiting.
   */
  takeGroup(): PendingWrite[] {
    let bytes = 0;
    let taken = 0;
    while (taken < this.#waiting.length) {
      const joined = 1 + (this.#waiting[taken]?.joinedWrites ?? 0);
      for (let at = taken; at < taken + joined; at++) bytes += this.#waiting[at]?.value?.length ?? 0;
      if (taken >= COMMIT_RECORDS || (taken > 0 && bytes > COMMIT_BYTES)) break;
      taken += joined;
    }
    return this.#waiting.splice(0, taken);
  }
}
