/**
 * Measures what users install: the bundled program, and the npm package in a process of its own, as the tests of a controller
 * load it. `bench.ts` calls it.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Print } from './bench.ts';
import type { LibraryReport } from './library.ts';
import { startServer, type ServerOptions } from './server.ts';

const ROOT = join(import.meta.dirname, '../..');
const ROUNDS = 5;

/** Resolves to the median time of five starts, in milliseconds. `options` makes those of each start. */
export async function medianStart(options: (round: number) => ServerOptions): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const server = await startServer(options(round));
    times.push(server.readyAfterMs);
    await server.stop();
  }
  return median(times);
}

/** Builds the program and the npm package in a temporary folder and measures both. */
export async function installed(print: Print): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-installed-'));
  try {
    execFileSync(join(ROOT, 'scripts/build-program'), [join(directory, 'program')], { stdio: 'inherit' });
    const program = join(directory, 'program/bin/orchlet');
    const coldStart = await medianStart((round) => ({
      program,
      environment: { NODE_COMPILE_CACHE: join(directory, `cache-${round}`) },
    }));
    print('bundle: first start to /readyz, nothing compiled before, median of 5', coldStart, 'ms');
    print('bundle: start to /readyz, median of 5', await medianStart(() => ({ program })), 'ms');
    const build = [join(ROOT, 'scripts/build-package.ts'), join(directory, 'package')];
    execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', ...build], { stdio: 'inherit' });
    library(print, join(directory, 'package/dist/program/library.js'), join(directory, 'library-cache'));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function library(print: Print, path: string, cache: string): void {
  const run = (): LibraryReport => {
    const text = execFileSync(process.execPath, [join(import.meta.dirname, 'library.ts'), path], {
      encoding: 'utf8',
      env: { ...process.env, NODE_COMPILE_CACHE: cache },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return JSON.parse(text) as LibraryReport;
  };
  run(); // fills the compile cache
  const reports = Array.from({ length: ROUNDS }, run);
  const of = (field: keyof LibraryReport): number => median(reports.map((report) => report[field]));
  print('npm package: import, median of 5 processes', of('importMs'), 'ms');
  print('npm package: startControlPlane({ memory: true }), the second', of('startMs'), 'ms');
  print('npm package: close() of it', of('closeMs'), 'ms');
  print('npm package: memory of the process with two control planes', of('rssMib'), 'MiB');
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}
