/**
 * Measures the single executable: its size, the time of a start with and without unpacking, and its memory. `bench.ts` calls
 * it.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Print } from './bench.ts';
import { type Server, startServer } from './server.ts';

const ROOT = join(import.meta.dirname, '../..');
const MIB = 1024 * 1024;
const ROUNDS = 5;

/** Builds the executable in a temporary folder and measures it. */
export async function executable(print: Print): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-executable-'));
  try {
    execFileSync(join(ROOT, 'scripts/build-binary'), [directory], { stdio: ['ignore', 'ignore', 'inherit'] });
    const program = join(directory, 'orchlet');
    const start = (): Promise<Server> =>
      startServer({ program, environment: { ORCHLET_UNPACK_DIR: join(directory, 'unpacked') } });
    print('executable: size', statSync(program).size / MIB, 'MiB');
    const first = await start();
    print('executable: first start to /readyz, unpacking itself', first.readyAfterMs, 'ms');
    await first.stop();
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const server = await start();
      times.push(server.readyAfterMs);
      await server.stop();
    }
    times.sort((a, b) => a - b);
    print('executable: start to /readyz, median of 5', times[Math.floor(ROUNDS / 2)] ?? 0, 'ms');
    const server = await start();
    await sleep(10_000);
    print('executable: resident memory of an empty control plane', (await server.rssBytes()) / MIB, 'MiB');
    await server.stop();
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
