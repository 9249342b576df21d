/** Tests responses that clients do not take, over the port of the server. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { compressRun } from '../../../../../controlplane/server/compressed-runs.ts';
import { documentOfRuns, sendDocument } from '../../../../../controlplane/server/document.ts';
import { PathHandlers, reading } from '../../../../../controlplane/server/path-handlers.ts';
import { newBadRequest } from '../../../../../api/meta/status-error.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { fakeFairness, type FakeFairness } from '../../../../fakes/fake-fairness.ts';
import { type FakeServer, startFakeServer } from '../../../../fakes/fake-server.ts';
import { until } from '../../../../until.ts';

const MAPS = '/api/v1/namespaces/n/configmaps';
const alice = { authorization: 'Bearer alice' };
const ERROR = '/error';
const DOCUMENT = '/document';
const REQUESTS = 100;

/** A session whose streams take nothing of the bodies until `open`. */
interface Stalled {
  readonly session: ClientHttp2Session;
  readonly statuses: number[];
  readonly streams: readonly ClientHttp2Stream[];
}

async function stalled(
  fake: FakeServer,
  path: string,
  { count = REQUESTS, headers = {} }: { readonly count?: number; readonly headers?: Record<string, string> } = {},
): Promise<Stalled> {
  const settings = { initialWindowSize: 0 };
  const session = connect(`https://127.0.0.1:${fake.port}`, { rejectUnauthorized: false, settings });
  session.on('error', () => undefined);
  await once(session, 'localSettings');
  const statuses: number[] = [];
  const streams = Array.from({ length: count }, () => {
    const stream = session.request({ ':path': path, ...alice, ...headers });
    stream.on('response', (answer) => void statuses.push(Number(answer[':status'])));
    stream.on('error', () => undefined);
    return stream;
  });
  return { session, statuses, streams };
}

async function withServer(
  fairness: FakeFairness,
  run: (fake: FakeServer) => Promise<void>,
  clock = systemClock,
): Promise<void> {
  const maps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
  for (let i = 0; i < 8; i++) maps.put('n', { metadata: { name: `m${i}` }, data: { text: 'x'.repeat(100_000) } });
  const paths = new PathHandlers();
  paths.exact(ERROR, () => {
    throw newBadRequest('x'.repeat(200_000));
  });
  const noise = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919 * (i % 251)) & 0xff));
  const runs = [await compressRun(noise), await compressRun(noise)];
  const document = await documentOfRuns('text/plain', runs, systemClock);
  paths.exact(
    DOCUMENT,
    reading((request) => sendDocument(request, document, { tagged: false })),
  );
  const fake = await startFakeServer(new FakeCatalog([maps]), { fairness, paths, clock, requestTimeoutMs: 60_000 });
  try {
    await run(fake);
  } finally {
    await fake.close();
  }
}

const executing = ({ control }: FakeFairness): number => control.executing.readOnly;

for (const [what, path, headers] of [
  ['lists', MAPS, {}],
  ['compressed lists', MAPS, { 'accept-encoding': 'gzip' }],
  ['long errors', ERROR, {}],
  ['documents', DOCUMENT, {}],
  ['compressed documents', DOCUMENT, { 'accept-encoding': 'gzip' }],
] as const)
  test(`${what} that their client does not take keep their seats: others of the client wait, and few are in memory`, async () => {
    const fairness = fakeFairness(systemClock, { totalSeats: 20 });
    await withServer(fairness, async (fake) => {
      const { session, statuses } = await stalled(fake, path, { headers });
      await until('responses', () => statuses.length > 0);
      await until(
        'all requests',
        () => executing(fairness) + fairness.control.waiting.readOnly + statuses.length >= REQUESTS,
      );
      const begun = statuses.filter((status) => status !== 429).length;
      assert.ok(begun <= 20, `${begun} responses have begun`);
      assert.ok(executing(fairness) > 0);
      // Other users are served meanwhile.
      assert.equal(
        (await fake.request('GET', `${MAPS}/m1`, { authorization: 'Bearer system:node:n1 system:nodes' })).status,
        200,
      );
      session.destroy();
      await until('free seats', () => executing(fairness) === 0 && fairness.control.waiting.readOnly === 0);
    });
  });

test('a response that its client does not take is broken off at the time limit of the request', async () => {
  const clock = new FakeClock();
  const fairness = fakeFairness(clock);
  await withServer(
    fairness,
    async (fake) => {
      const { session, statuses, streams } = await stalled(fake, MAPS, { count: 1 });
      await until('the response', () => statuses.length === 1);
      const [stream] = streams;
      assert.ok(stream !== undefined && !stream.closed);
      await clock.advance(61_000);
      await until('the end of the stream', () => stream.closed);
      await until('a free seat', () => executing(fairness) === 0);
      session.destroy();
    },
    clock,
  );
});

test('a client that takes its responses gets them whole, and its seats are free', async () => {
  const fairness = fakeFairness(systemClock);
  await withServer(fairness, async (fake) => {
    for (const request of [fake.request, fake.request1]) {
      const list = await request('GET', MAPS, alice);
      assert.equal((JSON.parse(list.text) as { items: unknown[] }).items.length, 8);
      assert.equal((await request('GET', DOCUMENT, alice)).text.length > 100_000, true);
      assert.equal((await request('GET', ERROR, alice)).status, 400);
    }
    await until('free seats', () => executing(fairness) === 0);
  });
});
