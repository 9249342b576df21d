/** Salvage of damaged databases: everything that is read is correct, and the files are not modified. */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomInt } from 'node:crypto';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { salvage, type Salvage, writeSalvaged } from '../../../../controlplane/storage/sqlite/salvage.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const PAGE = 4096;
const LOG_HEADER = 32;
const FRAME = 24 + PAGE;

/** Returns the number of frames that a write-ahead log has before the zeros that are allocated for later ones. */
function framesOf(log: string): number {
  const bytes = readFileSync(log);
  let count = Math.floor((bytes.length - LOG_HEADER) / FRAME);
  while (count > 0 && bytes.readUInt32BE(LOG_HEADER + (count - 1) * FRAME) === 0) count -= 1;
  return count;
}

let directory: string;
let file: string;
/** The values that each object had at any time, by key. */
const written = new Map<string, Set<string>>();

const digest = (value: Buffer): string => createHash('sha256').update(value).digest('hex');
const open = (place = directory): Promise<Storage> =>
  openSqliteStorage({ directory: place, clock: new FakeClock(), logger: silentLogger });
const hashes = (): string =>
  readdirSync(directory)
    .sort()
    .map((name) => `${name} ${digest(readFileSync(join(directory, name)))}`)
    .join('\n');

async function put(storage: Storage, key: string, sizeBytes: number): Promise<void> {
  const value = randomBytes(sizeBytes);
  const current = await storage.get(key);
  if (current === undefined) await storage.create(key, value);
  else await storage.update(key, value, current.revision);
  written.set(key, (written.get(key) ?? new Set()).add(digest(value)));
}

/**
 * Creates a database of 300 small and large objects, some of them changed or deleted. The process closes it, or is killed.
 * `last` is the key of an additional object, which is written last.
 */
async function make({ killed = false, last }: { killed?: boolean; last?: string } = {}): Promise<void> {
  const storage = await open();
  const all = Array.from({ length: 300 }, (_, at) => at);
  await Promise.all(all.slice(0, 200).map((at) => put(storage, `/core/x/${at}`, at % 10 === 0 ? 20_000 : 300)));
  for (const at of all.slice(200)) await put(storage, `/core/x/${at}`, at % 10 === 0 ? 20_000 : 300);
  for (let at = 0; at < 300; at += 7) await put(storage, `/core/x/${at}`, 500);
  for (let at = 5; at < 300; at += 50) {
    const current = await storage.get(`/core/x/${at}`);
    await storage.delete(`/core/x/${at}`, current?.revision ?? 0);
  }
  if (last !== undefined) await put(storage, last, 20_000);
  const log = `${file}-wal`;
  const kept = killed ? ([readFileSync(file), readFileSync(log)] as const) : undefined;
  await storage.close();
  if (kept === undefined) return;
  writeFileSync(file, kept[0]);
  writeFileSync(log, kept[1]);
}

/** Restores the salvaged objects to a new database, and checks each of them against the written values. */
async function restored(found: Salvage): Promise<ReadonlySet<string>> {
  const place = mkdtempSync(join(directory, 'restored-'));
  writeSalvaged(join(place, 'orchlet.db'), found);
  const storage = await open(place);
  const { items } = await storage.list('/');
  await storage.close();
  rmSync(place, { recursive: true });
  for (const { key, value } of items)
    assert.ok(written.get(key)?.has(digest(value)), `${key} holds what was never written`);
  return new Set(items.map(({ key }) => key));
}

function overwrite(place: string, at: number, bytes: Buffer): void {
  const content = readFileSync(place);
  bytes.copy(content, at);
  writeFileSync(place, content);
}

beforeEach(() => {
  directory = temporaryFolder();
  file = join(directory, 'orchlet.db');
  written.clear();
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe('a database', () => {
  for (const killed of [false, true]) {
    it(`without damage, ${killed ? 'with the log of a killed process' : 'closed'}, is read whole, and not written`, async () => {
      await make({ killed });
      const before = hashes();
      const found = salvage(file);
      assert.deepEqual(found.damage, []);
      assert.equal(hashes(), before);
      const keys = await restored(found);
      assert.equal(keys.size, 294);
      assert.ok(!keys.has('/core/x/5'), 'what was deleted stays deleted');
    });
  }

  it('with random damage in any of its pages loses those pages alone, and gives nothing that was never written', async () => {
    await make();
    const whole = readFileSync(file);
    const pages = whole.length / PAGE;
    for (let round = 0; round < 12; round += 1) {
      writeFileSync(file, whole);
      const damaged = [1, 2, 3].map(() => randomInt(pages));
      for (const page of damaged) overwrite(file, page * PAGE + randomInt(PAGE - 64), randomBytes(64));
      const before = hashes();
      const found = salvage(file);
      assert.equal(hashes(), before);
      const keys = await restored(found);
      // A page holds about ten small rows.
      assert.ok(keys.size > 220, `only ${keys.size} objects with damage in pages ${damaged.join(', ')}`);
    }
  });

  it('whose root and header are gone is read page by page', async () => {
    await make();
    overwrite(file, 0, Buffer.alloc(PAGE));
    overwrite(file, 2 * PAGE, Buffer.alloc(PAGE));
    const found = salvage(file);
    assert.match(
      found.damage.join('\n'),
      /header of the file[^]*cannot be found: every page is searched[^]*not connected to the rest/,
    );
    assert.ok((await restored(found)).size > 280);
  });

  it('that was cut off keeps what is before the cut, and names what is missing', async () => {
    await make();
    const pages = statSync(file).size / PAGE;
    truncateSync(file, Math.floor(pages / 2) * PAGE);
    const found = salvage(file);
    assert.match(found.damage.join('\n'), /the file ends after \d+ of \d+ pages: \d+ are missing/);
    const { size } = await restored(found);
    assert.ok(size > 80 && size < 294, String(size));
    truncateSync(file, 100);
    assert.deepEqual([...(await restored(salvage(file)))], []);
  });

  it('names the objects whose rows are damaged', async () => {
    await make();
    const content = readFileSync(file);
    const at = content.indexOf('/core/x/33');
    overwrite(file, at + 30, Buffer.alloc(8, 0x5a));
    const found = salvage(file);
    assert.match(found.damage.join('\n'), /rows that cannot be read: 1, of \/core\/x\/33/);
    assert.equal((await restored(found)).size, 293);
  });
});

describe('the write-ahead log', () => {
  it('with a damaged frame gives what is before it and the newer writes behind it', async () => {
    await make({ killed: true });
    const log = `${file}-wal`;
    const frames = framesOf(log);
    overwrite(log, LOG_HEADER + Math.floor(frames / 2) * FRAME + 100, Buffer.alloc(64, 0x5a));
    const before = hashes();
    const found = salvage(file);
    assert.equal(hashes(), before);
    assert.match(found.damage.join('\n'), /the write-ahead log is damaged; \d+ writes behind the damage are taken/);
    assert.ok((await restored(found)).size > 280);
  });

  it('whose last transaction was cut off by a power failure is not damaged, and is read without that transaction', async () => {
    await make({ killed: true, last: '/core/x/last' });
    const log = `${file}-wal`;
    const frames = framesOf(log);
    assert.ok((await restored(salvage(file))).has('/core/x/last'));
    overwrite(log, LOG_HEADER + (frames - 2) * FRAME + 100, Buffer.alloc(64, 0x5a));
    const found = salvage(file);
    assert.deepEqual(found.damage, []);
    const keys = await restored(found);
    assert.equal(keys.size, 294);
    assert.ok(!keys.has('/core/x/last'));
  });

  it('with a damaged header is read by its frames', async () => {
    await make({ killed: true });
    overwrite(`${file}-wal`, 0, Buffer.alloc(LOG_HEADER, 0x5a));
    assert.ok((await restored(salvage(file))).size > 280);
  });

  it('that is missing leaves what the file has', async () => {
    await make({ killed: true });
    rmSync(`${file}-wal`);
    await restored(salvage(file));
    assert.ok(!existsSync(`${file}-wal`));
  });
});
