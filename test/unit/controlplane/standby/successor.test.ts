/** A first control plane remembers its standbys, and asks them at its next start whether one was promoted. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { ensurePki } from '../../../../controlplane/security/pki/pki.ts';
import { Listener } from '../../../../controlplane/server/listener.ts';
import { firstRoutes } from '../../../../controlplane/standby/first.ts';
import { peerCheck } from '../../../../controlplane/standby/identity.ts';
import { FIRST_PATH, type FirstReport, peerPaths, sendJson } from '../../../../controlplane/standby/peer-paths.ts';
import { readRole, writeRole } from '../../../../controlplane/standby/role.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { isStorageError } from '../../../../controlplane/storage/storage.ts';
import { readStandbys, refuseSuccessor, rememberStandby } from '../../../../controlplane/standby/successor.ts';

const clock = systemClock;
const logger = silentLogger;

async function dataDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'orchlet-successor-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/**
 * Resolves to a control plane with the keys of the directory. It answers with its promotion, or as a standby, which has no
 * such path.
 */
async function otherPlane(t: TestContext, directory: string, promotion: FirstReport['promotion']): Promise<string> {
  const pki = await ensurePki({
    directory: join(directory, 'pki'),
    clock,
    logger,
    hosts: ['localhost'],
    addresses: () => ['127.0.0.1'],
    serviceIp: undefined,
  });
  const { frontProxyCa, apiserver } = pki.material();
  const report: FirstReport = { revision: 7, promotion };
  const takes = peerPaths({
    isPeer: peerCheck(frontProxyCa.certificatePem, clock),
    logger,
    clock,
    routes:
      promotion === undefined
        ? []
        : [{ method: 'GET', path: FIRST_PATH, handle: async ({ exchange }) => sendJson(exchange, 200, report) }],
  });
  const listener = new Listener({
    tls: { cert: apiserver.certificatePem, key: apiserver.privateKeyPem, clientCa: frontProxyCa.certificatePem },
    clock,
    logger,
    onExchange: (exchange) => assert.ok(takes(exchange)),
  });
  t.after(() => listener.close(0));
  return `https://127.0.0.1:${(await listener.listen(0, '127.0.0.1')).port}`;
}

const promotedAt = (revision: number): FirstReport['promotion'] => ({ from: 'https://first:1', revision, atMs: 5 });

test('the newest standbys are remembered, each once', async (t) => {
  const directory = await dataDirectory(t);
  assert.deepEqual(readStandbys(directory), []);
  for (const name of ['a', 'b', 'a', 'c', 'd', 'e']) await rememberStandby(directory, `https://${name}:1`);
  assert.deepEqual(readStandbys(directory), ['https://a:1', 'https://c:1', 'https://d:1', 'https://e:1']);
  const file = join(directory, 'storage/standbys.json');
  assert.equal(await readFile(file, 'utf8'), `${JSON.stringify({ standbys: readStandbys(directory) })}\n`);
  await writeFile(file, '{"standbys":["http://no-tls"]}');
  assert.throws(() => readStandbys(directory), /standbys\.json cannot be read/);
});

test('a first whose standby was promoted while it did not run does not start, and has the mark of a former first', async (t) => {
  const directory = await dataDirectory(t);
  const url = await otherPlane(t, directory, promotedAt(3));
  await rememberStandby(directory, url);
  await assert.rejects(refuseSuccessor({ dataDirectory: directory, clock, logger }), (error: Error) =>
    error.message.includes(`start it with --standby-of ${url}`),
  );
  const role = readRole(directory);
  assert.ok(role.role === 'fenced' && role.by === url);
});

test('a first starts if its standby is still one, was promoted before it, or does not answer', async (t) => {
  for (const [promotion, own] of [
    [undefined, undefined],
    [promotedAt(3), 1_000_003],
  ] as const) {
    const directory = await dataDirectory(t);
    await rememberStandby(directory, await otherPlane(t, directory, promotion));
    await rememberStandby(directory, 'https://127.0.0.1:1');
    const role = { role: 'promoted', from: 'https://other:1', atMs: 1, isFenced: true } as const;
    if (own !== undefined) await writeRole(directory, { ...role, revision: own });
    await refuseSuccessor({ dataDirectory: directory, clock, logger });
    assert.equal(readRole(directory).role, own === undefined ? 'first' : 'promoted');
  }
});

test('a first that did not run for a while writes only after it has asked its standbys', async (t) => {
  for (const [promotion, isWritten] of [
    [promotedAt(3), false],
    [undefined, true],
  ] as const) {
    const directory = await dataDirectory(t);
    await rememberStandby(directory, await otherPlane(t, directory, promotion));
    const storage = await openSqliteStorage({ directory: join(directory, 'storage'), clock, logger });
    const stop = new AbortController();
    t.after(async () => {
      stop.abort();
      await storage.close();
    });
    let stoppedMs = 0;
    firstRoutes({
      storage,
      dataDirectory: directory,
      clock: { ...clock, monotonic: () => clock.monotonic() + stoppedMs },
      logger,
      metrics: new MetricsRegistry(),
      signal: stop.signal,
      onFatal: undefined,
    });
    await storage.create('/core/x/before', Buffer.from('a'));
    stoppedMs = 10_000;
    const write = storage.create('/core/x/after', Buffer.from('a'));
    if (isWritten) await write;
    else await assert.rejects(write, (error) => isStorageError(error, 'unavailable'));
    assert.equal((await storage.list('/core/x/')).items.length, isWritten ? 2 : 1);
    assert.equal(readRole(directory).role, isWritten ? 'first' : 'fenced');
  }
});
