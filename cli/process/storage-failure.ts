/**
 * Exits the process when it can no longer use its storage. After a failure of the storage, the outcome of the last write is
 * unknown, so nothing in memory is reliable. systemd (`Restart=always` or `on-failure`) starts it again, and recovery reads
 * what is on the disk. The process also exits when another control plane has taken its place.
 */
import type { Logger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { FencedError } from '../../controlplane/standby/role.ts';

/** The exit code `EX_IOERR` of sysexits.h. */
const EXIT_CODE = 74;

interface StorageFailure {
  /** Is passed to `startControlPlane`, which may call it at any time. The process exits soon afterwards. */
  readonly onFatal: (error: Error) => void;
  /** Resolves with the error. */
  readonly happened: Promise<Error>;
  readonly exitCode: number;
}

/**
 * Creates the reaction to a failed storage. After `onFatal`, the process has `closingMs` milliseconds to close its other
 * parts, and then exits.
 */
export function onStorageFailure(logger: Logger, { closingMs }: { readonly closingMs: number }): StorageFailure {
  const happened = Promise.withResolvers<Error>();
  return {
    onFatal(error) {
      logStorageFailure(logger, error);
      systemClock.after(closingMs, () => process.exit(EXIT_CODE));
      happened.resolve(error);
    },
    happened: happened.promise,
    exitCode: EXIT_CODE,
  };
}

/** Logs why the process exits, and the remedy if a restart does not help. */
export function logStorageFailure(logger: Logger, error: Error): void {
  if (error instanceof FencedError) {
    const remedy = `start it with --standby-of ${error.successor} to make it the standby`;
    logger.error(
      { successor: error.successor, remedy },
      'Another control plane has taken the place of this one, so the process exits',
    );
    return;
  }
  logger.error({ err: error }, 'The storage cannot be relied on any more, so the process exits to be restarted');
}
