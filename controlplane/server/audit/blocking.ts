/** Implements the audit modes `blocking` and `blocking-strict`: a request waits until its event is written. */
import type { Logger } from '../../../api/component/logger.ts';
import type { AuditBackend } from './audit.ts';
import type { EventSink } from './event-sink.ts';

interface BlockingOptions {
  /** Rejects a request if the event of its RequestReceived stage cannot be written. */
  readonly isStrict: boolean;
  readonly logger: Logger;
  readonly onDropped: (count: number) => void;
}

/**
 * Returns a backend that writes each event before its request goes on. A lost event is logged and counted. With `isStrict`, a
 * request whose first event is lost is rejected.
 */
export function blocking(sink: EventSink, { isStrict, logger, onDropped }: BlockingOptions): AuditBackend {
  const lost = (error: unknown): boolean => {
    onDropped(1);
    logger.error({ err: error, events: 1 }, 'Cannot write an audit event, it is lost');
    return !isStrict;
  };
  return {
    process: (event) => Promise.try(() => sink.write([event])).then(() => true, lost),
    close: () => sink.close(),
  };
}
