/** Tests watches whose clients read nothing, over the port of the server. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Session, connect } from 'node:http2';
import { test } from 'node:test';
import { type Clock, systemClock } from '../../../../api/machinery/clock.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { type FakeServer, startFakeServer } from '../../../fakes/fake-server.ts';
import { until } from '../../../until.ts';

const MAPS = '/api/v1/namespaces/n/configmaps';
const LARGE_BYTES = 1_000_000;
const REQUEST_TIMEOUT_MS = 60_000;
const IDLE_BYTES = 16 * 1024;

interface Running {
  readonly fake: FakeServer;
  readonly maps: FakeResource;
}

async function withServer(
  { clock = systemClock, watchMemoryBytes = 1 << 30 }: { readonly clock?: Clock; readonly watchMemoryBytes?: number },
  run: (running: Running) => Promise<void>,
): Promise<void> {
  const maps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
  const options = { clock, watchMemoryBytes, requestTimeoutMs: REQUEST_TIMEOUT_MS };
  const fake = await startFakeServer(new FakeCatalog([maps]), options);
  try {
    await run({ fake, maps });
  } finally {
    await fake.close();
  }
}

async function sessionOf(fake: FakeServer, initialWindowSize: number): Promise<ClientHttp2Session> {
  const session = connect(`https://127.0.0.1:${fake.port}`, {
    rejectUnauthorized: false,
    settings: { initialWindowSize },
  });
  session.on('error', () => undefined);
  await once(session, 'localSettings');
  return session;
}

/** Returns a session whose streams take nothing. */
const stalledSession = (fake: FakeServer): Promise<ClientHttp2Session> => sessionOf(fake, 0);

interface Opened {
  status: number;
  isClosed: boolean;
}

function open(session: ClientHttp2Session, user: string, query = ''): Opened {
  const stream = session.request({ ':path': `${MAPS}?watch=1${query}`, authorization: `Bearer ${user}` });
  const opened: Opened = { status: 0, isClosed: false };
  stream.on('response', (headers) => (opened.status = Number(headers[':status'])));
  stream.on('error', () => undefined);
  stream.on('close', () => (opened.isClosed = true));
  stream.resume();
  return opened;
}

const answered = (watch: Opened): Promise<unknown> => until('an answer', () => watch.status !== 0 || watch.isClosed);

const putLarge = (maps: FakeResource, name: string): unknown =>
  maps.put('n', { metadata: { name }, data: { text: 'x'.repeat(LARGE_BYTES) } });

test('large objects that wait for clients who read nothing are in memory once', async () => {
  await withServer({}, async ({ fake, maps }) => {
    for (const name of ['a', 'b', 'c', 'd']) putLarge(maps, name);
    const session = await stalledSession(fake);
    const before = process.memoryUsage().arrayBuffers;
    const watches = Array.from({ length: 60 }, () => open(session, 'alice'));
    for (const watch of watches) await answered(watch);
    const grown = process.memoryUsage().arrayBuffers - before;
    session.destroy();
    assert.ok(grown < 10 * LARGE_BYTES, `${grown} bytes`);
  });
});

for (const [what, query] of [
  ['that is open', ''],
  ['whose time is over', '&timeoutSeconds=1'],
] as const) {
  test(`a watch ${what} is broken off if its client takes nothing for the time of a request, and others stay`, async () => {
    const clock = new FakeClock();
    await withServer({ clock }, async ({ fake, maps }) => {
      putLarge(maps, 'a');
      const stalled = await stalledSession(fake);
      const reading = await sessionOf(fake, 4 * LARGE_BYTES);
      const read = open(reading, 'bob');
      await until('the other watch to have taken its object', () => maps.resumed > 0);
      const lost = open(stalled, 'alice', query);
      await answered(lost);
      await clock.advance(REQUEST_TIMEOUT_MS - 2_000);
      assert.equal(lost.isClosed, false);
      await clock.advance(4_000);
      await until('the end of the stalled watch', () => lost.isClosed);
      assert.equal(read.isClosed, false);
      for (const session of [stalled, reading]) session.destroy();
    });
  });
}

test('a client that takes what waits within the time of a request keeps its watch', async () => {
  const clock = new FakeClock();
  await withServer({ clock }, async ({ fake, maps }) => {
    putLarge(maps, 'a');
    const session = await stalledSession(fake);
    const watch = open(session, 'alice');
    await answered(watch);
    await clock.advance(REQUEST_TIMEOUT_MS / 2);
    session.settings({ initialWindowSize: 4 * LARGE_BYTES });
    session.setLocalWindowSize(8 * LARGE_BYTES);
    await until('a resumed watch', () => maps.resumed > 0);
    await clock.advance(REQUEST_TIMEOUT_MS);
    assert.equal(watch.isClosed, false);
    session.destroy();
  });
});

test('the client with most watches gets 429, and loses its newest watch as soon as another one needs the memory', async () => {
  await withServer({ watchMemoryBytes: 4 * IDLE_BYTES }, async ({ fake }) => {
    const session = await sessionOf(fake, LARGE_BYTES);
    const watches: Opened[] = [];
    for (let count = 0; count < 5; count += 1) {
      const watch = open(session, 'alice');
      watches.push(watch);
      await answered(watch);
    }
    assert.deepEqual(
      watches.map(({ status }) => status),
      [200, 200, 200, 200, 429],
    );
    const other = open(session, 'bob');
    await answered(other);
    assert.equal(other.status, 200);
    await until('the end of the newest watch', () => watches[3]?.isClosed);
    assert.equal(watches[0]?.isClosed, false);
    session.destroy();
  });
});

test('the service accounts of a namespace are one client of watches', async () => {
  await withServer({ watchMemoryBytes: 4 * IDLE_BYTES }, async ({ fake }) => {
    const session = await sessionOf(fake, LARGE_BYTES);
    const other = [open(session, 'bob'), open(session, 'bob')];
    for (const watch of other) await answered(watch);
    const statuses: number[] = [];
    for (const name of ['a', 'b', 'c', 'd']) {
      const watch = open(session, `system:serviceaccount:n:${name}`);
      await answered(watch);
      statuses.push(watch.status);
    }
    assert.deepEqual(statuses, [200, 200, 429, 429]);
    assert.ok(other.every(({ isClosed }) => !isClosed));
    session.destroy();
  });
});

test('events that wait for a client count until the client has received them', async () => {
  await withServer({ watchMemoryBytes: LARGE_BYTES }, async ({ fake, maps }) => {
    putLarge(maps, 'a');
    const session = await stalledSession(fake);
    const watch = open(session, 'alice');
    await until('the end of the watch', () => watch.isClosed);
    session.destroy();
  });
});
