/** Tests tunnels, logs and proxies to a target, through the port of the server. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import { after, before, test } from 'node:test';
import { createDialer } from '../../../../api/http/dialer.ts';
import { gunzipSync, gzipSync } from 'node:zlib';
import { WebSocket } from 'ws';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import type { ConnectRequest, ConnectTarget, Rest } from '../../../../controlplane/model/rest.ts';
import { strippedHeaders } from '../../../../controlplane/server/connect/forwarded-headers.ts';
import { createConnector } from '../../../../controlplane/server/connect/connector.ts';
import { FakeCatalog, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

let target: Server;
let fake: FakeServer;
const seen: { url: string; headers: NodeJS.Dict<string | string[]>; body: string }[] = [];

function subresource(name: string, plain: boolean): Rest {
  return {
    info: fakeInfo('pods', 'Pod'),
    subresource: { name, group: '', version: 'v1', kind: 'Pod', verbs: ['get'] },
    connect: async (
      _context: unknown,
      _namespace: string,
      pod: string,
      request: ConnectRequest,
    ): Promise<ConnectTarget | 'empty'> =>
      pod === 'unscheduled'
        ? 'empty'
        : {
            origin: { secure: false, host: '127.0.0.1', port: (target.address() as AddressInfo).port },
            target: `/${name}/${pod}${request.rawPath}`,
            purpose: 'proxy' as const,
            name: 'service/ns/target',
            plain,
          },
  };
}

/** Writes as long as a client reads, and counts what was written. */
let writtenBytes = 0;
function writeWithoutEnd(response: ServerResponse): void {
  const part = Buffer.alloc(64 * 1024, 'x');
  response.on('error', () => undefined);
  const write = (): void => {
    if (response.destroyed || writtenBytes > 256 * 1024 * 1024) return;
    writtenBytes += part.length;
    if (response.write(part)) setImmediate(write);
    else response.once('drain', write);
  };
  write();
}

const PAGE = '<html>é <a href="/rewriteme">test</a></html>';

before(async () => {
  target = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      seen.push({ url: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks).toString() });
      if (request.url?.endsWith('/missing') === true) response.writeHead(404).end('container is gone');
      else if (request.url?.endsWith('/endless') === true) writeWithoutEnd(response.writeHead(500));
      else if (request.url?.endsWith('/moved') === true) response.writeHead(302, { location: '/proxy/p/there' }).end();
      else if (request.url?.endsWith('/page') === true)
        response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(PAGE);
      else if (request.url?.endsWith('/packed') === true)
        response.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'gzip' }).end(gzipSync(PAGE));
      else response.writeHead(200, { 'x-from': 'target' }).end('line one\n');
    });
  });
  target.on('upgrade', (request, socket, head) => {
    seen.push({ url: request.url ?? '', headers: request.headers, body: head.toString() });
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n');
    if (request.url?.endsWith('/ends') === true) {
      socket.end(() => socket.destroy());
      return;
    }
    socket.on('data', (chunk: Buffer) => socket.write(chunk.toString().toUpperCase()));
    socket.on('end', () => socket.end());
    socket.on('error', () => socket.destroy());
  });
  await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
  const catalog = new FakeCatalog([subresource('exec', false), subresource('log', true), subresource('proxy', false)]);
  const connector = createConnector({
    dialer: createDialer({ loopbackTargets: new Set(['service/ns/target']) }),
    stripped: strippedHeaders({ names: ['X-Foo-User'], prefixes: ['X-Foo-Extra-'] }),
    agentCredentials: () => undefined,
    clock: systemClock,
    logger: silentLogger,
  });
  fake = await startFakeServer(catalog, { connector });
});
after(async () => {
  await fake.close();
  target.closeAllConnections();
  target.close();
});

test('a client that still writes when its target closes is read until it has closed', { timeout: 60_000 }, async () => {
  const socket = connectTls({
    port: fake.port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
    ALPNProtocols: ['http/1.1'],
  });
  socket.on('error', () => undefined);
  socket.write(
    'POST /api/v1/namespaces/n/pods/ends/exec?command=ls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n',
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  assert.match(head.toString(), /^HTTP\/1\.1 101 /);
  // This is more than the buffers of both connections can hold.
  socket.resume().write(Buffer.alloc(64 * 1024 * 1024));
  await once(socket, 'close');
  assert.ok(seen.some(({ url }) => url.endsWith('/ends')));
});

test('an upgrade is tunnelled byte for byte, without the credentials of the caller', async () => {
  const socket = connectTls({
    port: fake.port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
    ALPNProtocols: ['http/1.1'],
  });
  let received = '';
  const until = (part: string): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!received.includes(part)) return;
        socket.off('data', check);
        resolve();
      };
      socket.on('data', check);
      check();
    });
  socket.on('data', (chunk: Buffer) => (received += chunk.toString()));
  socket.write(
    'POST /api/v1/namespaces/n/pods/p/exec?command=ls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n',
  );
  await until('101 Switching Protocols');
  socket.write('hello');
  await until('HELLO');
  const last = seen.at(-1);
  assert.equal(last?.url, '/exec/p');
  assert.equal(last?.headers['authorization'], undefined);
  assert.equal(last?.headers['x-stream-protocol-version'], 'v4.channel.k8s.io');
  socket.destroy();
});

test('exec without an upgrade is refused', async () => {
  const { status, body } = await fake.json('POST', '/api/v1/namespaces/n/pods/p/exec');
  assert.equal(status, 400);
  assert.equal(body['message'], 'Upgrade request required');
});

test('logs of a pod without a node have no content', async () => {
  const answer = await fake.request('GET', '/api/v1/namespaces/n/pods/unscheduled/log');
  assert.equal(answer.status, 204);
  assert.equal(answer.headers['content-type'], undefined);
  assert.equal(answer.text, '');
});

test('logs are streamed as text, and what the agent refuses is a Status', async () => {
  const answer = await fake.request('GET', '/api/v1/namespaces/n/pods/p/log');
  assert.equal(answer.text, 'line one\n');
  assert.equal(answer.headers['content-type'], 'text/plain');
  const refused = await fake.json('GET', '/api/v1/namespaces/n/pods/missing/log');
  assert.equal(refused.status, 404);
  assert.equal(refused.body['message'], 'container is gone');
});

test('only the beginning of an endless error of the agent is read', async () => {
  const refused = await fake.json('GET', '/api/v1/namespaces/n/pods/endless/log');
  assert.equal(refused.status, 500);
  assert.match(String(refused.body['message']), /^Internal error occurred: x{2000}|^x{2000}/);
  assert.ok(writtenBytes < 16 * 1024 * 1024, `${writtenBytes} bytes`);
});

for (const [protocol, isBase64] of [
  [undefined, false],
  ['binary.k8s.io', false],
  ['base64.binary.k8s.io', true],
] as const) {
  test(`logs are messages of a WebSocket that speaks ${protocol ?? 'nothing in particular'}`, async () => {
    const socket = new WebSocket(`wss://127.0.0.1:${fake.port}/api/v1/namespaces/ns/pods/p/log`, protocol ?? [], {
      rejectUnauthorized: false,
      headers: { authorization: 'Bearer token' },
    });
    const parts: Buffer[] = [];
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      assert.equal(isBinary, !isBase64);
      parts.push(isBase64 ? Buffer.from(data.toString(), 'base64') : data);
    });
    const [code] = (await once(socket, 'close')) as [number];
    assert.deepEqual([code, Buffer.concat(parts).toString()], [1000, 'line one\n']);
  });
}

test('plain requests are proxied with body and headers, redirects are turned and not followed', async () => {
  const answer = await fake.request(
    'POST',
    '/api/v1/namespaces/n/pods/p/proxy/a/b',
    { authorization: 'Bearer ann', 'x-mine': '1' },
    'text',
  );
  assert.equal(answer.headers['x-from'], 'target', answer.text);
  const last = seen.at(-1);
  assert.deepEqual(
    [last?.url, last?.body, last?.headers['x-mine'], last?.headers['authorization']],
    ['/proxy/p/a/b', 'text', '1', undefined],
  );
  const moved = await fake.request('GET', '/api/v1/namespaces/n/pods/p/proxy/moved');
  assert.equal(moved.status, 302);
  assert.equal(moved.headers['location'], '/api/v1/namespaces/n/pods/p/proxy/proxy/p/there');
  const bare = await fake.request('GET', '/api/v1/namespaces/n/pods/p/proxy');
  assert.equal(bare.status, 301);
});

/** Resolves to the raw body of a response. */
async function bytes(path: string): Promise<Buffer> {
  const headers = { authorization: 'Bearer token' };
  const sent = httpsRequest({
    host: '127.0.0.1',
    port: fake.port,
    path,
    headers,
    rejectUnauthorized: false,
    agent: false,
  });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return Buffer.concat(await answer.toArray());
}

test('links of a page that is proxied go through the proxy, packed or not', async () => {
  const turned = PAGE.replace('/rewriteme', '/api/v1/namespaces/n/pods/p/proxy/rewriteme');
  const page = await fake.request('GET', '/api/v1/namespaces/n/pods/p/proxy/page');
  assert.deepEqual([page.text, page.headers['content-length']], [turned, undefined]);
  const packed = await bytes('/api/v1/namespaces/n/pods/p/proxy/packed');
  assert.equal(gunzipSync(packed).toString(), turned);
});
