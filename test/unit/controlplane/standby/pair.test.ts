/**
 * Tests a first control plane and its standby in one process: what they answer to each other, and how the one follows the
 * other.
 */
import assert from 'node:assert/strict';
import { cp, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { ensurePki, type Pki } from '../../../../controlplane/security/pki/pki.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';
import { firstRoutes } from '../../../../controlplane/standby/first.ts';
import { Follower, openCopy } from '../../../../controlplane/standby/follower.ts';
import { FrameWriter } from '../../../../controlplane/standby/frame-writer.ts';
import { peerCheck, peerClient } from '../../../../controlplane/standby/identity.ts';
import {
  FENCE_PATH,
  FIRST_PATH,
  type FirstReport,
  LOG_PATH,
  PEER_PREFIX,
  peerPaths,
  PROMOTE_PATH,
  STANDBY_PATH,
} from '../../../../controlplane/standby/peer-paths.ts';
import { askToStop, lossOf, type Promotion } from '../../../../controlplane/standby/promotion.ts';
import { FencedError, readRole, roleFile, writeRole } from '../../../../controlplane/standby/role.ts';
import { startRole } from '../../../../controlplane/standby/start-role.ts';
import { createStandbyServer } from '../../../../controlplane/standby/standby-server.ts';
import {
  openUnpromoted,
  type Standby,
  type StandbyReport,
  startStandby,
} from '../../../../controlplane/standby/standby.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { fakeExchange } from '../../../fakes/fake-exchange.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const clock = systemClock;
const logger = silentLogger;

async function pkiOf(directory: string): Promise<Pki> {
  return ensurePki({
    directory: join(directory, 'pki'),
    clock,
    logger,
    hosts: ['localhost'],
    addresses: () => ['127.0.0.1'],
    serviceIp: undefined,
  });
}

class Pair {
  readonly directory: string;
  readonly pki: Pki;
  readonly storage: Storage;
  readonly fatal: Error[] = [];
  readonly #listener: Listener;
  url = '';

  private constructor(directory: string, pki: Pki, storage: Storage, stop: AbortSignal) {
    this.directory = directory;
    this.pki = pki;
    this.storage = storage;
    const { frontProxyCa, apiserver } = pki.material();
    const takes = peerPaths({
      isPeer: peerCheck(frontProxyCa.certificatePem, clock),
      logger,
      clock,
      routes: firstRoutes({
        storage,
        dataDirectory: directory,
        clock,
        logger,
        metrics: new MetricsRegistry(),
        signal: stop,
        onFatal: (error) => void this.fatal.push(error),
      }),
    });
    this.#listener = new Listener({
      tls: { cert: apiserver.certificatePem, key: apiserver.privateKeyPem, clientCa: frontProxyCa.certificatePem },
      clock,
      logger,
      onExchange: (exchange) => assert.ok(takes(exchange)),
    });
  }

  static async open(t: TestContext): Promise<Pair> {
    const directory = temporaryFolder();
    const stop = new AbortController();
    const storage = await openSqliteStorage({ directory: join(directory, 'storage'), clock, logger });
    const pair = new Pair(directory, await pkiOf(directory), storage, stop.signal);
    pair.url = `https://127.0.0.1:${(await pair.#listener.listen(0, '127.0.0.1')).port}`;
    t.after(async () => {
      stop.abort();
      await pair.#listener.close(0);
      await storage.close();
      await rm(directory, { recursive: true, force: true });
    });
    return pair;
  }

  /** Stops the control plane without a farewell, so that it does not answer any more. */
  disappear(): Promise<void> {
    return this.#listener.close(0);
  }

  client(t: TestContext, url = this.url): HttpClient {
    const { ca, frontProxyCa } = this.pki.material();
    const client = peerClient(url, { ca: ca.certificatePem, frontProxyCa }, clock);
    t.after(() => client.close());
    return client;
  }

  /** Starts a standby with the keys of the first. */
  async standby(t: TestContext, standbyLogger = logger): Promise<{ standby: Standby; directory: string; url: string }> {
    const directory = temporaryFolder();
    t.after(() => rm(directory, { recursive: true, force: true }));
    await cp(join(this.directory, 'pki'), join(directory, 'pki'), { recursive: true });
    const standby = await startStandby({
      storageBackend: 'sqlite',
      flags: flagsOf({ dataDir: directory, standbyOf: this.url }),
      clock,
      logger: standbyLogger,
      hosts: ['localhost'],
      addresses: () => ['127.0.0.1'],
      advertised: () => '127.0.0.1',
      onFatal: (error) => void this.fatal.push(error),
    });
    assert.ok(standby);
    t.after(() => standby.close());
    return { standby, directory, url: `https://127.0.0.1:${standby.port}` };
  }
}

const flagsOf = (change: Partial<ControlPlaneFlags>): ControlPlaneFlags => ({
  ...parseFlags(controlPlaneFlags, []).values,
  bindAddress: '127.0.0.1',
  securePort: 0,
  ...change,
});

const ask = async <T>(client: HttpClient, method: string, path: string, body?: string): Promise<T> =>
  (await json((await client.raw({ method, path, ...(body === undefined ? {} : { body }) })).body)) as T;

const codeOf = (request: Promise<unknown>): Promise<number> =>
  request.then(
    () => 200,
    (error: unknown) => {
      if (isStatusError(error)) return error.code;
      throw error;
    },
  );

const complete = (client: HttpClient, storage: Storage): Promise<StandbyReport> =>
  until('a complete copy', async () => {
    const report = await ask<StandbyReport>(client, 'GET', STANDBY_PATH);
    return report.revision >= storage.revision() && report.completeAtMs > 0 ? report : undefined;
  });

test('the first answers peers alone, by method and path, and refuses positions and successors that are none', async (t) => {
  const pair = await Pair.open(t);
  const client = pair.client(t);
  const { promotion } = await ask<FirstReport>(client, 'GET', FIRST_PATH);
  assert.equal(promotion, undefined);
  const cases: [number, string, string, string?][] = [
    [404, 'GET', `${PEER_PREFIX}other`],
    [404, 'GET', STANDBY_PATH],
    [405, 'POST', LOG_PATH],
    [400, 'GET', `${LOG_PATH}?after=-1`],
    [400, 'GET', `${LOG_PATH}?after=1&newest=x&checksum=1`],
    [400, 'POST', FENCE_PATH, 'no json'],
    [400, 'POST', FENCE_PATH, '{"by":"http://plain"}'],
    [400, 'POST', FENCE_PATH, '{"by":"https://a/path"}'],
    [400, 'POST', FENCE_PATH, '{"by":"https://a","promotedAt":"1"}'],
    [413, 'POST', FENCE_PATH, `{"by":"${'x'.repeat(5000)}"}`],
  ];
  for (const [code, method, path, body] of cases)
    assert.equal(await codeOf(ask(client, method, path, body)), code, `${method} ${path} ${body?.slice(0, 30) ?? ''}`);
  const stranger = new HttpClient({ server: pair.url, ca: pair.pki.material().ca.certificatePem, clock });
  t.after(() => stranger.close());
  assert.equal(await codeOf(ask(stranger, 'GET', LOG_PATH)), 403);
  assert.equal((await pair.storage.create('/core/x/a', Buffer.from('a'))).revision > 0, true);
});

test('a standby follows, serves nothing else, and is promoted after the first has stopped writing', async (t) => {
  const pair = await Pair.open(t);
  await pair.storage.create('/core/x/a', Buffer.from('a'));
  const { standby, directory, url } = await pair.standby(t);
  const client = pair.client(t, url);
  const report = await complete(client, pair.storage);
  assert.deepEqual([report.of, report.isConnected, report.snapshots, report.warning], [pair.url, true, 1, undefined]);
  for (const path of ['/readyz', '/api/v1/pods']) assert.equal(await codeOf(ask(client, 'GET', path)), 503);
  const { body } = await client.raw({ method: 'GET', path: '/metrics' });
  let metrics = '';
  for await (const part of body) metrics += String(part);
  assert.match(metrics, /orchlet_standby_connected 1\n/);
  const stranger = new HttpClient({ server: url, ca: pair.pki.material().ca.certificatePem, clock });
  t.after(() => stranger.close());
  assert.equal(await codeOf(ask(stranger, 'GET', '/metrics')), 503);
  const done = await ask<Promotion>(client, 'POST', PROMOTE_PATH);
  assert.deepEqual(done, { revision: pair.storage.revision(), isComplete: true });
  await standby.promoted;
  await assert.rejects(pair.storage.create('/core/x/b', Buffer.from('b')), { code: 'unavailable' });
  assert.equal(readRole(pair.directory).role, 'fenced');
  const role = readRole(directory);
  assert.ok(role.role === 'promoted' && role.isFenced && role.from === pair.url);
  await until('the end of the first', () => pair.fatal.length > 0);
  assert.ok(pair.fatal[0] instanceof FencedError);
});

test('a standby whose first does not answer is promoted by force alone, and says what is lost', async (t) => {
  const pair = await Pair.open(t);
  await pair.storage.create('/core/x/a', Buffer.from('a'));
  const { directory, url } = await pair.standby(t);
  const client = pair.client(t, url);
  const { revision } = await complete(client, pair.storage);
  await pair.disappear();
  await assert.rejects(ask(client, 'POST', PROMOTE_PATH), (error) => {
    assert.ok(isStatusError(error, 'Conflict'));
    assert.match(error.message, new RegExp(`does not stop .* The copy ends at revision ${revision} .* with --force`));
    return true;
  });
  assert.equal(readRole(directory).role, 'standby');
  const done = await ask<Promotion>(client, 'POST', `${PROMOTE_PATH}?force=true`);
  assert.deepEqual(done, { revision, isComplete: false });
  const role = readRole(directory);
  assert.ok(role.role === 'promoted' && !role.isFenced);
});

test('a standby that could not write when its copy was complete can be promoted', async (t) => {
  const pair = await Pair.open(t);
  await pair.storage.create('/core/x/a', Buffer.from('a'));
  const started = Promise.withResolvers<void>();
  const copyTo = pair.storage.copyTo.bind(pair.storage);
  pair.storage.copyTo = (file) => started.promise.then(() => copyTo(file));
  const errors: string[] = [];
  const recording = { ...logger, error: (_fields: object, message: string) => void errors.push(message) };
  const { directory, url } = await pair.standby(t, recording);
  await rm(roleFile(directory));
  await mkdir(join(roleFile(directory), 'occupied'), { recursive: true });
  started.resolve();
  await until('the failed write', () => errors.includes('Writing when the copy was complete failed'));
  await rm(roleFile(directory), { recursive: true });
  const client = pair.client(t, url);
  await complete(client, pair.storage);
  assert.ok((await ask<Promotion>(client, 'POST', PROMOTE_PATH)).isComplete);
});

test('a first that accepts the connection and does not answer is not waited for', { timeout: 20_000 }, async (t) => {
  const pair = await Pair.open(t);
  pair.storage.fence = () => new Promise(() => undefined);
  const { ca, frontProxyCa } = pair.pki.material();
  const client = peerClient(pair.url, { ca: ca.certificatePem, frontProxyCa }, clock, { timeoutMs: 300 });
  t.after(() => client.close());
  await assert.rejects(askToStop(client, { by: 'https://10.0.0.2:6443' }), /did not answer within 0\.3 s/);
});

test('a first that was promoted does not stop for one that was promoted before it, nor for itself', async (t) => {
  const pair = await Pair.open(t);
  await writeRole(pair.directory, { role: 'promoted', from: pair.url, revision: 20, atMs: 40, isFenced: false });
  const client = pair.client(t);
  const stopFor = (promotedAt: number): Promise<number> =>
    codeOf(askToStop(client, { by: 'https://10.0.0.2:6443', promotedAt }));
  assert.deepEqual([await stopFor(10), await stopFor(20)], [409, 409]);
  await pair.storage.create('/core/x/a', Buffer.from('a'));
  assert.equal(readRole(pair.directory).role, 'promoted');
  assert.equal(await stopFor(30), 200);
  assert.equal(readRole(pair.directory).role, 'fenced');
});

test('the control plane that was promoted last is the first if both have data, whatever their clocks show', async (t) => {
  const pair = await Pair.open(t);
  const { ca, frontProxyCa } = pair.pki.material();
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true, force: true }));
  const own = await openSqliteStorage({ directory: join(directory, 'storage'), clock, logger });
  await own.create('/core/x/own', Buffer.from('own'));
  await own.close();
  const keys = { ca: ca.certificatePem, frontProxyCa };
  const options = { dataDirectory: directory, other: pair.url, keys, clock, logger };
  await assert.rejects(startRole(options), /has the data of a first control plane, and .* is one as well/);
  await writeRole(directory, { role: 'promoted', from: pair.url, revision: 20, atMs: 20, isFenced: false });
  await writeRole(pair.directory, {
    role: 'promoted',
    from: 'https://other:1',
    revision: 10,
    atMs: 30,
    isFenced: true,
  });
  assert.deepEqual(await startRole(options), { role: 'first' });
  await writeRole(pair.directory, {
    role: 'promoted',
    from: 'https://other:1',
    revision: 30,
    atMs: 10,
    isFenced: true,
  });
  assert.deepEqual(await startRole(options), { role: 'standby', completeAtMs: 0 });
  assert.equal(readRole(directory).role, 'fenced');
});

test('a standby that was promoted by a command before it had opened its copy starts as the first', async (t) => {
  const dataDirectory = temporaryFolder();
  t.after(() => rm(dataDirectory, { recursive: true, force: true }));
  await mkdir(join(dataDirectory, 'storage'));
  const standby = { role: 'standby', of: 'https://other:1', url: 'https://127.0.0.1:1', completeAtMs: 1 } as const;
  await writeRole(dataDirectory, standby);
  const kept = await openUnpromoted(dataDirectory, standby, logger);
  await kept?.copy?.close();
  assert.ok(kept?.copy !== undefined);
  const promoted = { role: 'promoted', from: 'https://other:1', revision: 3, atMs: 2, isFenced: false } as const;
  await writeRole(dataDirectory, promoted);
  assert.equal(await openUnpromoted(dataDirectory, standby, logger), undefined);
  // What was promoted longer ago is followed by another promotion, or has lost its database.
  const again = await openUnpromoted(dataDirectory, promoted, logger);
  await again?.copy?.close();
  assert.ok(again?.copy !== undefined);
});

test('a follower says why it is not connected, and an unreachable first costs no memory', async (t) => {
  const pair = await Pair.open(t);
  await pair.disappear();
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true, force: true }));
  const options = {
    directory,
    url: 'https://127.0.0.1:1',
    client: pair.client(t),
    clock,
    logger,
    completeAtMs: 0,
    onComplete: () => assert.fail('nothing is complete'),
    onLost: (error: Error) => assert.fail(error),
  };
  const follower = Follower.start(options, await openCopy(options));
  await until('a reason', () => follower.state.problem !== undefined);
  assert.equal(await follower.reaches(5, 10), false);
  assert.deepEqual([follower.state.isConnected, follower.state.completeAtMs], [false, 0]);
  await follower.close();
  assert.ok(follower.isStopped);
});

test('a snapshot that cannot take the place of the copy leaves no file behind', async (t) => {
  const pair = await Pair.open(t);
  await pair.storage.create('/core/x/a', Buffer.from('a'));
  const started = Promise.withResolvers<void>();
  const copyTo = pair.storage.copyTo.bind(pair.storage);
  pair.storage.copyTo = (file) => {
    pair.storage.copyTo = () => new Promise(() => undefined);
    return started.promise.then(() => copyTo(file));
  };
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true, force: true }));
  const options = {
    directory,
    url: 'https://127.0.0.1:1',
    client: pair.client(t),
    clock,
    logger,
    completeAtMs: 0,
    onComplete: () => assert.fail('nothing is complete'),
    onLost: (error: Error) => assert.fail(error),
  };
  const follower = Follower.start(options, await openCopy(options));
  await until('a connection', () => follower.state.isConnected);
  const target = join(directory, 'orchlet.db');
  await rm(target);
  await mkdir(join(target, 'occupied'), { recursive: true });
  started.resolve();
  await until('a failure', () => follower.state.problem !== undefined);
  assert.ok(!(await readdir(directory)).includes('incoming.db'));
  await follower.stop();
});

test('a client that reads nothing is given up after a minute', async () => {
  const virtual = new FakeClock();
  const exchange = fakeExchange();
  const writer = new FrameWriter(Object.assign(exchange, { write: () => false, onDrain: () => undefined }), virtual);
  const written = writer.write({ type: 'compacted' });
  const failed = assert.rejects(written, /has read nothing for 60 s/);
  await virtual.advance(60_000);
  await failed;
});

test('the loss is reported with the age of the copy, and with what is known to be missing', () => {
  const copy = { revision: 90, newestRevision: 95, completeAtMs: 1000 };
  assert.match(
    lossOf(copy, 6000),
    /ends at revision 90 and was complete 5 s ago .* It is known to lack 5 revisions\. .* is not in it\./,
  );
  assert.ok(!lossOf({ ...copy, newestRevision: 90 }, 0).includes('known to lack'));
});

test('the server of a standby is alive, is not ready for a reason, and shows metrics to administrators', async (t) => {
  const pair = await Pair.open(t);
  const { apiserver, ca } = pair.pki.material();
  const isNobody = (): boolean => false;
  const server = createStandbyServer({
    tls: { cert: apiserver.certificatePem, key: apiserver.privateKeyPem },
    isPeer: isNobody,
    isAdministrator: () => true,
    routes: [],
    metrics: new MetricsRegistry(),
    reason: () => 'it only copies',
    clock,
    logger,
  });
  const { port } = await server.listen(0, '127.0.0.1');
  t.after(() => server.close());
  const client = new HttpClient({ server: `https://127.0.0.1:${port}`, ca: ca.certificatePem, clock });
  t.after(() => client.close());
  const codes = await Promise.all(
    ['/livez', '/healthz?verbose', '/metrics', '/readyz', '/', PROMOTE_PATH].map((path) =>
      codeOf(client.raw({ method: 'GET', path })),
    ),
  );
  assert.deepEqual(codes, [200, 200, 200, 503, 503, 403]);
  await assert.rejects(client.raw({ method: 'GET', path: '/api' }), /it only copies/);
});
