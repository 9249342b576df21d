/**
 * Limits what arrives of bodies before their requests are authenticated and authorized, which webhooks may delay, for all
 * requests of a listener together. When the limit is reached, the client address that holds most loses its newest body.
 */
import type { ClientConnection } from '../authentication/authentication.ts';
import { clientKey } from '../../api/http/connection-limit.ts';
import { Shares, type Share } from './flowcontrol/shares.ts';

const BUDGET_BYTES = 64 * 1024 * 1024;

interface Waiting {
  readonly connection: ClientConnection;
  onClose(listener: () => void): void;
}

/** The unread bodies of a listener. `budgetBytes` is for all of them together. */
export class UnreadBodies {
  readonly #intake: Shares;

  constructor(budgetBytes = BUDGET_BYTES) {
    this.#intake = new Shares(budgetBytes);
  }

  /** The bytes that all open bodies have received. */
  get bytes(): number {
    return this.#intake.amount;
  }

  /** Counts a body until the share is closed. The end of the exchange also closes it. */
  open(exchange: Waiting, refuse: () => void): Share {
    const reception = this.#intake.open(clientKey(exchange.connection.remoteAddress), refuse);
    if (!reception.isClosed) exchange.onClose(() => reception.close());
    return reception;
  }
}
