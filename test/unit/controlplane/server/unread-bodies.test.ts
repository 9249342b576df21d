/** What arrives of bodies before their requests are authenticated and authorized is bounded for both protocols. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import { connect, createServer as createServer2, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { Exchange } from '../../../../controlplane/server/exchange.ts';
import { TooManyRequests } from '../../../../controlplane/server/flowcontrol/too-many-requests.ts';
import { Http1Exchange } from '../../../../controlplane/server/http1.ts';
import { Http2Exchange } from '../../../../controlplane/server/http2.ts';
import { UnreadBodies } from '../../../../controlplane/server/unread-bodies.ts';
import { until } from '../../../until.ts';

const BUDGET_BYTES = 1_000_000;
const BODY = Buffer.alloc(200_000, 'x');
const REQUESTS = 20;
const connection = { remoteAddress: '192.0.2.1', peerCertificate: undefined };

interface Running {
  readonly exchanges: Exchange[];
  readonly unread: UnreadBodies;
}

/** Reads all bodies, answers with 200 or 429, and returns how many were refused. */
async function readAll(exchanges: readonly Exchange[]): Promise<number> {
  const outcomes = await Promise.allSettled(exchanges.map((exchange) => exchange.readBody(1 << 20)));
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome.status === 'rejected') assert.ok(outcome.reason instanceof TooManyRequests, String(outcome.reason));
    else assert.equal(outcome.value.length, BODY.length);
    exchanges[index]?.send(outcome.status === 'rejected' ? 429 : 200, {}, undefined);
  }
  return outcomes.filter(({ status }) => status === 'rejected').length;
}

async function check({ exchanges, unread }: Running, sent: () => number): Promise<void> {
  let before = -1;
  await until('all bodies to arrive', () => {
    const isUnchanged = before === unread.bytes;
    before = unread.bytes;
    return isUnchanged && sent() === REQUESTS && exchanges.length === REQUESTS;
  });
  assert.ok(unread.bytes <= BUDGET_BYTES, `${unread.bytes} bytes wait`);
  const refused = await readAll(exchanges);
  assert.ok(refused >= REQUESTS - 5 && refused < REQUESTS, `${refused} are refused`);
  await until('nothing to count any more', () => unread.bytes === 0);
}

test('bodies over HTTP/1.1 that wait for a slow authenticator share a budget; the newest ones get 429', async () => {
  const running: Running = { exchanges: [], unread: new UnreadBodies(BUDGET_BYTES) };
  const server = createServer((incoming, response) => {
    running.exchanges.push(new Http1Exchange(incoming, response, { connection, unread: running.unread }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const agent = new Agent();
  let sent = 0;
  try {
    for (let at = 0; at < REQUESTS; at += 1)
      request({ port, host: '127.0.0.1', method: 'POST', agent })
        .on('error', () => undefined)
        .on('response', (response) => response.resume())
        .end(BODY, () => (sent += 1));
    await check(running, () => sent);
  } finally {
    agent.destroy();
    server.closeAllConnections();
    server.close();
  }
});

test('bodies over HTTP/2 that wait for a slow authenticator share a budget, also those of one connection', async () => {
  const running: Running = { exchanges: [], unread: new UnreadBodies(BUDGET_BYTES) };
  const server = createServer2();
  server.on(
    'stream',
    (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, rawHeaders: string[]) => {
      const arrival = { rawHeaders, connection, unread: running.unread, bodyless: false };
      running.exchanges.push(new Http2Exchange(stream, headers, arrival));
    },
  );
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  let sent = 0;
  try {
    for (let at = 0; at < REQUESTS; at += 1)
      session
        .request({ ':method': 'POST', ':path': '/' })
        .on('error', () => undefined)
        .resume()
        .end(BODY, () => (sent += 1));
    await check(running, () => sent);
  } finally {
    session.destroy();
    server.close();
  }
});

test('a body counts no longer once its request is answered without reading it', async () => {
  const unread = new UnreadBodies(BUDGET_BYTES);
  const server = createServer((incoming, response) => {
    const exchange = new Http1Exchange(incoming, response, { connection, unread });
    void until('the body', () => unread.bytes > BODY.length).then(() => exchange.send(401, {}, undefined));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const sent = request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', method: 'POST' });
  sent.on('error', () => undefined);
  const answered = once(sent, 'response') as Promise<[{ statusCode: number; resume(): void }]>;
  sent.end(BODY);
  const [response] = await answered;
  response.resume();
  assert.equal(response.statusCode, 401);
  await until('nothing to count any more', () => unread.bytes === 0);
  server.closeAllConnections();
  server.close();
});
