/** A request whose target is gone before its body is. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { it } from 'node:test';
import type { Dialer } from '../../../../../api/machinery/dialer.ts';
import { requestTarget } from '../../../../../controlplane/server/connect/passed-response.ts';

it('the body is read no further once the target has closed the connection', { timeout: 20_000 }, async (t) => {
  const server = createServer((request) => request.socket.destroy());
  t.after(() => server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const goesOn = Promise.withResolvers<void>();
  const isReleased = Promise.withResolvers<void>();
  async function* body(): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield Buffer.from('first');
      // The client is slow, and the target closes meanwhile.
      await goesOn.promise;
      for (;;) yield Buffer.alloc(64 * 1024);
    } finally {
      isReleased.resolve();
    }
  }
  const sent = requestTarget({
    origin: { secure: false, host: '127.0.0.1', port },
    target: '/upload',
    method: 'POST',
    headers: [],
    tls: { rejectUnauthorized: false },
    body: body(),
    signal: new AbortController().signal,
    dialer: { request: httpRequest } as unknown as Dialer,
    purpose: 'proxy',
  });
  await assert.rejects(sent, /error trying to reach service/);
  goesOn.resolve();
  await isReleased.promise;
});
