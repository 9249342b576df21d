/** Tests `orchlet backup` and `restore` with a bucket, and the schedule that keeps only the newest backups there. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { s3Place } from '../../../../cli/backup/place.ts';
import { takeBackup } from '../../../../cli/backup/schedule.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FAKE_S3_KEYS, FakeS3 } from '../../../fakes/fake-s3.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let server: FakeS3;
let directory: string;
let env: Record<string, string>;

const open = () =>
  openSqliteStorage({ directory: join(directory, 'storage'), clock: systemClock, logger: silentLogger });
const run = (...args: readonly string[]): Promise<Ran> => orchlet([...args, '--data-dir', directory], { env });

beforeEach(async () => {
  server = await FakeS3.start();
  directory = temporaryFolder();
  env = {
    AWS_ACCESS_KEY_ID: FAKE_S3_KEYS.id,
    AWS_SECRET_ACCESS_KEY: FAKE_S3_KEYS.secret,
    AWS_REGION: FAKE_S3_KEYS.region,
    AWS_ENDPOINT_URL_S3: server.endpoint,
  };
  const storage = await open();
  await storage.create('/registry/configmaps/default/kept', Buffer.from('{"kept":true}'));
  await storage.close();
});
afterEach(async () => {
  await server.stop();
});

test('a backup is uploaded to the bucket and restored from it, and no temporary file remains on the disk', async () => {
  const taken = await run('backup', 's3://backups/east/cluster.tgz');
  assert.deepEqual([taken.code, taken.stderr], [0, '']);
  assert.match(
    taken.stdout,
    /^s3:\/\/backups\/east\/cluster\.tgz holds the control plane of \S+: 1 objects at revision \d+\n$/,
  );
  assert.deepEqual([...server.objects.keys()], ['/backups/east/cluster.tgz']);
  assert.deepEqual(readdirSync(join(directory, 'backup')), []);

  rmSync(join(directory, 'storage'), { recursive: true });
  const restored = await run('restore', 's3://backups/east/cluster.tgz');
  assert.deepEqual([restored.code, restored.stderr], [0, '']);
  const storage = await open();
  assert.deepEqual(
    (await storage.list('/')).items.map(({ key }) => key),
    ['/registry/configmaps/default/kept'],
  );
  await storage.close();
  assert.deepEqual(
    readdirSync(directory).filter((name) => name.startsWith('restoring-')),
    [],
  );
});

test('a server that gives back something else than it took is no place for a backup', async () => {
  server.fault = (request, response) => request.method === 'GET' && response.writeHead(200).end('else') !== undefined;
  const taken = await run('backup', 's3://backups/cluster.tgz');
  assert.equal(taken.code, 1);
  assert.match(taken.stderr, /returns other content than was written as cluster\.tgz/);
  assert.deepEqual([...server.objects.keys()], [], 'what was not verified is no backup');
});

test('a refusal is one line, and changes nothing', async () => {
  env['AWS_SECRET_ACCESS_KEY'] = 'wrong';
  for (const command of ['backup', 'restore']) {
    const ran = await run(command, 's3://backups/cluster.tgz');
    assert.equal(ran.code, 1);
    assert.match(ran.stderr, /^orchlet: S3 (PUT|GET) \S+ answered 403 SignatureDoesNotMatch: no & no\n$/);
  }
  assert.deepEqual(readdirSync(directory).sort(), ['backup', 'storage']);
  const bare = await run('backup', 's3://backups');
  assert.equal(bare.code, 2);
  assert.match(bare.stderr, /names a bucket: name a file in it/);
});

test('a file from a bucket is checked like any other file', async () => {
  server.objects.set('/backups/cluster.tgz', Buffer.from('not an archive'));
  const restored = await run('restore', 's3://backups/cluster.tgz');
  assert.equal(restored.code, 1);
  assert.match(restored.stderr, /cannot be read as a backup/);
  assert.ok(existsSync(join(directory, 'storage/orchlet.db')));
});

test('the newest scheduled backups are kept in the bucket, and objects of others stay', async (t) => {
  const before = { ...process.env };
  Object.assign(process.env, env);
  t.after(() => (process.env = before));
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  const place = await s3Place('s3://backups/east', { endpoint: '', region: '' }, systemClock);
  server.objects.set('/backups/east/notes.txt', Buffer.from(''));
  server.objects.set('/backups/west/orchlet-20250101T030000Z.tgz', Buffer.from(''));
  const write = async (target: string): Promise<void> =>
    void server.objects.set(target.replace('s3:/', ''), Buffer.from(''));
  for (let day = 0; day < 4; day += 1) {
    await takeBackup({ place, keep: 2, clock, logger: silentLogger, write });
    await clock.advance(24 * 3600_000);
  }
  assert.deepEqual([...server.objects.keys()].sort(), [
    '/backups/east/notes.txt',
    '/backups/east/orchlet-20260104T030000Z.tgz',
    '/backups/east/orchlet-20260105T030000Z.tgz',
    '/backups/west/orchlet-20250101T030000Z.tgz',
  ]);
});
