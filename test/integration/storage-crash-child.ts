/**
 * Writes concurrently until it is killed. It records each value in a file before the write (`+`) and after its acknowledgement
 * (`=`). `storage-crash.test.ts` runs it.
 */
import { openSync, writeSync } from 'node:fs';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';

const [directory = '', notes = '', round = '0'] = process.argv.slice(2);
const file = openSync(notes, 'a');
const storage = await openSqliteStorage({ directory, clock: systemClock, logger: silentLogger });

/** Writes a line synchronously, so that no acknowledgement is lost in this process. */
const writeLine = (line: string): void => void writeSync(file, `${line}\n`);

async function writer(id: number): Promise<void> {
  for (let n = 0; ; n += 1) {
    const key = `/core/x/${id}-${n % 5}`;
    // The value fills several pages, so that a partial write would be visible.
    const value = `${round}.${id}.${n}.`.padEnd(200 + ((id * 7919 + n * 104729) % 9000), String(n % 10));
    const current = await storage.get(key);
    if (current !== undefined && n % 7 === 6) {
      writeLine(`+ ${key} -`);
      writeLine(`= ${key} - ${await storage.delete(key, current.revision)}`);
      continue;
    }
    writeLine(`+ ${key} ${value}`);
    const bytes = Buffer.from(value);
    const { revision } =
      current === undefined ? await storage.create(key, bytes) : await storage.update(key, bytes, current.revision);
    writeLine(`= ${key} ${value} ${revision}`);
    if (id === 0 && n === 0) process.stdout.write('writing\n');
    if (n % 50 === 49) await storage.compact(revision);
  }
}

await Promise.all(Array.from({ length: 20 }, (_, id) => writer(id)));
