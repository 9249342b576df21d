/**
 * Reports the steps of work that may last long, such as a backup of a large database, to the error output of a command. A step
 * that is over within two seconds is not reported, unless it blocks the program (`largeStep`).
 */
import { stat } from 'node:fs/promises';
import { periodically } from '../../api/machinery/periodic.ts';
import type { CommandIo } from './io.ts';

const FIRST_MS = 2000;
const EVERY_MS = 10_000;
/** Work on a file of this size, during which nothing else runs, takes seconds. */
const LONG_BYTES = 64 * 1024 * 1024;

interface StepOptions {
  /** The file that the step writes, whose size is reported. */
  readonly file?: string;
}

/** Reports a step after two seconds, and then every ten seconds until it is over. `what` begins a sentence. */
export async function step<T>(
  { stderr, clock }: Pick<CommandIo, 'stderr' | 'clock'>,
  what: string,
  work: () => Promise<T>,
  { file }: StepOptions = {},
): Promise<T> {
  const done = new AbortController();
  const begunMs = clock.monotonic();
  let isFirst = true;
  let reportedMs = begunMs;
  const report = async (): Promise<void> => {
    const nowMs = clock.monotonic();
    if (!isFirst && nowMs - reportedMs < EVERY_MS) return;
    [isFirst, reportedMs] = [false, nowMs];
    // The file may not exist yet.
    const sizeBytes = file === undefined ? undefined : (await stat(file).catch(() => undefined))?.size;
    const size = sizeBytes === undefined ? '' : `, ${mebibytes(sizeBytes)}`;
    if (!done.signal.aborted) stderr.write(`${what}: ${Math.round((nowMs - begunMs) / 1000)} s${size}\n`);
  };
  const reporting = periodically(report, {
    clock,
    periodMs: FIRST_MS,
    signal: done.signal,
    // Without the report, the work goes on.
    onError: () => undefined,
    first: 'later',
  });
  try {
    return await work();
  } finally {
    done.abort();
    await reporting;
  }
}

/** Reports a step on a large file before it begins, because nothing can be reported during it. `what` begins a sentence. */
export async function largeStep<T>(
  { stderr }: Pick<CommandIo, 'stderr'>,
  what: string,
  file: string,
  work: () => T,
): Promise<T> {
  const { size } = await stat(file);
  if (size >= LONG_BYTES) stderr.write(`${what}, ${mebibytes(size)}\n`);
  return work();
}

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;
