/**
 * Limits the size of audit events and of batches: it drops the request and response bodies of a large event first, and then the
 * event.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { AuditEvent } from './event.ts';
import type { EventSink } from './event-sink.ts';

interface TruncationOptions {
  readonly maxEventBytes: number;
  readonly maxBatchBytes: number;
  readonly onDropped: (count: number) => void;
}

const sizeOf = (event: AuditEvent): number => Buffer.byteLength(stringifyJson(event));

/** `onDropped` receives the number of events that are lost because they are too large even without their objects. */
export function truncating(
  inner: EventSink,
  { maxEventBytes, maxBatchBytes, onDropped }: TruncationOptions,
): EventSink {
  return {
    async write(events) {
      let batch: AuditEvent[] = [];
      let bytes = 0;
      for (const full of events) {
        const { event, size } = shortened(full, maxEventBytes);
        if (size > maxEventBytes) {
          onDropped(1);
          continue;
        }
        if (batch.length > 0 && bytes + size > maxBatchBytes) {
          await inner.write(batch);
          batch = [];
          bytes = 0;
        }
        batch.push(event);
        bytes += size;
      }
      if (batch.length > 0) await inner.write(batch);
    },
    close: () => inner.close(),
  };
}

function shortened(full: AuditEvent, maxBytes: number): { readonly event: AuditEvent; readonly size: number } {
  const size = sizeOf(full);
  if (size <= maxBytes) return { event: full, size };
  const { requestObject: _q, responseObject: _s, annotations, ...members } = full;
  const event = { ...members, annotations: { ...(annotations as object), 'audit.k8s.io/truncated': 'true' } };
  return { event, size: sizeOf(event) };
}
