/**
 * The `Logger` that programs run with: pino, as JSON lines or as text lines for people, on stderr. Verbosity follows the
 * component flags: warnings and errors always, `info` from -v=0, `debug` from -v=4.
 */
import { createRequire } from 'node:module';
import type { Logger as PinoLogger } from 'pino';
import type { Logger } from './logger.ts';

export interface LoggingOptions {
  readonly format: 'text' | 'json';
  readonly verbosity: number;
  /** Where lines go; stderr without it. */
  readonly write?: (line: string) => void;
}

const DEBUG_FROM_VERBOSITY = 4;

export function createLogger(options: LoggingOptions): Logger {
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const level = options.verbosity >= DEBUG_FROM_VERBOSITY ? 'debug' : 'info';
  return options.format === 'json' ? jsonLogger(level, write) : textLogger(level, write, {});
}

/** pino is loaded only by who wants JSON. */
function jsonLogger(level: string, write: (line: string) => void): Logger {
  const { pino } = createRequire(import.meta.url)('pino') as typeof import('pino');
  const logger = pino(
    {
      level,
      base: null,
      messageKey: 'msg',
      timestamp: () => `,"ts":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write },
  );
  return fromPino(logger);
}

function fromPino(logger: PinoLogger): Logger {
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields) => fromPino(logger.child(fields)),
  };
}

function textLogger(level: string, write: (line: string) => void, bound: object): Logger {
  const line = (label: string, fields: object, message: string): void => {
    const facts = Object.entries({ ...bound, ...fields })
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => ` ${key}=${textOf(value)}`)
      .join('');
    write(`${new Date().toISOString()} ${label} ${message}${facts}\n`);
  };
  return {
    debug: level === 'debug' ? (fields, message) => line('debug', fields, message) : () => undefined,
    info: (fields, message) => line('info ', fields, message),
    warn: (fields, message) => line('warn ', fields, message),
    error: (fields, message) => line('error', fields, message),
    child: (fields) => textLogger(level, write, { ...bound, ...fields }),
  };
}

function textOf(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(value.stack ?? value.message);
  if (typeof value === 'string') return /^[\w./:@%+,-]+$/.test(value) ? value : JSON.stringify(value);
  return (
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? inner.toString() : inner)) ?? 'undefined'
  );
}
