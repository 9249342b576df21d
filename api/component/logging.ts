/**
 * The `Logger` that programs run with: pino, as JSON lines or as text lines for people, on stderr. Verbosity follows the
 * component flags: warnings and errors always, `info` from -v=0, `debug` from -v=4.
 */
import type { Logger as PinoLogger } from 'pino';
import type { Logger } from './logger.ts';

/** What `-v` said, and what is said later: looked at for each line. */
export interface Verbosity {
  level: number;
}

export interface LoggingOptions {
  readonly format: 'text' | 'json';
  /** A number, or one that may change while the program runs. */
  readonly verbosity: number | Verbosity;
  /** Where lines go; stderr without it. */
  readonly write?: (line: string) => void;
}

const DEBUG_FROM_VERBOSITY = 4;

export async function createLogger(options: LoggingOptions): Promise<Logger> {
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const verbosity = typeof options.verbosity === 'number' ? { level: options.verbosity } : options.verbosity;
  const isVerbose = (): boolean => verbosity.level >= DEBUG_FROM_VERBOSITY;
  return options.format === 'json' ? jsonLogger(isVerbose, write) : textLogger(isVerbose, write, {});
}

/** pino is loaded only by who wants JSON. */
async function jsonLogger(isVerbose: () => boolean, write: (line: string) => void): Promise<Logger> {
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
  return fromPino(logger, isVerbose);
}

function fromPino(logger: PinoLogger, isVerbose: () => boolean): Logger {
  return {
    debug: (fields, message) => (isVerbose() ? logger.debug(fields, message) : undefined),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields) => fromPino(logger.child(fields), isVerbose),
  };
}

function textLogger(isVerbose: () => boolean, write: (line: string) => void, bound: object): Logger {
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
    child: (fields) => textLogger(isVerbose, write, { ...bound, ...fields }),
  };
}

function textOf(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(value.stack ?? value.message);
  if (typeof value === 'string') return /^[\w./:@%+,-]+$/.test(value) ? value : JSON.stringify(value);
  return (
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? inner.toString() : inner)) ?? 'undefined'
  );
}
