/**
 * Writes to the embedded storage, with frequent checkpoints and compactions. `power-failures.ts` records what this program
 * writes to the disk. The lines of `notes` are `+ KEY TAG` before a write, and `= KEY TAG` and `@ REVISION` after it.
 */
import { join } from 'node:path';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../controlplane/storage/storage.ts';
import { Random } from '../soak/random.ts';
import { type Found, GONE, notesIn } from './ledger.ts';

const WRITERS = 8;
const WRITES = 40;
const KEYS_OF_WRITER = 5;
const PREFIX = '/core/x/';

/** The size of the disk reserve. A checkpoint begins when the write-ahead log has half of these bytes. */
const RESERVE_BYTES = 512 * 1024;

const open = (folder: string): Promise<Storage> =>
  openSqliteStorage({
    directory: join(folder, 'data/storage'),
    clock: systemClock,
    logger: silentLogger,
    reserveBytes: RESERVE_BYTES,
  });

/** Returns a value that begins with its tag. The rest fills several pages, so that a part of a value would be noticed. */
const valueOf = (tag: string, size: number): Buffer => Buffer.from(`${tag} ${size} `.padEnd(size, tag));

/** Opens the storage of the folder and reads the tags of all values. Throws for a part of a value. */
export async function readStorage(folder: string): Promise<Found> {
  const storage = await open(folder);
  try {
    const { items } = await storage.list(PREFIX);
    const values = new Map<string, string>();
    for (const { key, value } of items) {
      const [tag = '', size] = value.toString().split(' ', 2);
      if (!value.equals(valueOf(tag, Number(size)))) throw new Error(`${key} has a part of a value`);
      values.set(key, tag);
    }
    return { values, revision: storage.revision() };
  } finally {
    await storage.close();
  }
}

async function write(storage: Storage, writer: number, random: Random, note: (line: string) => void): Promise<void> {
  for (let count = 0; count < WRITES; count += 1) {
    const key = `${PREFIX}${writer}-${random.between(1, KEYS_OF_WRITER)}`;
    const current = await storage.get(key);
    const tag = current !== undefined && random.next() < 0.25 ? GONE : `${process.pid}.${writer}.${count}`;
    const value = valueOf(tag, random.pick([200, 3000, 20_000]));
    note(`+ ${key} ${tag}`);
    let revision: number;
    if (current === undefined) ({ revision } = await storage.create(key, value));
    else if (tag === GONE) revision = await storage.delete(key, current.revision);
    else ({ revision } = await storage.update(key, value, current.revision));
    note(`= ${key} ${tag}`);
    note(`@ ${revision}`);
    if (count % 20 === 19) await storage.compact(revision - random.between(0, 20));
  }
}

async function run(folder: string, seed: number): Promise<void> {
  const note = notesIn(join(folder, 'notes'));
  const storage = await open(folder);
  const writers = Array.from({ length: WRITERS }, (_, at) => write(storage, at, new Random(seed + at), note));
  await Promise.all(writers);
  // Closing moves the write-ahead log into the file and removes it.
  if (seed % 2 === 0) await storage.close();
  process.exit();
}

const [folder, seed] = process.argv.slice(2);
if (import.meta.main && folder !== undefined) await run(folder, Number(seed));
