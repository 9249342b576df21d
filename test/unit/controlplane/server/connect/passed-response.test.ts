/**
 * Tests requests to targets, and the bodies of their responses: targets and clients that are slow, gone, or send single bytes.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { it } from 'node:test';
import type { Dialer } from '../../../../../api/http/dialer.ts';
import { passBody, requestTarget } from '../../../../../controlplane/server/connect/passed-response.ts';
import type { Exchange } from '../../../../../controlplane/server/exchange.ts';
import { until } from '../../../../until.ts';

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

/** Returns a client that takes nothing until `drain` is called. */
function slowClient(): {
  readonly exchange: Exchange;
  readonly written: Buffer[];
  readonly drain: () => void;
  readonly ended: () => boolean;
} {
  const written: Buffer[] = [];
  let drain = (): void => undefined;
  let isEnded = false;
  const exchange = {
    write: (chunk: Buffer) => written.push(chunk) < 0,
    end: () => (isEnded = true),
    onDrain: (listener: () => void) => (drain = listener),
    onClose: () => undefined,
    abort: () => undefined,
  } as unknown as Exchange;
  return { exchange, written, drain: () => drain(), ended: () => isEnded };
}

it('chunks of one byte that wait for a slow client are passed on together', async () => {
  const message = new PassThrough({ highWaterMark: 100_000 });
  const { exchange, written, drain, ended } = slowClient();
  const passed = passBody(message, exchange);
  for (let at = 0; at < 50_000; at += 1) message.write(String(at % 10));
  message.end();
  await until('the end', () => {
    drain();
    return ended();
  });
  await passed;
  assert.ok(written.length < 50, `${written.length} writes`);
  assert.equal(Buffer.concat(written).toString(), Array.from({ length: 50_000 }, (_byte, at) => at % 10).join(''));
});
