/** Defines the destination of audit events: a file or a webhook. */
import type { AuditEvent } from './event.ts';

/** A destination of audit events. */
export interface EventSink {
  /** Writes events. Rejects if that fails. */
  write(events: readonly AuditEvent[]): Promise<void>;
  /** Ends the sink. A file writes its pending events first; a webhook gives up its running calls, whose writes then reject. */
  close(): Promise<void>;
}
