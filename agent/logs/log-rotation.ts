/**
 * Keeps the logs of running containers within `--container-log-max-size` and `--container-log-max-files`: a log that has
 * grown is moved to `<log>.<time>`, the runtime opens a new one, older ones are compressed to `.gz`, the oldest go.
 *
 * The newest rotated file stays as it is: readers that follow the log finish it, and the Docker log writer finds in it where
 * it was. What a killed agent left half done is put right by the next rotation.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { type ContainerStatus, type Runtime, RuntimeError } from '../runtime/runtime.ts';

export interface LogRotationOptions {
  readonly runtime: Pick<Runtime, 'listContainers' | 'reopenLog'>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** 0 or less: logs grow as they like. */
  readonly maxSizeBytes: number;
  /** The log and its rotated files together; at least 2. */
  readonly maxFiles: number;
  readonly checkMs: number;
  /** Logs looked at in parallel. */
  readonly workers: number;
}

const COMPRESSED = '.gz';
const UNFINISHED = '.tmp';

export class LogRotation {
  readonly #options: LogRotationOptions;

  constructor(options: LogRotationOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, checkMs, maxSizeBytes } = this.#options;
    if (maxSizeBytes <= 0) return;
    while (!signal.aborted) {
      await clock.sleep(checkMs, signal).catch(() => undefined);
      if (!signal.aborted) await this.rotateAll(signal);
    }
  }

  /** One look at all running containers; a log that cannot be rotated holds up no other. */
  async rotateAll(signal: AbortSignal): Promise<void> {
    const { runtime, logger, workers } = this.#options;
    let waiting: ContainerStatus[];
    try {
      waiting = (await runtime.listContainers()).filter(({ state, logPath }) => state === 'running' && logPath !== '');
    } catch (error) {
      logger.debug({ error }, 'Cannot list the containers whose logs may have to be rotated');
      return;
    }
    const work = async (): Promise<void> => {
      for (let next = waiting.pop(); next !== undefined && !signal.aborted; next = waiting.pop()) {
        try {
          await this.#look(next);
        } catch (error) {
          // The next look finds it as it is, and tries again.
          logger.error({ error, path: next.logPath, container: next.id }, 'Cannot rotate a container log');
        }
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, workers) }, work));
  }

  async #look({ id, logPath }: ContainerStatus): Promise<void> {
    const { runtime, maxSizeBytes } = this.#options;
    let size: number;
    try {
      ({ size } = await stat(logPath));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      // Somebody took it away: without a new one the container would write into nowhere.
      await runtime.reopenLog(id);
      return;
    }
    if (size >= maxSizeBytes) await this.#rotate(id, logPath);
  }

  async #rotate(id: ContainerStatus['id'], log: string): Promise<void> {
    const rotated = await withoutLeftovers(log);
    // Twice within a second there is no name for: the next look comes soon enough.
    if (rotated.includes(this.#nameOf(log))) return;
    // One place for the log, one for what it becomes now.
    const excess = rotated.length - (this.#options.maxFiles - 2);
    for (const path of rotated.slice(0, Math.max(0, excess))) await rm(path, { force: true });
    for (const path of rotated.slice(Math.max(0, excess))) {
      if (!path.endsWith(COMPRESSED)) await compress(path);
    }
    await this.#moveAway(id, log);
  }

  #nameOf(log: string): string {
    return `${log}.${timestamp(this.#options.clock.now())}`;
  }

  async #moveAway(id: ContainerStatus['id'], log: string): Promise<void> {
    const { runtime } = this.#options;
    const path = this.#nameOf(log);
    await rename(log, path);
    try {
      await runtime.reopenLog(id);
    } catch (error) {
      // It still writes into the old file, under whatever name.
      await rename(path, log);
      // It has ended meanwhile: its log is complete.
      if (error instanceof RuntimeError && error.code === 'not-found') return;
      throw error;
    }
  }
}

/** The rotated files of a log, oldest first. */
export async function rotatedLogs(log: string): Promise<readonly string[]> {
  const directory = dirname(log);
  const prefix = `${basename(log)}.`;
  const names = await readdir(directory);
  return names
    .filter((name) => name.startsWith(prefix))
    .toSorted()
    .map((name) => join(directory, name));
}

/** Removes what an interrupted compression left: unfinished files, and originals beside their compressed form. */
async function withoutLeftovers(log: string): Promise<readonly string[]> {
  const all = await rotatedLogs(log);
  const compressed = new Set(all.filter((path) => path.endsWith(COMPRESSED)));
  const isLeftover = (path: string): boolean => path.endsWith(UNFINISHED) || compressed.has(path + COMPRESSED);
  for (const path of all.filter(isLeftover)) await rm(path, { force: true });
  return all.filter((path) => !isLeftover(path));
}

async function compress(path: string): Promise<void> {
  const unfinished = `${path}${UNFINISHED}`;
  try {
    await pipeline(createReadStream(path), createGzip(), createWriteStream(unfinished, { mode: 0o640 }));
    const file = await open(unfinished, 'r');
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(unfinished, path + COMPRESSED);
  } finally {
    await rm(unfinished, { force: true });
  }
  await rm(path);
}

/** `20260102-150405`, in UTC. */
function timestamp(nowMs: number): string {
  const digits = new Date(nowMs).toISOString().replaceAll(/\D/g, '');
  return `${digits.slice(0, 8)}-${digits.slice(8, 14)}`;
}
