/** `library.ts PATH` uses the npm package at PATH as a test does, and prints a `LibraryReport` as JSON. */
import type { startControlPlane } from '../../controlplane/main.ts';

export interface LibraryReport {
  readonly importMs: number;
  /** The second start of the process: the first one compiles. */
  readonly startMs: number;
  readonly closeMs: number;
  /** The resident memory of a process with two control planes. */
  readonly rssMib: number;
}

async function timed<T>(run: () => Promise<T>): Promise<{ readonly result: T; readonly ms: number }> {
  const started = performance.now();
  const result = await run();
  return { result, ms: performance.now() - started };
}

const { result: library, ms: importMs } = await timed(
  () => import(process.argv[2] ?? '') as Promise<{ readonly startControlPlane: typeof startControlPlane }>,
);
const first = await library.startControlPlane({ memory: true });
const { result: second, ms: startMs } = await timed(() => library.startControlPlane({ memory: true }));
const rssMib = process.memoryUsage.rss() / 1024 / 1024;
const { ms: closeMs } = await timed(() => second.close());
await first.close();
const report: LibraryReport = { importMs, startMs, closeMs, rssMib };
process.stdout.write(`${JSON.stringify(report)}\n`);
