/**
 * Keeps the logs of running containers within `--container-log-max-size` and `--container-log-max-files`. A log that
 * reaches the size is renamed to `<log>.<time>`, and the runtime opens a new one. Older files are compressed to `.gz`, and
 * the oldest are removed.
 *
 * The newest rotated file stays uncompressed, because followers of the log read it to its end and the Docker log writer
 * finds its position in it. The next rotation completes one that was interrupted.
 */
import { constants } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import type { Directory } from '../../base/files/beneath.ts';
import { type ContainerStatus, type Runtime, RuntimeError } from '../runtime.ts';
import { inLogFolder, rotatedNames } from './log-files.ts';

interface LogRotationOptions {
  readonly runtime: Pick<Runtime, 'listContainers' | 'reopenLog'>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** 0 or less disables the rotation. */
  readonly maxSizeBytes: number;
  /** The maximum number of files, the current log included; at least 2. */
  readonly maxFiles: number;
  readonly checkMs: number;
  /** The number of logs that are checked at the same time. */
  readonly workers: number;
}

/**
 * The maximum size of a file that is compressed. A pod with a host path could put a sparse file there, whose compression takes
 * years.
 */
const MAX_COMPRESSED_BYTES = 4 * 1024 ** 3;
const COMPRESSED = '.gz';
const UNFINISHED = '.tmp';

/** Rotates logs in turns. A failed rotation is logged and repeated in the next turn. */
export class LogRotation {
  readonly #options: LogRotationOptions;

  constructor(options: LogRotationOptions) {
    this.#options = options;
  }

  /** Rotates logs periodically until the signal aborts. Does nothing without a maximum size. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, checkMs, maxSizeBytes } = this.#options;
    if (maxSizeBytes <= 0) return;
    const onError = (error: unknown): void => logger.error({ err: error }, 'Cannot rotate container logs');
    await periodically(() => this.rotateAll(signal), { clock, periodMs: checkMs, signal, onError, first: 'later' });
  }

  /** Checks the logs of all running containers once. A failed rotation does not prevent the others. */
  async rotateAll(signal: AbortSignal): Promise<void> {
    const { runtime, logger, workers } = this.#options;
    let waiting: ContainerStatus[];
    try {
      waiting = (await runtime.listContainers()).filter(({ state, logPath }) => state === 'running' && logPath !== '');
    } catch (error) {
      logger.debug({ err: error }, 'Cannot list the containers for log rotation');
      return;
    }
    const work = async (): Promise<void> => {
      for (let next = waiting.pop(); next !== undefined && !signal.aborted; next = waiting.pop()) {
        try {
          await this.#rotateIfLarge(next);
        } catch (error) {
          // The next check retries the rotation.
          logger.error({ err: error, path: next.logPath, container: next.id }, 'Cannot rotate a container log');
        }
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, workers) }, work));
  }

  async #rotateIfLarge({ id, logPath }: ContainerStatus): Promise<void> {
    const { runtime, maxSizeBytes } = this.#options;
    await inLogFolder(logPath, async (folder, name) => {
      let size: number;
      try {
        const found = await folder.lstat(name);
        if (!found.isFile()) throw new Error(`${logPath} is not a regular file`);
        ({ size } = found);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        // The log was removed. Until the runtime opens a new one, the output of the container is lost.
        await runtime.reopenLog(id);
        return;
      }
      if (size >= maxSizeBytes) await this.#rotate(id, folder, name);
    });
  }

  async #rotate(id: ContainerStatus['id'], folder: Directory, log: string): Promise<void> {
    const rotated = await withoutLeftovers(folder, log);
    // Names have a resolution of one second. A second rotation waits for the next check.
    const moved = `${log}.${timestamp(this.#options.clock.now())}`;
    if (rotated.includes(moved)) return;
    // One of the files is the current log, and another is the one that is being rotated.
    const excess = rotated.length - (this.#options.maxFiles - 2);
    for (const name of rotated.slice(0, Math.max(0, excess))) await folder.removeTree(name);
    for (const name of rotated.slice(Math.max(0, excess))) {
      if (name.endsWith(COMPRESSED)) continue;
      const found = await folder.lstat(name);
      // A pod with a host path may put a link or a FIFO there: it stays as it is, and does not stop the rotation.
      if (found.isFile() && found.size <= MAX_COMPRESSED_BYTES) await compress(folder, name);
    }
    await this.#moveAway(id, folder, log, moved);
  }

  async #moveAway(id: ContainerStatus['id'], folder: Directory, log: string, moved: string): Promise<void> {
    const { runtime } = this.#options;
    await folder.rename(log, moved);
    try {
      await runtime.reopenLog(id);
    } catch (error) {
      // The runtime still writes into the old file, under whatever name.
      await folder.rename(moved, log);
      // The container has terminated meanwhile, so that its log is complete.
      if (error instanceof RuntimeError && error.code === 'not-found') return;
      throw error;
    }
  }
}

/**
 * Removes what an interrupted compression left: unfinished files, and originals beside their compressed form. Returns the names
 * of the other rotated files, the oldest first.
 */
async function withoutLeftovers(folder: Directory, log: string): Promise<readonly string[]> {
  const all = await rotatedNames(folder, log);
  const compressed = new Set(all.filter((name) => name.endsWith(COMPRESSED)));
  const isLeftover = (name: string): boolean => name.endsWith(UNFINISHED) || compressed.has(name + COMPRESSED);
  for (const name of all.filter(isLeftover)) await folder.removeTree(name);
  return all.filter((name) => !isLeftover(name));
}

async function compress(folder: Directory, name: string): Promise<void> {
  const unfinished = `${name}${UNFINISHED}`;
  const { O_CREAT, O_EXCL, O_WRONLY } = constants;
  try {
    const source = await folder.openFile(name);
    const target = await folder
      .openFile(unfinished, O_WRONLY | O_CREAT | O_EXCL, 0o640)
      .catch(async (error: unknown) => {
        await source.close();
        throw error;
      });
    // The streams close their files; `flush` syncs the written one before.
    await pipeline(source.createReadStream(), createGzip(), target.createWriteStream({ flush: true }));
    await folder.rename(unfinished, name + COMPRESSED);
  } finally {
    await folder.removeTree(unfinished);
  }
  await folder.unlink(name);
}

/** Formats a time as in names of rotated logs: `20260102-150405`, in UTC. */
function timestamp(nowMs: number): string {
  const digits = new Date(nowMs).toISOString().replaceAll(/\D/g, '');
  return `${digits.slice(0, 8)}-${digits.slice(8, 14)}`;
}
