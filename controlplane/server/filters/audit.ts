/** Where audit stands in the chain: behind authentication, before impersonation. Without a sink the filter costs nothing. */
import type { ApiRequest, Filter } from '../request.ts';

export interface AuditSink {
  /** Who asks is known, or has just been refused. The sink sets `request.audited` where it wants to hear more. */
  received(request: ApiRequest): void;
}

export function auditFilter(sink: AuditSink | undefined): Filter {
  if (sink === undefined) return (request, next) => next(request);
  return (request, next) => {
    sink.received(request);
    return next(request);
  };
}
