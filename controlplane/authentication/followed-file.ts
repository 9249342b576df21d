/**
 * Watches a configuration file and applies its content when it changes; an invalid file changes nothing. Each attempt is
 * counted in `apiserver_<what>_config_controller_*`, the metrics of kube-apiserver. Authentication, authorization and
 * encryption use it.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';

/** A file, and what applies its content. */
interface FollowOptions {
  readonly path: string;
  /** The first part of the metrics' names. */
  readonly what: 'authentication' | 'authorization' | 'encryption';
  /** The content that is already applied. */
  readonly text: string;
  /** Applies the text. Throws, without having changed anything, if the text is invalid. `close` aborts the signal. */
  readonly take: (text: string, signal: AbortSignal) => Promise<void> | void;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

/** A file that is followed until `close`. */
export interface FollowedFile {
  /** Checks now, and resolves to whether a changed file was applied. Otherwise the file is checked every few seconds. */
  check(): Promise<boolean>;
  close(): void;
}

const CHECK_EVERY_MS = 2000;
/** The maximum size of a file. No configuration is as large. */
const MOST_BYTES = 16 * 1024 * 1024;

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
    if (stats.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

/** Starts to check the file. The first version, `text`, counts as applied. */
export function followFile(options: FollowOptions): FollowedFile {
  const { path, what, take, clock, logger } = options;
  const counts = reloadCounts(options);
  const stop = new AbortController();
  let seen = options.text;
  let timer: Timer;
  counts.inForce(seen);

  const look = async (): Promise<boolean> => {
    try {
      const text = await contentOf(path);
      if (text === seen || stop.signal.aborted) return false;
      seen = text;
      await take(text, stop.signal);
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
  const check = (): Promise<boolean> => checks.run(look);
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
