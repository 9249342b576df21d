/**
 * Limits the memory of all streaming connections together: data that containers have not read yet, and messages that have not
 * arrived completely. Each connection is bounded by some megabytes, but a client can open hundreds.
 */

/** The memory of one connection. */
interface Holder {
  readonly close: () => void;
  /** Returns a function that sets how many bytes a part of the connection holds. */
  readonly part: () => (bytes: number) => void;
}

interface Held {
  bytes: number;
  readonly evict: () => void;
}

/** Owns the counts. Beyond the limit, the owner who holds most loses the connection that holds most. */
export class HeldMemory {
  readonly #maxBytes: number;
  readonly #owners = new Map<string, Set<Held>>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Counts a connection of an owner, such as a namespace. `evict` must end the connection. */
  open(owner: string, evict: () => void): Holder {
    const held: Held = { bytes: 0, evict };
    const own = this.#owners.get(owner) ?? new Set();
    this.#owners.set(owner, own.add(held));
    return {
      close: () => this.#close(owner, held),
      part: () => {
        let before = 0;
        return (bytes) => {
          // A connection that was closed may still report.
          if (this.#owners.get(owner)?.has(held) !== true) return;
          held.bytes += bytes - before;
          this.#bytes += bytes - before;
          before = bytes;
          while (this.#bytes > this.#maxBytes) if (!this.#evictOne()) return;
        };
      },
    };
  }

  #close(owner: string, held: Held): void {
    const own = this.#owners.get(owner);
    if (own?.delete(held) !== true) return;
    this.#bytes -= held.bytes;
    if (own.size === 0) this.#owners.delete(owner);
  }

  #evictOne(): boolean {
    let largest: { readonly owner: string; readonly bytes: number; readonly own: ReadonlySet<Held> } | undefined;
    for (const [owner, own] of this.#owners) {
      const bytes = own.values().reduce((sum, held) => sum + held.bytes, 0);
      if (bytes > (largest?.bytes ?? 0)) largest = { owner, bytes, own };
    }
    if (largest === undefined) return false;
    const held = largest.own.values().reduce((one, other) => (other.bytes > one.bytes ? other : one));
    this.#close(largest.owner, held);
    held.evict();
    return true;
  }
}
