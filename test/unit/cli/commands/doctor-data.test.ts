/** `orchlet doctor --data` examines, exports and restores a damaged database, and does not modify it. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let directory: string;
let data: string;
let file: string;

const open = (place: string): Promise<Storage> =>
  openSqliteStorage({ directory: join(place, 'storage'), clock: systemClock, logger: silentLogger });
const doctor = (...args: readonly string[]): Promise<Ran> => orchlet(['doctor', '--data', '--data-dir', data, ...args]);
const hashes = (): readonly string[] =>
  readdirSync(join(data, 'storage')).map(
    (name) =>
      `${name} ${createHash('sha256')
        .update(readFileSync(join(data, 'storage', name)))
        .digest('hex')}`,
  );

beforeEach(async () => {
  directory = temporaryFolder();
  data = join(directory, 'data');
  mkdirSync(join(data, 'pki'), { recursive: true });
  writeFileSync(join(data, 'pki/ca.crt'), 'certificate');
  const storage = await open(data);
  for (let at = 0; at < 50; at += 1) await storage.create(`/core/x/${at}`, Buffer.alloc(600, String(at % 10)));
  await storage.close();
  file = join(data, 'storage/orchlet.db');
});

test('a database without damage passes', async () => {
  const { code, stdout } = await doctor();
  assert.equal(code, 0);
  assert.match(stdout, /^✓ database {2}no damage was found; 50 records can be read, the newest has revision \d+\n$/);
});

test('a damaged database is described, exported, and restored elsewhere; its files stay as they are', async () => {
  const content = readFileSync(file);
  content.fill(0x5a, content.indexOf('/core/x/20') + 100, content.indexOf('/core/x/20') + 108);
  // The schema is damaged, so that the control plane refuses to start.
  content.fill(0, 100, 110);
  writeFileSync(file, content);
  await assert.rejects(open(data), /damaged|cannot be opened/);
  const before = hashes();
  const exported = join(directory, 'salvaged.tgz');
  const { code, stdout } = await doctor('--export', exported);
  assert.equal(code, 1);
  assert.match(stdout, /✗ database {2}rows that cannot be read: 1, of \/core\/x\/20\n/);
  assert.match(stdout, /✓ export {4}\S+salvaged\.tgz holds 49 objects/);
  assert.deepEqual(hashes(), before);
  assert.deepEqual(readdirSync(directory).sort(), ['data', 'salvaged.tgz'], 'nothing half-written');

  const other = join(directory, 'other');
  const restored = await orchlet(['restore', exported, '--data-dir', other]);
  assert.equal(restored.code, 0, restored.stderr);
  assert.equal(readFileSync(join(other, 'pki/ca.crt'), 'utf8'), 'certificate');
  const storage = await open(other);
  assert.equal((await storage.list('/core/x/')).items.length, 49);
  await storage.close();
});

test('something else than a database is described, not thrown', async () => {
  for (const content of [Buffer.alloc(0), Buffer.from('text'), Buffer.alloc(20_000, 0xff)]) {
    writeFileSync(file, content);
    const { code, stdout, stderr } = await doctor('--output', 'json');
    assert.deepEqual([code, stderr], [1, '']);
    assert.match(stdout, /header of the file is not that of a database of orchlet/);
  }
});

test('it requires a stopped control plane, its data, and a file that does not exist yet', async () => {
  const exported = join(directory, 'there');
  copyFileSync(file, exported);
  assert.match((await doctor('--export', exported)).stderr, /there exists/);
  assert.match((await orchlet(['doctor', '--export', exported])).stderr, /--export goes with --data/);
  rmSync(join(data, 'storage'), { recursive: true });
  assert.match((await doctor()).stderr, /orchlet\.db is missing: give the --data-dir/);
  assert.ok(!existsSync(join(data, 'storage')));
});
