/**
 * Limits the connections that requests open to agents, pods and aggregated servers, because a client can open thousands of
 * requests over a few connections of its own, and the server needs its descriptors for the storage and for other clients.
 */
import { connectionsWithin } from '../../../api/http/connection-limit.ts';
import { Shares, userOf } from '../shares.ts';
import { TooManyRequests } from '../flowcontrol/too-many-requests.ts';
import type { ApiRequest } from '../request.ts';

const CONNECTIONS = { atMost: 2000, share: 0.2 };
const RETRY_AFTER_S = 30;

/** The connections of all forwarded requests of the server. */
export class ForwardedConnections {
  readonly #shares: Shares;

  constructor(most = connectionsWithin(CONNECTIONS)) {
    this.#shares = new Shares(most, 1);
  }

  /**
   * Forwards a request by `forward`, whose end is the end of its connection. Beyond the limit, the user with most connections
   * loses the newest one: a request that has no response yet gets a 429, and another one is broken off.
   */
  async forward(request: ApiRequest, forward: () => Promise<void>): Promise<void> {
    let refusal: TooManyRequests | undefined;
    const share = this.#shares.open(userOf(request.user.name), () => {
      refusal = new TooManyRequests(RETRY_AFTER_S);
      if (request.exchange.answered) request.exchange.abort();
      request.abort(refusal);
    });
    try {
      if (refusal === undefined) await forward();
    } catch (error) {
      throw refusal ?? error;
    } finally {
      share.close();
    }
    if (refusal !== undefined && !request.exchange.answered) throw refusal;
  }
}
