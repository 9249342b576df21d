/** Where audit stands in the chain: behind authentication, before impersonation. Without a sink the filter costs nothing. */
import type { ApiRequest, Filter } from '../request.ts';

export interface AuditSink {
  /**
   * Who asks is known, or has just been refused. The sink sets `request.audited` where it wants to hear more. The request
   * goes on when a promise is kept; where it is broken its error is the answer.
   */
  received(request: ApiRequest): void | Promise<void>;
}

export function auditFilter(sink: AuditSink | undefined): Filter {
  if (sink === undefined) return (request, next) => next(request);
  return (request, next) => {
    const recorded = sink.received(request);
    return recorded === undefined ? next(request) : recorded.then(() => next(request));
  };
}
