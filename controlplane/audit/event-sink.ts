/** Where audit events go in the end: a file, a webhook. What stands between it and requests waits for it or batches. */
import type { AuditEvent } from './event.ts';

export interface EventSink {
  /** In the order of the calls. Rejects where the events are lost. */
  write(events: readonly AuditEvent[]): Promise<void>;
  /** What waits is written. */
  close(): Promise<void>;
}
