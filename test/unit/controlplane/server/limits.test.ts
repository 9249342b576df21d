/** Tests limits for one client: concurrent requests, and requests that never end. */
import { systemClock } from '../../../../api/machinery/clock.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { once } from 'node:events';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';
import { installHealth } from '../../../../controlplane/server/health.ts';
import { PathHandlers } from '../../../../controlplane/server/path-handlers.ts';
import { silentLogger } from '../../../../api/component/logger.ts';

const MAPS = '/api/v1/namespaces/n/configmaps';
const JSON_TYPE = { 'content-type': 'application/json' };

class SlowResource extends FakeResource {
  readonly gate = Promise.withResolvers<void>();
  waiting = 0;

  override async list(...args: Parameters<FakeResource['list']>): Promise<Awaited<ReturnType<FakeResource['list']>>> {
    this.waiting += 1;
    await this.gate.promise;
    return await super.list(...args);
  }
}

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

test('over the bound of reads: 429 with Retry-After; watches are not counted, and health checks are always answered', async () => {
  const slow = new SlowResource(fakeInfo('configmaps', 'ConfigMap'));
  const paths = new PathHandlers();
  installHealth(paths, { logger: silentLogger, clock: systemClock, live: [], ready: [] });
  const fake = await startFakeServer(new FakeCatalog([slow]), { maxReading: 2, maxMutating: 1, paths });
  try {
    const watches = Array.from({ length: 5 }, () => fake.session.request({ ':path': `${MAPS}?watch=1` }));
    for (const watch of watches) watch.on('error', () => undefined);
    while (slow.watchers < watches.length) await turn();
    const lists = [fake.request('GET', MAPS), fake.request('GET', MAPS)];
    while (slow.waiting < 2) await turn();

    const refused = await fake.request('GET', MAPS);
    assert.equal(refused.status, 429);
    assert.equal(refused.headers['retry-after'], '1');
    assert.equal((await fake.request1('GET', MAPS)).status, 429);
    for (const path of ['/healthz', '/livez', '/readyz', '/livez/ping']) {
      assert.equal((await fake.request('GET', path)).status, 200, path);
    }
    const another = fake.session.request({ ':path': `${MAPS}?watch=1` });
    another.on('error', () => undefined);
    while (slow.watchers < watches.length + 1) await turn();
    assert.equal(
      (await fake.request('POST', MAPS, JSON_TYPE, '{"metadata":{"name":"a"}}')).status,
      201,
      'writes apart',
    );

    slow.gate.resolve();
    for (const answer of await Promise.all(lists)) assert.equal(answer.status, 200);
    assert.equal((await fake.request('GET', MAPS)).status, 200);
  } finally {
    await fake.close();
  }
});

async function withClock(run: (fake: FakeServer, clock: FakeClock) => Promise<void>): Promise<void> {
  const clock = new FakeClock();
  const fake = await startFakeServer(new FakeCatalog([new FakeResource(fakeInfo('configmaps', 'ConfigMap'))]), {
    clock,
  });
  try {
    await run(fake, clock);
  } finally {
    await fake.close();
  }
}

async function rawConnection(fake: FakeServer): Promise<TLSSocket> {
  const socket = connectTls({
    host: '127.0.0.1',
    port: fake.port,
    rejectUnauthorized: false,
    ALPNProtocols: ['http/1.1'],
  });
  await once(socket, 'secureConnect');
  return socket;
}

test('a body that never ends is answered in time, and its connection closed', async () => {
  await withClock(async (fake, clock) => {
    const socket = await rawConnection(fake);
    let text = '';
    socket.setEncoding('utf8').on('data', (part: string) => (text += part));
    const closed = once(socket, 'close');
    socket.write(
      `POST ${MAPS} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"metadata":`,
    );
    while (clock.pendingTimers === 0) await turn();
    await clock.advance(60_000);
    await closed;
    assert.match(text, /^HTTP\/1\.1 504 /);
    assert.match(text, /connection: close/i);
  });
});

test('a body that never ends keeps no stream of HTTP/2 open, and the connection stays usable', async () => {
  await withClock(async (fake, clock) => {
    const stream = fake.session.request({ ':method': 'POST', ':path': MAPS, ...JSON_TYPE });
    stream.on('error', () => undefined).resume();
    const answered = once(stream, 'response') as Promise<[Record<string, unknown>]>;
    const closed = once(stream, 'close');
    stream.write('{"metadata":');
    while (clock.pendingTimers === 0) await turn();
    await clock.advance(60_000);
    const [headers] = await answered;
    assert.equal(headers[':status'], 504);
    await closed;
    assert.equal((await fake.json('GET', MAPS)).status, 200);
  });
});

test('a body that is refused unread is not waited for', async () => {
  await withClock(async (fake) => {
    const stream = fake.session.request({ ':method': 'POST', ':path': '/nothing', ...JSON_TYPE });
    stream.on('error', () => undefined).resume();
    const closed = once(stream, 'close');
    stream.write('{');
    await closed;
    assert.equal((await fake.json('GET', MAPS)).status, 200);
  });
});

test('headers that never end close the connection', async () => {
  const resource = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
  const fake = await startFakeServer(new FakeCatalog([resource]), { headersTimeoutMs: 50 });
  try {
    for (const begun of ['', 'GET / HT', `GET ${MAPS} HTTP/1.1\r\nHost: a\r\nX-A: b\r\n`]) {
      const socket = await rawConnection(fake);
      socket.on('error', () => undefined).resume();
      const closed = once(socket, 'close');
      if (begun !== '') socket.write(begun);
      await closed;
    }
    assert.equal((await fake.json('GET', MAPS)).status, 200);
  } finally {
    await fake.close();
  }
});
