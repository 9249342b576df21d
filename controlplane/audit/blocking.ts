/** Audit modes `blocking` and `blocking-strict`: a request waits until the event of its arrival is where it belongs. */
import type { Logger } from '../../api/component/logger.ts';
import type { AuditBackend } from './audit.ts';
import type { EventSink } from './event-sink.ts';

export interface BlockingOptions {
  /** A request whose arrival cannot be recorded is refused. */
  readonly isStrict: boolean;
  readonly logger: Logger;
  readonly onDropped: (count: number) => void;
}

export function blocking(sink: EventSink, { isStrict, logger, onDropped }: BlockingOptions): AuditBackend {
  const lost = (error: unknown): boolean => {
    onDropped(1);
    logger.error({ err: error, events: 1 }, 'An audit event was lost');
    return !isStrict;
  };
  return {
    process: (event) => sink.write([event]).then(() => true, lost),
    close: () => sink.close(),
  };
}
