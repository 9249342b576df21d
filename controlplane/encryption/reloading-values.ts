/**
 * `--encryption-provider-config-automatic-reload`: the configuration is read again when its file changes, without a restart.
 * A file that will not do changes nothing. What the configuration before sealed stays readable for a while, so that reads
 * that are under way end well.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { EncryptedValues } from './encrypted-values.ts';

export interface ReloadOptions {
  readonly path: string;
  readonly load: () => Promise<EncryptedValues>;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface ReloadingValues extends EncryptedValues {
  /** Reads the file again if it changed; whether it did and was taken. Called by itself each minute. */
  check(): Promise<boolean>;
}

const CHECK_EVERY_MS = 60_000;
const KEEP_PREVIOUS_MS = 60_000;

/** Throws where the file will not do at the start. */
export async function reloadingValues({ path, load, clock, logger }: ReloadOptions): Promise<ReloadingValues> {
  const mark = async (): Promise<string> =>
    createHash('sha256')
      .update(await readFile(path))
      .digest('base64');
  let seen = await mark();
  let current = await load();
  let previous: EncryptedValues | undefined;
  let isClosed = false;
  let checkTimer: Timer;
  let dropTimer: Timer | undefined;

  const dropPrevious = (): void => {
    dropTimer?.cancel();
    previous?.close();
    previous = undefined;
  };
  const take = (next: EncryptedValues): void => {
    dropPrevious();
    previous = current;
    current = next;
    dropTimer = clock.after(KEEP_PREVIOUS_MS, dropPrevious);
  };
  const check = async (): Promise<boolean> => {
    try {
      const now = await mark();
      if (now === seen) return false;
      seen = now;
      const next = await load();
      if (isClosed) {
        next.close();
        return false;
      }
      take(next);
      logger.info({ path }, 'Read the encryption configuration again');
      return true;
    } catch (error) {
      logger.error({ err: error, path }, 'The encryption configuration cannot be used; the old one stays in force');
      return false;
    }
  };
  const schedule = (): Timer =>
    clock.after(CHECK_EVERY_MS, () => {
      void check().then(() => {
        if (!isClosed) checkTimer = schedule();
      });
    });
  checkTimer = schedule();

  return {
    check,
    isEncrypted: (key) => current.isEncrypted(key),
    seal: (key, value) => current.seal(key, value),
    async unlock(values) {
      const list = [...values];
      await current.unlock?.(list);
    },
    open(key, kept) {
      try {
        return current.open(key, kept);
      } catch (error) {
        if (previous === undefined) throw error;
        return previous.open(key, kept);
      }
    },
    close() {
      isClosed = true;
      checkTimer.cancel();
      dropPrevious();
      current.close();
    },
  };
}
