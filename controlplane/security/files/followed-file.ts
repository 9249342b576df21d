/**
 * Watches a configuration file and applies its content when it changes; an invalid file changes nothing. A file may be read
 * while it is written, and the beginning of a configuration can be valid and permit more than the whole: content is applied
 * once two checks in a row have read it. Each attempt is counted in `apiserver_<what>_config_controller_*`, the metrics of
 * kube-apiserver.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Logger } from '../../../api/component/logger.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';

/** A file, and what applies its content. */
interface FollowOptions {
  readonly path: string;
  /** The first part of the metrics' names. */
  readonly what: 'authentication' | 'authorization' | 'encryption';
  /** The content that is already applied. */
  readonly text: string;
  /**
   * Returns the function that applies the text. Throws if the text is invalid. The function may reject if it has changed
   * nothing, for example because a server has not answered. It is then called again after a minute. `close` aborts the signal.
   */
  readonly parse: (text: string) => (signal: AbortSignal) => Promise<void> | void;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

/** A file that is followed until `close`. */
export interface FollowedFile {
  /**
   * Checks now, and resolves to whether a file was applied that had changed before the last check. The file is also checked
   * every few seconds.
   */
  check(): Promise<boolean>;
  close(): void;
}

const CHECK_EVERY_MS = 2000;
const TRY_AGAIN_MS = 60_000;
/** The maximum size of a file. */
const MAX_BYTES = 16 * 1024 * 1024;

const sha256 = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`;

/** Distinguishes the servers of a cluster in metrics without revealing their names. */
function serverIdHash(): string {
  return sha256(`apiserver-${createHash('sha256').update(hostname()).digest('hex').slice(0, 26)}`);
}

/** Opens without waiting, because nothing may ever write to a FIFO that has taken the place of the file. */
async function contentOf(path: string): Promise<string> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new Error('it is no regular file');
    if (stats.size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

/** Starts to check the file. The first version, `text`, counts as applied. */
export function followFile(options: FollowOptions): FollowedFile {
  const { path, what, parse, clock, logger } = options;
  const counts = reloadCounts(options);
  const stop = new AbortController();
  let applied = options.text;
  /** The last text that was read, and the last one that is invalid. */
  let lastRead = options.text;
  let invalidText: string | undefined;
  let notBeforeMs = 0;
  let timer: Timer;
  counts.inForce(applied);

  const parsed = (text: string): ReturnType<FollowOptions['parse']> => {
    try {
      return parse(text);
    } catch (error) {
      invalidText = text;
      throw error;
    }
  };

  const checkOnce = async (): Promise<boolean> => {
    try {
      const text = await contentOf(path);
      if (text !== lastRead) {
        lastRead = text;
        notBeforeMs = 0;
        return false;
      }
      if (text === applied || text === invalidText || stop.signal.aborted) return false;
      if (clock.monotonic() < notBeforeMs) return false;
      const apply = parsed(text);
      notBeforeMs = clock.monotonic() + TRY_AGAIN_MS;
      await apply(stop.signal);
      applied = text;
      counts.inForce(text);
      counts.count('success');
      logger.info({ path }, `Reloaded the changed ${what} configuration`);
      return true;
    } catch (error) {
      if (stop.signal.aborted) return false;
      counts.count('failure');
      logger.error(
        { err: error, path },
        `The changed ${what} configuration cannot be used; the old one stays in force`,
      );
      return false;
    }
  };
  /** Serializes the checks, so that a slow one cannot overwrite a later one. */
  const checks = new SerialQueue();
  const check = (): Promise<boolean> => checks.run(checkOnce);
  const schedule = (): Timer =>
    clock.after(CHECK_EVERY_MS, () => {
      const checked = check().finally(() => {
        if (!stop.signal.aborted) timer = schedule();
      });
      background(checked, { logger, what: `Checking the ${what} configuration`, fields: { path } });
    });
  timer = schedule();
  return {
    check,
    close() {
      stop.abort(new Error('the server is closed'));
      timer.cancel();
    },
  };
}

function reloadCounts({ what, clock, metrics }: FollowOptions) {
  const prefix = `apiserver_${what}_config_controller`;
  const server = serverIdHash();
  const total = metrics.counter({
    name: `${prefix}_automatic_reloads_total`,
    help: `How often a changed ${what} configuration was taken up, or was not.`,
    labels: ['apiserver_id_hash', 'status'],
  });
  const lastTime = metrics.gauge({
    name: `${prefix}_automatic_reload_last_timestamp_seconds`,
    help: `When a changed ${what} configuration was last taken up, or was not.`,
    labels: ['apiserver_id_hash', 'status'],
  });
  const info = metrics.gauge({
    name: `${prefix}_last_config_info`,
    help: `The hash of the ${what} configuration in force.`,
    labels: ['apiserver_id_hash', 'hash'],
  });
  let current: string | undefined;
  return {
    count(status: 'success' | 'failure'): void {
      total.with(server, status).inc();
      lastTime.with(server, status).set(clock.now() / 1000);
    },
    inForce(text: string): void {
      if (current !== undefined) info.delete(server, current);
      current = sha256(text);
      info.with(server, current).set(1);
    },
  };
}
