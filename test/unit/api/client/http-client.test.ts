/** Tests the client over HTTP: objects, Status errors, repeated requests and watches. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { type ClientRequest, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { pods } from '../../../../api/client/resources.ts';

test('answers become objects and Status errors, 429 is tried again, watches are parsed across chunks', async () => {
  let busy = 1;
  const server = createServer((request, response) => {
    const url = request.url ?? '';
    if (url.includes('watch=true')) {
      response.write('{"type":"ADDED","object":{"metadata":{"na');
      setImmediate(() =>
        response.end(
          'me":"a"}}}\n{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n',
        ),
      );
    } else if (url.endsWith('/pods/busy') && busy-- > 0) response.writeHead(429, { 'retry-after': '0' }).end('{}');
    else if (url.endsWith('/pods/busy')) response.end('{"metadata":{"name":"busy"}}');
    else
      response
        .writeHead(404)
        .end('{"kind":"Status","code":404,"reason":"NotFound","message":"pods \\"x\\" not found"}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new HttpClient({
    server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    clock: systemClock,
  });
  try {
    assert.equal((await client.get(pods, 'n', 'busy')).metadata.name, 'busy');
    await assert.rejects(client.get(pods, 'n', 'x'), { message: 'pods "x" not found' });
    const seen: string[] = [];
    await assert.rejects(async () => {
      for await (const event of client.watch(pods)) seen.push(`${event.type} ${event.object.metadata.name}`);
    }, /too old/);
    assert.deepEqual(seen, ['ADDED a']);
  } finally {
    client.close();
    server.close();
  }
});

test('a write whose connection breaks after it was sent is not sent again', async (t) => {
  let sent: ClientRequest | undefined;
  const onRequest = (message: unknown): void => void ({ request: sent } = message as { request: ClientRequest });
  subscribe('http.client.request.start', onRequest);
  let received = 0;
  const server = createServer(() => {
    received += 1;
    sent?.destroy(Object.assign(new Error('read ETIMEDOUT'), { code: 'ETIMEDOUT', syscall: 'read' }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new HttpClient({ server: url, clock: systemClock });
  t.after(() => {
    unsubscribe('http.client.request.start', onRequest);
    client.close();
    server.close();
  });
  await assert.rejects(client.create(pods, 'n', { metadata: { name: 'a' } }), { code: 'ETIMEDOUT' });
  assert.equal(received, 1);
});

test('a create on a connection that was used before is not sent again after a reset, and a get is', async (t) => {
  const received: string[] = [];
  const server = createServer((request, response) => {
    received.push(request.method ?? '');
    const isBroken = received.length === 2 || received.length === 4;
    request.resume().on('end', () => {
      if (isBroken) request.socket.destroy();
      else response.end('{"metadata":{"name":"a"}}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new HttpClient({ server: url, clock: systemClock });
  t.after(() => {
    client.close();
    server.close();
  });
  await client.get(pods, 'n', 'a');
  await assert.rejects(client.create(pods, 'n', { metadata: { name: 'a' } }), { code: 'ECONNRESET' });
  await client.get(pods, 'n', 'a');
  assert.equal((await client.get(pods, 'n', 'a')).metadata.name, 'a');
  assert.deepEqual(received, ['GET', 'POST', 'GET', 'GET', 'GET']);
});
