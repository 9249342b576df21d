/**
 * Implements `--encryption-provider-config-automatic-reload`: it replaces the storage's value transformer when the
 * configuration file changes. The previous configuration can still decrypt for a while, so that running reads succeed.
 */
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { EncryptedValues } from './encrypted-values.ts';

const KEEP_PREVIOUS_MS = 60_000;

/** Values whose configuration can be replaced while the storage uses them. */
interface ReloadingValues extends EncryptedValues {
  /** Uses `next` for encryption from now on. `close` also closes it. */
  replace(next: EncryptedValues): void;
}

/**
 * Returns a transformer whose configuration can be replaced. `close` closes the current and the previous configuration, and
 * every later one as it is set.
 */
export function reloadingValues(first: EncryptedValues, clock: Clock): ReloadingValues {
  let current = first;
  let previous: EncryptedValues | undefined;
  let isClosed = false;
  let dropTimer: Timer | undefined;
  const dropPrevious = (): void => {
    dropTimer?.cancel();
    previous?.close();
    previous = undefined;
  };
  return {
    replace(next) {
      if (isClosed) return next.close();
      dropPrevious();
      previous = current;
      current = next;
      dropTimer = clock.after(KEEP_PREVIOUS_MS, dropPrevious);
    },
    get keyServices() {
      return current.keyServices;
    },
    isEncrypted: (key) => current.isEncrypted(key),
    seal: (key, value, context) => current.seal(key, value, context),
    async unlock(values) {
      const list = [...values];
      // If the previous configuration cannot fetch a key any more, `open` fails for the values of that key alone.
      await Promise.all([current.unlock(list), previous?.unlock(list).catch(() => undefined)]);
    },
    open(key, stored, context) {
      try {
        return current.open(key, stored, context);
      } catch (error) {
        if (previous === undefined) throw error;
        return previous.open(key, stored, context);
      }
    },
    close() {
      isClosed = true;
      dropPrevious();
      current.close();
    },
  };
}
