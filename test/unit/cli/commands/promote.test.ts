/** Tests `orchlet promote`, `orchlet demote`, and the commands that can be a standby. */
import assert from 'node:assert/strict';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { controlplane } from '../../../../cli/commands/controlplane.ts';
import { up } from '../../../../cli/commands/up.ts';
import { standBy } from '../../../../cli/cluster/stand-by.ts';
import { REVISION_LEAP } from '../../../../controlplane/storage/log-backend.ts';
import { readRole, writeRole } from '../../../../controlplane/standby/role.ts';
import { LogCopy } from '../../../../controlplane/storage/sqlite/log-copy.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const OTHER = 'https://10.0.0.1:6443';

/** Resolves to a data directory with three writes. */
async function dataOf(t: TestContext): Promise<{ directory: string; revision: number }> {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, 'pki'));
  const storage = await openSqliteStorage({
    directory: join(directory, 'storage'),
    clock: new FakeClock(),
    logger: silentLogger,
  });
  for (const name of ['a', 'b', 'c']) await storage.create(`/core/x/${name}`, Buffer.from(name));
  const revision = storage.revision();
  await storage.close();
  return { directory, revision };
}

const promoted = (directory: string, ...flags: string[]): Promise<Ran> =>
  orchlet(['promote', '--data-dir', directory, ...flags]);

test('promoting what is no standby is refused', async (t) => {
  const { directory } = await dataOf(t);
  for (const command of [promoted(directory, '--force'), promoted(join(directory, 'none'))]) {
    const { code, stderr } = await command;
    assert.equal(code, 1);
    assert.match(stderr, /has no copy of a standby/);
  }
  await writeRole(directory, { role: 'promoted', from: OTHER, revision: 3, atMs: 1, isFenced: true });
  assert.match((await promoted(directory)).stderr, /has no copy of a standby: it is that of a first control plane/);
});

test('a standby that does not run is promoted by force alone, with revisions that nobody has seen', async (t) => {
  const { directory, revision } = await dataOf(t);
  const completeAtMs = Date.UTC(2026, 0, 1);
  await writeRole(directory, { role: 'standby', of: OTHER, url: 'https://127.0.0.1:1', completeAtMs });
  const dry = await promoted(directory, '--dry-run');
  assert.match(
    dry.stdout,
    new RegExp(`The copy ends at revision ${revision} and was complete \\d+ s ago \\(2026-01-01T00:00:00Z\\)`),
  );
  const refused = await promoted(directory);
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /no standby runs here, so https:\/\/10\.0\.0\.1:6443 cannot be asked to stop\. .* with --force/,
  );
  assert.equal(readRole(directory).role, 'standby');
  const done = await promoted(directory, '--force');
  assert.equal(done.code, 0, done.stderr);
  const role = readRole(directory);
  assert.ok(role.role === 'promoted' && role.from === OTHER && role.revision === revision && !role.isFenced);
  const storage = await openSqliteStorage({
    directory: join(directory, 'storage'),
    clock: new FakeClock(),
    logger: silentLogger,
  });
  assert.equal((await storage.create('/core/x/d', Buffer.from('d'))).revision, revision + REVISION_LEAP + 1);
  await storage.close();
});

test('a copy that was never complete is not promoted, even by force', async (t) => {
  const { directory } = await dataOf(t);
  await writeRole(directory, { role: 'standby', of: OTHER, url: 'https://127.0.0.1:1', completeAtMs: 0 });
  const { code, stderr } = await promoted(directory, '--force');
  assert.equal(code, 1);
  assert.match(stderr, /never complete/);
});

test('a former first is made the first again by force, which says what is lost, with revisions that its successor did not use', async (t) => {
  const { directory, revision } = await dataOf(t);
  await writeRole(directory, { role: 'fenced', by: OTHER, atMs: 1 });
  assert.match((await promoted(directory)).stderr, /took its place at .*; what was written there is lost/);
  assert.equal((await promoted(directory, '--force')).code, 0);
  const role = readRole(directory);
  // The successor was promoted with a revision that is not higher, and wrote above one leap.
  assert.ok(role.role === 'promoted' && role.revision === revision + REVISION_LEAP);
  const copy = await LogCopy.open(join(directory, 'storage'));
  assert.equal(copy.lastRevision, revision + 2 * REVISION_LEAP);
  await copy.close();
});

test('demoting needs the data of a first, and the other control plane', async (t) => {
  const { directory } = await dataOf(t);
  const demoted = (): Promise<Ran> => orchlet(['demote', 'https://127.0.0.1:1', '--data-dir', directory]);
  assert.match((await demoted()).stderr, /lacks the keys of the cluster/);
  assert.equal(readRole(directory).role, 'first');
  await writeRole(directory, { role: 'standby', of: OTHER, url: 'https://127.0.0.1:1', completeAtMs: 5 });
  assert.match((await demoted()).stderr, /is not that of a first control plane: start it with --standby-of/);
});

test('a standby is not saved: its first is', async (t) => {
  const { directory } = await dataOf(t);
  await writeRole(directory, { role: 'standby', of: OTHER, url: 'https://127.0.0.1:1', completeAtMs: 5 });
  const { code, stderr } = await orchlet(['backup', join(directory, 'out.tgz'), '--data-dir', directory]);
  assert.equal(code, 1);
  assert.match(stderr, /has the copy of a standby: save the first control plane, https:\/\/10\.0\.0\.1:6443/);
});

test('a control plane with and without an agent can be a standby, and is none without the flag', async () => {
  assert.ok('standbyOf' in controlplane.flags);
  assert.ok('standbyOf' in up.flags);
  const shutdown = { asked: new Promise<string>(() => undefined), signal: new AbortController().signal };
  const failure = { onFatal: () => undefined, happened: new Promise<Error>(() => undefined), exitCode: 74 };
  for (const flags of [{}, { standbyOf: '' }])
    assert.equal(await standBy({ flags, logger: silentLogger, shutdown, failure }), 'start');
});
