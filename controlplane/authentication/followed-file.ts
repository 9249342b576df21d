/**
 * Follows a configuration file: what it says is put in force anew when its content changes; a file that will not do changes
 * nothing. Each attempt is counted under the names that kube-apiserver's controllers have, `apiserver_<what>_config_controller_*`.
 * Used for authentication, authorization and encryption.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Logger } from '../../api/component/logger.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';

export interface FollowOptions {
  readonly path: string;
  /** The first part of the metrics' names. */
  readonly what: 'authentication' | 'authorization' | 'encryption';
  /** What is in force already. */
  readonly text: string;
  /** Puts the text in force. Throws where it will not do, and has changed nothing then. The signal ends with `close`. */
  readonly take: (text: string, signal: AbortSignal) => Promise<void> | void;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
}

export interface FollowedFile {
  /** Looks now; whether the file had changed and was taken. Otherwise called every few seconds. */
  check(): Promise<boolean>;
  close(): void;
}

const CHECK_EVERY_MS = 2000;

const sha256 = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`;

/** Tells servers of one cluster apart in metrics without giving their names. */
function serverIdHash(host = hostname()): string {
  return sha256(`apiserver-${createHash('sha256').update(host).digest('hex').slice(0, 26)}`);
}

export function followFile(options: FollowOptions): FollowedFile {
  const { path, what, take, clock, logger } = options;
  const counts = reloadCounts(options);
  const stop = new AbortController();
  let seen = options.text;
  let timer: Timer;
  counts.inForce(seen);

  const look = async (): Promise<boolean> => {
    try {
      const text = await readFile(path, 'utf8');
      if (text === seen || stop.signal.aborted) return false;
      seen = text;
      await take(text, stop.signal);
      counts.inForce(text);
      counts.count('success');
      logger.info({ path }, `Took up the changed ${what} configuration`);
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
  /** A slow check must not overtake a later one. */
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
