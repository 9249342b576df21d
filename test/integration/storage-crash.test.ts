/**
 * Kills the process of the embedded storage at random moments: acknowledged writes survive, no write survives partially, and
 * revisions never decrease.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ROUNDS = 50;
const GONE = '-';

/** The possible values of a key: the last acknowledged one, or one that was being written after it. */
interface Expected {
  acknowledged: string;
  underWay: string | undefined;
}

class Ledger {
  readonly keys = new Map<string, Expected>();
  revision = 0;
  acknowledged = 0;

  take(line: string): void {
    const [sign, key = '', value = '', revision] = line.split(' ');
    const expected = this.keys.get(key) ?? { acknowledged: GONE, underWay: undefined };
    this.keys.set(key, expected);
    if (sign === '+') expected.underWay = value;
    else {
      expected.acknowledged = value;
      expected.underWay = undefined;
      this.revision = Math.max(this.revision, Number(revision));
      this.acknowledged += 1;
    }
  }
}

/** Runs the child for a random time after it has begun to write, and then kills it. */
async function round(directory: string, number: number, ledger: Ledger): Promise<void> {
  const script = join(import.meta.dirname, 'storage-crash-child.ts');
  const notes = join(directory, `notes-${number}`);
  const child = spawn(process.execPath, [script, directory, notes, String(number)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  child.stdout.once('data', () => setTimeout(() => child.kill('SIGKILL'), Math.random() * 60));
  await exited;
  assert.equal(child.signalCode, 'SIGKILL');
  const lines = (await readFile(notes, 'utf8')).split('\n');
  // The last line may be incomplete, because the child was killed while it wrote the line.
  for (const line of lines.slice(0, -1)) ledger.take(line);
  await rm(notes);
}

async function check(directory: string, ledger: Ledger): Promise<void> {
  const storage = await openSqliteStorage({ directory, clock: systemClock, logger: silentLogger });
  try {
    assert.ok(storage.revision() >= ledger.revision, 'revisions went back');
    ledger.revision = storage.revision();
    const { items } = await storage.list('/core/x/');
    const found = new Map(items.map((item) => [item.key, item.value.toString()]));
    for (const [key, expected] of ledger.keys) {
      const value = found.get(key) ?? GONE;
      const allowed = [expected.acknowledged, expected.underWay];
      assert.ok(
        allowed.includes(value),
        `${key} holds ${value.slice(0, 40)}, not ${expected.acknowledged.slice(0, 40)}`,
      );
      expected.acknowledged = value;
      expected.underWay = undefined;
    }
    assert.ok([...found.keys()].every((key) => ledger.keys.has(key)));
  } finally {
    await storage.close();
  }
}

async function sequence(rounds: number): Promise<void> {
  const directory = temporaryFolder();
  try {
    const ledger = new Ledger();
    for (let number = 0; number < rounds; number += 1) {
      await round(directory, number, ledger);
      await check(directory, ledger);
    }
    assert.ok(ledger.acknowledged >= rounds, 'too little was written to show anything');
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

it('every acknowledged write survives SIGKILL, no partial write does, and revisions never decrease', async () => {
  // The rounds run in parallel, because a round mostly starts processes.
  await Promise.all([sequence(ROUNDS / 2), sequence(ROUNDS / 2)]);
});
