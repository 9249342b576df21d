/**
 * Bounds the lines of the log that clients can cause, also those without credentials: they would fill the disk, or hide what
 * else happens.
 */
import type { Logger } from '../component/logger.ts';
import type { Clock } from './clock.ts';
import { RateLimiter } from './rate-limiter.ts';

const LINES_PER_MINUTE = 10;
/** The maximum length of a text in a field, in characters: a client chooses paths and names. */
const LONGEST_TEXT = 1024;

/** The lines with one message. */
interface MessageLines {
  readonly limiter: RateLimiter;
  suppressed: number;
}

type Level = 'info' | 'warn' | 'error';

/**
 * Returns a logger that writes ten lines of each message at once, and then ten a minute. The next line has the number of those
 * that were left out in the field `suppressed`. Long texts in fields are cut. Debug lines are not bounded, and the lines of
 * each child are counted apart.
 */
export function limitedLogger(logger: Logger, clock: Clock): Logger {
  const byMessage = new Map<string, MessageLines>();
  const limited =
    (level: Level): Logger[Level] =>
    (fields, message) => {
      let lines = byMessage.get(message);
      if (lines === undefined) {
        const limiter = new RateLimiter({ clock, qps: LINES_PER_MINUTE / 60, burst: LINES_PER_MINUTE });
        lines = { limiter, suppressed: 0 };
        byMessage.set(message, lines);
      }
      if (!lines.limiter.tryAccept()) {
        lines.suppressed += 1;
        return;
      }
      const { suppressed } = lines;
      lines.suppressed = 0;
      logger[level]({ ...withShortTexts(fields), ...(suppressed === 0 ? {} : { suppressed }) }, message);
    };
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: limited('info'),
    warn: limited('warn'),
    error: limited('error'),
    child: (fields) => limitedLogger(logger.child(fields), clock),
    ...(logger.check === undefined ? {} : { check: () => logger.check?.() }),
  };
}

function withShortTexts(fields: object): object {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]: [string, unknown]) => [
      key,
      typeof value === 'string' && value.length > LONGEST_TEXT ? `${value.slice(0, LONGEST_TEXT)}…` : value,
    ]),
  );
}
