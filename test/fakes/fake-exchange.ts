/** Provides the exchange of a GET without a response, for parts that only pass requests on. */
import type { Exchange } from '../../controlplane/server/exchange.ts';

/** Returns an exchange without a body, whose response goes nowhere. */
export function fakeExchange(): Exchange {
  return {
    method: 'GET',
    target: '/',
    headers: {},
    protocol: 'HTTP/2.0',
    connection: { remoteAddress: '127.0.0.1', peerCertificate: undefined },
    hasBody: false,
    canUpgrade: false,
    answered: false,
    closed: false,
    isTaken: true,
    readBody: () => Promise.resolve(Buffer.alloc(0)),
    async *bodyStream() {
      // A GET has no body.
    },
    send: () => undefined,
    start: () => undefined,
    write: () => true,
    end: () => undefined,
    onDrain: () => undefined,
    onClose: () => undefined,
    abort: () => undefined,
    takeUpgrade: () => undefined,
  };
}
