/**
 * Limits what arrives of bodies before their requests are authenticated and authorized, which webhooks may delay, for all
 * requests of a listener together. When the limit is reached, the client address that holds most loses its newest body.
 */
import type { ClientConnection } from '../security/authentication/authentication.ts';
import { clientKey } from '../../api/http/connection-limit.ts';
import { Shares, type Share } from './shares.ts';

const BUDGET_BYTES = 64 * 1024 * 1024;

interface OpenExchange {
  readonly connection: ClientConnection;
  onClose(listener: () => void): void;
}

/** The unread bodies of a listener. `budgetBytes` is for all of them together. */
export class UnreadBodies {
  readonly #shares: Shares;

  constructor(budgetBytes = BUDGET_BYTES) {
    this.#shares = new Shares(budgetBytes);
  }

  /** The bytes that all open bodies have received. */
  get bytes(): number {
    return this.#shares.amount;
  }

  /** Counts a body until the share is closed. The end of the exchange also closes it. */
  open(exchange: OpenExchange, refuse: () => void): Share {
    const share = this.#shares.open(clientKey(exchange.connection.remoteAddress), refuse);
    if (!share.isClosed) exchange.onClose(() => share.close());
    return share;
  }
}
