/**
 * Implements the `Logger` of the programs: pino with JSON lines, or readable text lines, on stderr. The verbosity follows the
 * component flags: warnings and errors are always logged, `info` from -v=0 on, and `debug` from -v=4 on.
 */
import { quoteText } from '../meta/quote.ts';
import type { Logger as PinoLogger } from 'pino';
import type { Logger } from './logger.ts';

/** The current verbosity of `-v`. It can change at run time, so it is read for each line. */
export interface Verbosity {
  level: number;
}

interface LoggingOptions {
  readonly format: 'text' | 'json';
  /** A number, or an object whose value may change while the program runs. */
  readonly verbosity: number | Verbosity;
  /** Writes a line. The default writes to stderr. */
  readonly write?: (line: string) => void;
}

const DEBUG_FROM_VERBOSITY = 4;

/** Creates the logger of a command. Resolves when the writer has been loaded. */
export async function createLogger(options: LoggingOptions): Promise<Logger> {
  const { write, check } = options.write === undefined ? stderrLines() : { write: options.write, check: undefined };
  const verbosity = typeof options.verbosity === 'number' ? { level: options.verbosity } : options.verbosity;
  const isVerbose = (): boolean => verbosity.level >= DEBUG_FROM_VERBOSITY;
  return options.format === 'json' ? jsonLogger(isVerbose, write, check) : textLogger(isVerbose, write, check, {});
}

interface Lines {
  readonly write: (line: string) => void;
  readonly check: () => void;
}

/** Returns a writer to stderr. A line that cannot be written (the disk is full, the reader has closed the pipe) is lost. */
function stderrLines(): Lines {
  let failure: Error | undefined;
  process.stderr.on('error', (error) => (failure = error));
  return {
    write: (line) => {
      process.stderr.write(line, (error) => (failure = error ?? undefined));
    },
    check() {
      if (failure !== undefined) throw new Error(`the log cannot be written: ${failure.message}`);
    },
  };
}

type Check = (() => void) | undefined;
const withCheck = (check: Check): Pick<Logger, 'check'> => (check === undefined ? {} : { check });

/** Creates the logger of JSON lines. pino is loaded only for it. */
async function jsonLogger(isVerbose: () => boolean, write: (line: string) => void, check: Check): Promise<Logger> {
  const { default: pino } = await import('pino');
  const logger = pino(
    {
      level: 'debug',
      base: null,
      messageKey: 'msg',
      timestamp: () => `,"ts":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write },
  );
  return fromPino(logger, isVerbose, check);
}

function fromPino(logger: PinoLogger, isVerbose: () => boolean, check: Check): Logger {
  return {
    debug: (fields, message) => (isVerbose() ? logger.debug(fields, message) : undefined),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields) => fromPino(logger.child(fields), isVerbose, check),
    ...withCheck(check),
  };
}

function textLogger(isVerbose: () => boolean, write: (line: string) => void, check: Check, bound: object): Logger {
  const line = (label: string, fields: object, message: string): void => {
    const facts = Object.entries({ ...bound, ...fields })
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => ` ${key}=${textOf(value)}`)
      .join('');
    write(`${new Date().toISOString()} ${label} ${message}${facts}\n`);
  };
  return {
    debug: (fields, message) => (isVerbose() ? line('debug', fields, message) : undefined),
    info: (fields, message) => line('info ', fields, message),
    warn: (fields, message) => line('warn ', fields, message),
    error: (fields, message) => line('error', fields, message),
    child: (fields) => textLogger(isVerbose, write, check, { ...bound, ...fields }),
    ...withCheck(check),
  };
}

function textOf(value: unknown): string {
  if (value instanceof Error) return quoteText(value.stack ?? value.message);
  if (typeof value === 'string') return /^[\w./:@%+,-]+$/.test(value) ? value : quoteText(value);
  return (
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? inner.toString() : inner)) ?? 'undefined'
  );
}
