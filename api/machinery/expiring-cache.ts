/**
 * Keeps values for a time, within a number of entries and of bytes: others choose the size of what is kept, such as the groups
 * of a user that a webhook returns. The oldest entries are dropped first.
 */
import type { Clock } from './clock.ts';

interface ExpiringCacheOptions {
  readonly clock: Clock;
  /** The maximum number of entries. */
  readonly most: number;
  /** The maximum of all keys and values together. A value that takes more than a sixteenth of it is not kept. */
  readonly maxBytes?: number;
}

interface Entry<T> {
  readonly value: T;
  readonly untilMs: number;
  readonly bytes: number;
}

const MAX_BYTES = 32 * 1024 * 1024;
/** One value may take the maximum of all values divided by this. */
const SHARE = 16;
/** What an object, a list or a member takes beside its texts. */
const OVERHEAD_BYTES = 64;

/** The values are plain data. Those that no longer change may be shared with other holders. */
export class ExpiringCache<T> {
  readonly #entries = new Map<string, Entry<T>>();
  readonly #most: number;
  readonly #maxBytes: number;
  readonly #clock: Clock;
  #bytes = 0;

  constructor({ clock, most, maxBytes = MAX_BYTES }: ExpiringCacheOptions) {
    this.#clock = clock;
    this.#most = most;
    this.#maxBytes = maxBytes;
  }

  /**
   * Returns the value in an object, because a value may be `undefined` itself. Returns `undefined` if the key has no value, or
   * if the time of its value is over.
   */
  get(key: string, nowMs = this.#clock.monotonic()): { readonly value: T } | undefined {
    const found = this.#entries.get(key);
    if (found === undefined) return undefined;
    if (found.untilMs > nowMs) return found;
    this.#delete(key, found);
    return undefined;
  }

  /**
   * Keeps a value for `ttlMs`, in place of the one that the key has, and drops the oldest entries to make room. The key has no
   * value afterwards if `ttlMs` is not positive or the value is too large.
   */
  set(key: string, value: T, ttlMs: number): void {
    const previous = this.#entries.get(key);
    if (previous !== undefined) this.#delete(key, previous);
    if (ttlMs <= 0) return;
    const bytes = OVERHEAD_BYTES + key.length + bytesOf(value);
    if (bytes > this.#maxBytes / SHARE) return;
    for (const [oldest, entry] of this.#entries) {
      if (this.#entries.size < this.#most && this.#bytes + bytes <= this.#maxBytes) break;
      this.#delete(oldest, entry);
    }
    this.#entries.set(key, { value, untilMs: this.#clock.monotonic() + ttlMs, bytes });
    this.#bytes += bytes;
  }

  get size(): number {
    return this.#entries.size;
  }

  clear(): void {
    this.#entries.clear();
    this.#bytes = 0;
  }

  #delete(key: string, { bytes }: Entry<T>): void {
    this.#entries.delete(key);
    this.#bytes -= bytes;
  }
}

/** Returns an estimate of the memory that plain data takes. */
function bytesOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let bytes = OVERHEAD_BYTES;
  for (const [name, member] of Object.entries(value)) bytes += OVERHEAD_BYTES + name.length + bytesOf(member);
  return bytes;
}
