/** Defines the destination of audit events: a file or a webhook. The blocking and batching backends write to it. */
import type { AuditEvent } from './event.ts';

/** A destination of audit events. */
export interface EventSink {
  /** Writes events in the order of the calls. Rejects if the events are lost. */
  write(events: readonly AuditEvent[]): Promise<void>;
  /** Ends the sink. A file writes its pending events first; a webhook gives up its running calls, whose writes then reject. */
  close(): Promise<void>;
}
