/**
 * Handles exceptions and rejections that nothing else handled. The state of the program is unknown then, so the stack is
 * logged and the process exits; systemd starts it again (`Restart=` of the units), and pods run on meanwhile.
 */
import type { Logger } from '../../api/component/logger.ts';

/** EX_SOFTWARE of sysexits.h. */
export const INTERNAL_ERROR_EXIT_CODE = 70;

let lastResortLogger: Pick<Logger, 'error'> = {
  error: (fields, message) => {
    const { err } = fields as { readonly err?: unknown };
    process.stderr.write(`orchlet: ${message}: ${err instanceof Error ? (err.stack ?? err.message) : String(err)}\n`);
  },
};

/** Logs the error with its stack and exits with 70 (EX_SOFTWARE of sysexits.h). */
export function exitUnexpectedly(error: unknown): void {
  try {
    // stderr is written synchronously on Linux: the line is out before the exit.
    lastResortLogger.error({ err: error }, 'The program failed unexpectedly and exits');
  } finally {
    process.exit(INTERNAL_ERROR_EXIT_CODE);
  }
}

/** Handles unhandled rejections too: Node.js raises them as uncaught exceptions. */
export function installLastResort(): void {
  process.on('uncaughtException', exitUnexpectedly);
}

/** Makes later last-resort errors go to the log of the command. */
export function logLastResortTo(logger: Pick<Logger, 'error'>): void {
  lastResortLogger = logger;
}
