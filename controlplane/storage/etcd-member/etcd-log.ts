/** Reads the end of the log file of an etcd that orchlet runs, for errors, and limits the size of the file. */
import { copyFile, open, stat, truncate } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';

const LIMIT_BYTES = 8 * 1024 * 1024;
const CHECK_MS = 60_000;
const TAIL_BYTES = 16 * 1024;
/** What etcd logs when it learns that its member was removed from the cluster. */
const REMOVED = /the member has been permanently removed from the cluster/;

/** The message for the operator when `wasRemoved` resolves to true. */
export const REMOVED_MESSAGE = 'this member was removed from the etcd cluster: remove its data to join again';

/** Reads the file at each call. If it does not exist, the log is empty. */
export class EtcdLog {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async lastLine(): Promise<string> {
    return (await this.#tail()).trim().split('\n').at(-1) ?? '';
  }

  /** Whether the member was removed from its cluster, so that it cannot start again. */
  async wasRemoved(): Promise<boolean> {
    return REMOVED.test(await this.#tail());
  }

  /** Resolves to 0 if there is no file. */
  async size(): Promise<number> {
    return (await stat(this.#path).catch(() => undefined))?.size ?? 0;
  }

  /**
   * Empties the file whenever it has more than 8 MiB, and keeps the older part, until the signal aborts. etcd opens the file to
   * append, so that it writes on after the file was shortened. Never rejects: a full disk has no room for the older part, and
   * the next turn tries again.
   */
  async limitSize(options: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly signal: AbortSignal;
  }): Promise<void> {
    const { logger } = options;
    const onError = (error: unknown): void => logger.error({ err: error }, 'The log of etcd cannot be shortened');
    await periodically(() => this.#shorten(), { ...options, periodMs: CHECK_MS, onError });
  }

  async #shorten(): Promise<void> {
    if ((await this.size()) <= LIMIT_BYTES) return;
    await copyFile(this.#path, `${this.#path}.old`);
    await truncate(this.#path);
  }

  async #tail(): Promise<string> {
    const file = await open(this.#path).catch(() => undefined);
    if (file === undefined) return '';
    try {
      const { size } = await file.stat();
      const start = Math.max(0, size - TAIL_BYTES);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(TAIL_BYTES), 0, TAIL_BYTES, start);
      return buffer.toString('utf8', 0, bytesRead);
    } finally {
      await file.close();
    }
  }
}
