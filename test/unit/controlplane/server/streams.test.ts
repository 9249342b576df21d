/** Tests large lists, watches in every encoding, WebSocket, certificates and the shutdown of the server. */
import assert from 'node:assert/strict';
import { connect } from 'node:http2';
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
