/** Tests a write-ahead log after power failures, each of which left an arbitrary part of the last transaction on the disk. */
import assert from 'node:assert/strict';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { silentLogger } from '../../../../api/component/logger.ts';
import { salvage } from '../../../../controlplane/storage/sqlite/salvage.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

/** The size of a sector, which a disk writes as a whole or not at all. */
const SECTOR_BYTES = 512;

/** What one process writes before a power failure. */
interface Run {
  /** Sizes of the values that are written and acknowledged, one transaction each. */
  readonly acknowledged: readonly number[];
  /** Size of the value whose transaction the power failure interrupts. */
  readonly last: number;
  /** Whether each sector of that transaction reached the disk. The list is repeated if there are more sectors. */
  readonly sectors: readonly boolean[];
}

const openIn = (directory: string): Promise<Storage> =>
  openSqliteStorage({ directory, clock: new FakeClock(), logger: silentLogger });

/** Returns the log `before` with those of the changed sectors of `after` that `sectors` selects. */
function torn(before: Buffer, after: Buffer, sectors: readonly boolean[]): Buffer {
  const left = Buffer.alloc(after.length);
  before.copy(left);
  for (let at = 0, drawn = 0; at < after.length; at += SECTOR_BYTES) {
    const end = Math.min(at + SECTOR_BYTES, after.length);
    if (after.subarray(at, end).equals(left.subarray(at, end))) continue;
    if (sectors[drawn % sectors.length] === true) after.copy(left, at, at, end);
    drawn += 1;
  }
  return left;
}

/** Writes, fails as without power, and leaves the files as they are then. Returns the keys that were acknowledged. */
async function runUntilFailure(
  directory: string,
  { acknowledged, last, sectors }: Run,
  name: string,
): Promise<string[]> {
  const [file, log] = [join(directory, 'orchlet.db'), join(directory, 'orchlet.db-wal')];
  const storage = await openIn(directory);
  const keys: string[] = [];
  for (const [at, size] of acknowledged.entries())
    keys.push((await storage.create(`/core/x/${name}-${at}`, Buffer.alloc(size, 'a'))).key);
  const [database, before] = [await readFile(file), await readFile(log)];
  await storage.create(`/core/y/${name}`, Buffer.alloc(last, 'l'));
  const after = await readFile(log);
  await storage.close();
  // Closing has moved the log into the file.
  await writeFile(file, database);
  await writeFile(log, torn(before, after, sectors));
  return keys;
}

/** Asserts that the database is intact after each power failure, and has all acknowledged keys after the last one. */
async function survives(runs: readonly Run[]): Promise<void> {
  const directory = temporaryFolder();
  try {
    const keys: string[] = [];
    for (const [at, run] of runs.entries()) {
      keys.push(...(await runUntilFailure(directory, run, `run-${at}`)));
      assert.deepEqual(salvage(join(directory, 'orchlet.db')).damage, []);
    }
    const storage = await openIn(directory);
    const { items } = await storage.list('/core/x/');
    assert.deepEqual(items.map(({ key }) => key).sort(), keys.sort());
    await storage.close();
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

describe('a write-ahead log after several power failures', { timeout: 120_000 }, () => {
  it('is not damaged by the end of a large transaction behind the end of a smaller one', async () => {
    const sectors = [true, true, true, false, true, true];
    await survives([
      { acknowledged: [100], last: 120_000, sectors },
      { acknowledged: [100], last: 40_000, sectors },
      { acknowledged: [], last: 10_000, sectors },
    ]);
  });

  it('is not damaged by the mark of a commit in one sector and the salts of a later write in the next', async () => {
    const [yes, no] = [true, false];
    await survives([
      { acknowledged: [14_505, 1973], last: 112_981, sectors: [no, yes, yes, no, yes, no, yes] },
      {
        acknowledged: [13_444, 13_260, 17_593, 13_189],
        last: 102_749,
        sectors: [no, yes, yes, no, yes, no, no, yes, no, yes],
      },
      { acknowledged: [8073], last: 100_798, sectors: [no] },
      { acknowledged: [13_040], last: 58_546, sectors: [yes, yes, no, no, yes, yes, yes, yes, yes, yes] },
    ]);
  });

  it('has everything that was acknowledged, and can be opened and examined', async () => {
    const run = fc.record({
      acknowledged: fc.array(fc.nat(20_000), { maxLength: 4 }),
      last: fc.nat(120_000),
      sectors: fc.array(fc.boolean(), { minLength: 1, maxLength: 40 }),
    });
    await fc.assert(fc.asyncProperty(fc.array(run, { minLength: 1, maxLength: 4 }), survives), { numRuns: 15 });
  });
});
