/** Tests large lists, watches in every encoding, WebSocket, certificates and the shutdown of the server. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { gunzipSync } from 'node:zlib';
import { request as httpsRequest } from 'node:https';
import { test } from 'node:test';
import WebSocket from 'ws';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function withServer(run: (fake: FakeServer, resource: FakeResource) => Promise<void>): Promise<void> {
  const resource = new FakeResource(fakeInfo('secrets', 'Secret'));
  const fake = await startFakeServer(new FakeCatalog([resource]));
  try {
    await run(fake, resource);
  } finally {
    await fake.close();
  }
}

const PATH = '/api/v1/namespaces/n/secrets';

test('a list of many megabytes arrives whole over both protocols', async () => {
  await withServer(async (fake, resource) => {
    for (let index = 0; index < 300; index += 1)
      resource.put('n', { metadata: { name: `s${index}` }, data: { k: 'x'.repeat(10_000) } });
    for (const answer of [await fake.request('GET', PATH), await fake.request1('GET', PATH)]) {
      assert.equal((JSON.parse(answer.text) as { items: unknown[] }).items.length, 300);
    }
  });
});

test('large lists are compressed for clients that accept it', async () => {
  await withServer(async (fake, resource) => {
    for (let index = 0; index < 30; index += 1)
      resource.put('n', { metadata: { name: `s${index}` }, data: { k: 'x'.repeat(10_000) } });
    const body = await new Promise<Buffer>((resolve, reject) => {
      const headers = { 'accept-encoding': 'gzip' };
      const request = httpsRequest(
        { port: fake.port, path: PATH, headers, rejectUnauthorized: false, agent: false },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () => resolve(Buffer.concat(chunks)));
          assert.equal(response.headers['content-encoding'], 'gzip');
        },
      );
      request.on('error', reject);
      request.end();
    });
    assert.equal((JSON.parse(gunzipSync(body).toString()) as { items: unknown[] }).items.length, 30);
  });
});

test('a page carries its token and how many items follow', async () => {
  await withServer(async (fake, resource) => {
    for (const name of ['a', 'b', 'c']) resource.put('n', { metadata: { name } });
    const { body } = await fake.json('GET', `${PATH}?limit=1`);
    assert.deepEqual(body['metadata'], { resourceVersion: '4', continue: 'more', remainingItemCount: 2 });
  });
});

test('a watch as Table gives the columns once', async () => {
  await withServer(async (fake, resource) => {
    const accept = 'application/json;as=Table;g=meta.k8s.io;v=v1';
    const answer = fake.request('GET', `${PATH}?watch=1`, { accept });
    while (resource.watchers === 0) await turn();
    resource.put('n', { metadata: { name: 'a' } });
    resource.put('n', { metadata: { name: 'b' } });
    resource.endWatches();
    const events = (await answer).text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { object: { columnDefinitions: unknown } });
    assert.deepEqual(
      events.map((event) => event.object.columnDefinitions === null),
      [false, true],
    );
  });
});

test('a watch whose events should be lists ends without one', async () => {
  await withServer(async (fake, resource) => {
    const accept = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1';
    const answer = fake.request('GET', `${PATH}?watch=1`, { accept });
    while (resource.watchers === 0) await turn();
    resource.put('n', { metadata: { name: 'a' } });
    const { status, text } = await answer;
    assert.deepEqual([status, text], [200, '']);
  });
});

test('frames of a protobuf watch have their length before them', async () => {
  await withServer(async (fake, resource) => {
    const answer = fake.request('GET', `${PATH}?watch=1`, {
      accept: 'application/vnd.kubernetes.protobuf;stream=watch',
    });
    while (resource.watchers === 0) await turn();
    resource.put('n', { metadata: { name: 'a' } });
    resource.endWatches();
    const { text, headers } = await answer;
    assert.equal(headers['content-type'], 'application/vnd.kubernetes.protobuf;stream=watch');
    assert.equal(Buffer.from(text).readUInt32BE(0), Buffer.byteLength(text) - 4);
  });
});

test('compacted history is an ERROR event, after which the watch ends', async () => {
  await withServer(async (fake) => {
    const { text, status } = await fake.request('GET', `${PATH}?watch=1&resourceVersion=1`);
    assert.equal(status, 200);
    const event = JSON.parse(text) as { type: string; object: { code: number; reason: string } };
    assert.deepEqual([event.type, event.object.code, event.object.reason], ['ERROR', 410, 'Expired']);
  });
});

/** Opens a watch by WebSocket on a connection that sends frames as they are given. */
async function watchSocket(fake: FakeServer): Promise<TLSSocket> {
  const socket = connectTls({ host: '127.0.0.1', port: fake.port, rejectUnauthorized: false });
  socket.on('error', () => undefined);
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13';
  const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==';
  socket.write(`GET ${PATH}?watch=1 HTTP/1.1\r\nHost: a\r\n${upgrade}\r\n${key}\r\n\r\n`);
  const [head] = (await once(socket, 'data')) as [Buffer];
  assert.match(head.toString('latin1'), /^HTTP\/1\.1 101 /);
  return socket;
}

test('a watch over WebSocket holds no long message of its client', async () => {
  await withServer(async (fake) => {
    const socket = await watchSocket(fake);
    // A masked binary frame of 99 MB, which is the first of its message.
    const frame = Buffer.alloc(14);
    frame.writeUInt16BE(0x02ff);
    frame.writeBigUInt64BE(99_000_000n, 2);
    const response = once(socket, 'data') as Promise<[Buffer]>;
    socket.write(frame);
    const [[closing]] = await Promise.all([response, once(socket, 'end')]);
    // A close frame with the status 1009: the message is too big.
    assert.deepEqual([...closing.subarray(0, 4)], [0x88, 2, 0x03, 0xf1]);
    socket.destroy();
  });
});

test('a watch over WebSocket holds no message of many fragments, each of which would keep the chunk in which it came', async () => {
  await withServer(async (fake) => {
    const socket = await watchSocket(fake);
    const response = once(socket, 'data') as Promise<[Buffer]>;
    const fragment = (first: boolean): Buffer => Buffer.from([first ? 0x02 : 0x00, 0x81, 0, 0, 0, 0, 1]);
    socket.write(Buffer.concat(Array.from({ length: 17 }, (_, index) => fragment(index === 0))));
    const [[closing]] = await Promise.all([response, once(socket, 'end')]);
    // A close frame with the status 1008.
    assert.deepEqual([...closing.subarray(0, 4)], [0x88, 2, 0x03, 0xf0]);
    socket.destroy();
  });
});

test('a watch over WebSocket answers pings, but few of a client that does not read', async () => {
  await withServer(async (fake) => {
    const socket = await watchSocket(fake);
    const ping = Buffer.alloc(131);
    ping.writeUInt16BE(0x89fd);
    const count = 40_000;
    socket.pause();
    await new Promise<void>((resolve) => socket.write(Buffer.concat(Array<Buffer>(count).fill(ping)), () => resolve()));
    await new Promise((resolve) => setTimeout(resolve, 500));
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length));
    socket.resume();
    let before = -1;
    while (before !== bytes || bytes === 0) {
      before = bytes;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    assert.ok(bytes >= 127 && bytes < (count * 127) / 2, String(bytes));
    socket.destroy();
  });
});

test('a watch over WebSocket sends an event a message', async () => {
  await withServer(async (fake, resource) => {
    resource.put('n', { metadata: { name: 'a' } });
    const socket = new WebSocket(`wss://127.0.0.1:${fake.port}${PATH}?watch=1`, { rejectUnauthorized: false });
    const messages: string[] = [];
    const closed = new Promise<number>((resolve) => socket.on('close', resolve));
    socket.on('message', (data: Buffer) => messages.push(data.toString()));
    while (messages.length === 0) await turn();
    resource.put('n', { metadata: { name: 'b' } });
    while (messages.length === 1) await turn();
    resource.endWatches();
    assert.equal(await closed, 1000);
    const names = messages.map(
      (text) => (JSON.parse(text) as { object: { metadata: { name: string } } }).object.metadata.name,
    );
    assert.deepEqual(names, ['a', 'b']);
    assert.equal(resource.watchers, 0);
  });
});

test('a watch of a disconnected client is closed', async () => {
  await withServer(async (fake, resource) => {
    const session = connect(`https://127.0.0.1:${fake.port}`, { rejectUnauthorized: false });
    session.on('error', () => undefined);
    const stream = session.request({ ':path': `${PATH}?watch=1` });
    stream.on('error', () => undefined);
    while (resource.watchers === 0) await turn();
    session.destroy();
    while (resource.watchers > 0) await turn();
  });
});

test('the server ends while watches are open', async () => {
  const resource = new FakeResource(fakeInfo('secrets', 'Secret'));
  const fake = await startFakeServer(new FakeCatalog([resource]));
  const broken = fake.request('GET', `${PATH}?watch=1`).then(
    () => undefined,
    () => undefined,
  );
  while (resource.watchers === 0) await turn();
  await fake.close();
  await broken;
});
