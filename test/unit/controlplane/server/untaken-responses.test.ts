/** Tests short responses over HTTP/2 whose clients do not take them. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Session, connect } from 'node:http2';
import { test } from 'node:test';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { type FakeServer, startFakeServer } from '../../../fakes/fake-server.ts';
import { until } from '../../../until.ts';

const MAPS = '/api/v1/namespaces/n/configmaps';
const REQUEST_TIMEOUT_MS = 60_000;
const REQUESTS = 100;

interface Opened {
  hasStatus: boolean;
  isClosed: boolean;
}

async function sessionOf({ port }: FakeServer, initialWindowSize: number): Promise<ClientHttp2Session> {
  const session = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false, settings: { initialWindowSize } });
  session.on('error', () => undefined);
  await once(session, 'localSettings');
  return session;
}

function open(session: ClientHttp2Session, path: string): Opened {
  const opened: Opened = { hasStatus: false, isClosed: false };
  const stream = session.request({ ':path': path, authorization: 'Bearer alice' });
  stream.on('response', () => (opened.hasStatus = true));
  stream.on('error', () => undefined);
  stream.on('close', () => (opened.isClosed = true));
  stream.resume();
  return opened;
}

for (const [what, manyStreams, timeMs] of [
  ['after the time of a request', 2 * REQUESTS, REQUEST_TIMEOUT_MS],
  ['within seconds if there are many', REQUESTS / 2, 1_000],
] as const) {
  test(`streams whose short response is not taken are broken off ${what}, and watches without events stay`, async () => {
    const clock = new FakeClock();
    const maps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
    maps.put('n', { metadata: { name: 'a' } });
    const options = { clock, manyStreams, requestTimeoutMs: REQUEST_TIMEOUT_MS };
    const fake = await startFakeServer(new FakeCatalog([maps]), options);
    try {
      const stalled = await sessionOf(fake, 0);
      const reading = await sessionOf(fake, 65_535);
      const watch = open(reading, `${MAPS}?watch=1&resourceVersion=5`);
      const streams = Array.from({ length: REQUESTS }, () => open(stalled, `${MAPS}/a`));
      await until('responses', () => watch.hasStatus && streams.every(({ hasStatus }) => hasStatus));
      await clock.advance(timeMs);
      assert.ok(streams.every(({ isClosed }) => !isClosed));
      await clock.advance(timeMs);
      await until('the end of the streams', () => streams.every(({ isClosed }) => isClosed));
      await clock.advance(3 * REQUEST_TIMEOUT_MS);
      assert.equal(watch.isClosed, false);
      for (const session of [stalled, reading]) session.destroy();
    } finally {
      await fake.close();
    }
  });
}
