/**
 * Limits the connections to ports of pods that clients of this node forward. One connection of a client can open hundreds, and
 * each takes descriptors of the agent.
 */
import type { Duplex } from 'node:stream';
import { SharedSlots } from '../../../api/machinery/shared-slots.ts';

/** The maximum number of pairs of streams for each forwarded connection. A pair of which one stream is missing counts, too. */
const PAIRS_PER_CONNECTION = 2;

/** Owns the forwarded connections of all clients. Beyond the limit, the namespace with most of them loses its newest. */
export class ForwardedConnections {
  readonly #slots: SharedSlots;
  readonly #pairs: SharedSlots;

  constructor(most: number) {
    this.#slots = new SharedSlots(most);
    this.#pairs = new SharedSlots(most * PAIRS_PER_CONNECTION);
  }

  /**
   * Counts a pair of streams, each of which takes three kilobytes. Returns the function that no longer counts it; `undefined`
   * if its namespace may have no further one. `evict` must close the pair.
   */
  hold(namespace: string, evict: () => void): (() => void) | undefined {
    return this.#pairs.take(namespace, evict);
  }

  /**
   * Opens a connection with `open` and counts it until it is closed. Rejects if its namespace may have no further one, if
   * `open` rejects, and if the connection is closed before `open` resolves.
   */
  async dial(
    namespace: string,
    signal: AbortSignal,
    open: (signal: AbortSignal) => Promise<NodeJS.ReadWriteStream>,
  ): Promise<NodeJS.ReadWriteStream> {
    const ended = new AbortController();
    const free = this.#slots.take(namespace, () => ended.abort());
    if (free === undefined) throw new Error(`the node forwards ${this.#slots.most} connections, which is its limit`);
    try {
      const stream = (await open(AbortSignal.any([signal, ended.signal]))) as Duplex;
      const onEvicted = (): void => void stream.destroy();
      if (ended.signal.aborted || stream.destroyed) {
        stream.destroy();
        throw new Error('the connection was closed');
      }
      ended.signal.addEventListener('abort', onEvicted, { once: true });
      stream.once('close', free);
      return stream;
    } catch (error) {
      free();
      throw error;
    }
  }
}
