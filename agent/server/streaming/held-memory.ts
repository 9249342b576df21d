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

interface HeldConnection {
  bytes: number;
  readonly evict: () => void;
}

/** Owns the counts. Beyond the limit, the owner who holds most loses the connection that holds most. */
export class HeldMemory {
  readonly #maxBytes: number;
  readonly #owners = new Map<string, Set<HeldConnection>>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Counts a connection of an owner, such as a namespace. `evict` must end the connection. */
  open(owner: string, evict: () => void): Holder {
    const connection: HeldConnection = { bytes: 0, evict };
    const connections = this.#owners.get(owner) ?? new Set();
    this.#owners.set(owner, connections.add(connection));
    return {
      close: () => this.#close(owner, connection),
      part: () => {
        let before = 0;
        return (bytes) => {
          // A connection that was closed may still report.
          if (this.#owners.get(owner)?.has(connection) !== true) return;
          connection.bytes += bytes - before;
          this.#bytes += bytes - before;
          before = bytes;
          while (this.#bytes > this.#maxBytes) if (!this.#evictOne()) return;
        };
      },
    };
  }

  #close(owner: string, connection: HeldConnection): void {
    const connections = this.#owners.get(owner);
    if (connections?.delete(connection) !== true) return;
    this.#bytes -= connection.bytes;
    if (connections.size === 0) this.#owners.delete(owner);
  }

  #evictOne(): boolean {
    let largest:
      | { readonly owner: string; readonly bytes: number; readonly connections: ReadonlySet<HeldConnection> }
      | undefined;
    for (const [owner, connections] of this.#owners) {
      const bytes = connections.values().reduce((sum, connection) => sum + connection.bytes, 0);
      if (bytes > (largest?.bytes ?? 0)) largest = { owner, bytes, connections };
    }
    if (largest === undefined) return false;
    const connection = largest.connections.values().reduce((one, other) => (other.bytes > one.bytes ? other : one));
    this.#close(largest.owner, connection);
    connection.evict();
    return true;
  }
}
