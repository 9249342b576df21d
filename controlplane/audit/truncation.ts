/** Keeps single audit events below a size: bodies go first, then the event is dropped. Stands before another backend. */
import type { AuditBackend } from './audit.ts';
import type { AuditEvent } from './event.ts';

export interface TruncationOptions {
  readonly maxEventBytes: number;
  readonly onDropped: (count: number) => void;
}

export function truncating(inner: AuditBackend, { maxEventBytes, onDropped }: TruncationOptions): AuditBackend {
  const fits = (event: AuditEvent): boolean => JSON.stringify(event).length <= maxEventBytes;
  return {
    process(event) {
      if (fits(event)) return inner.process(event);
      const { requestObject: _q, responseObject: _s, annotations, ...rest } = event;
      const short = { ...rest, annotations: { ...(annotations as object), 'audit.k8s.io/truncated': 'true' } };
      if (fits(short)) inner.process(short);
      else onDropped(1);
    },
    close: () => inner.close(),
  };
}
