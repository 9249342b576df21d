/**
 * Limits the memory of headers that have begun and not ended, for all connections of HTTP/1.1 together: they arrive before
 * authentication, one may have a megabyte, and thousands of connections may send one. Beyond the budget, the connections with
 * the longest headers are closed.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Logger } from '../component/logger.ts';
import type { Clock } from '../machinery/clock.ts';

const BUDGET_BYTES = 64 * 1024 * 1024;
const CHECK_MS = 250;

interface HeaderConnection {
  readonly bytesRead: number;
  readonly remoteAddress?: string | undefined;
  destroy(): unknown;
  once(event: 'close', listener: () => void): unknown;
}

interface ReceivedRequest {
  readonly socket: HeaderConnection;
  readonly headers: IncomingHttpHeaders;
  once(event: 'close', listener: () => void): unknown;
}

interface IncompleteHeadersOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly maxHeaderBytes: number;
  readonly budgetBytes?: number | undefined;
}

/** The headers that a process receives at one port or several. */
export class IncompleteHeaders {
  readonly #options: IncompleteHeadersOptions;
  readonly #budgetBytes: number;
  /** The bytes that were read of each connection before the header that it may be sending. */
  readonly #readBefore = new Map<HeaderConnection, number>();
  #isWaiting = false;

  constructor(options: IncompleteHeadersOptions) {
    this.#options = options;
    this.#budgetBytes = options.budgetBytes ?? BUDGET_BYTES;
  }

  /** Counts the headers of the connection, until it is closed or `remove` is called. */
  add(connection: HeaderConnection): void {
    this.#readBefore.set(connection, 0);
    connection.once('close', () => this.remove(connection));
    this.#wait();
  }

  /** Called when the connection sends no more requests: it is closed or upgraded. */
  remove(connection: HeaderConnection): void {
    this.#readBefore.delete(connection);
  }

  /** Called when a header is complete. What follows is the body, until `ended` is called. */
  complete(connection: HeaderConnection): void {
    if (this.#readBefore.has(connection)) this.#readBefore.set(connection, Number.POSITIVE_INFINITY);
  }

  /** Called when the body has ended, or if there is none. */
  ended(connection: HeaderConnection): void {
    if (this.#readBefore.has(connection)) this.#readBefore.set(connection, connection.bytesRead);
  }

  /** Called when the header of a request is complete. Further requests may follow on its connection. */
  received(request: ReceivedRequest): void {
    const { socket } = request;
    if (hasBody(request)) {
      this.complete(socket);
      request.once('close', () => this.ended(socket));
    } else this.ended(socket);
  }

  /** Checks the headers after a while. Few connections cannot use up the budget, and are not checked. */
  #wait(): void {
    const { clock, maxHeaderBytes } = this.#options;
    if (this.#isWaiting || this.#readBefore.size * maxHeaderBytes <= this.#budgetBytes) return;
    this.#isWaiting = true;
    clock.after(CHECK_MS, () => {
      this.#isWaiting = false;
      this.#check();
      this.#wait();
    });
  }

  #check(): void {
    const pending: { readonly connection: HeaderConnection; readonly bytes: number }[] = [];
    let sum = 0;
    for (const [connection, before] of this.#readBefore) {
      const bytes = connection.bytesRead - before;
      if (bytes <= 0) continue;
      pending.push({ connection, bytes });
      sum += bytes;
    }
    if (sum <= this.#budgetBytes) return;
    pending.sort((a, b) => b.bytes - a.bytes);
    let closed = 0;
    for (const { connection, bytes } of pending) {
      if (sum <= this.#budgetBytes) break;
      sum -= bytes;
      closed += 1;
      connection.destroy();
    }
    const client = pending[0]?.connection.remoteAddress;
    this.#options.logger.warn({ client, closed }, 'Closing connections whose headers do not end');
  }
}

/** Whether a body follows the header. */
export function hasBody({ headers }: { readonly headers: IncomingHttpHeaders }): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}
