/** Where audit stands in the chain. A sink decides by itself what it records; without one the filter costs nothing. */
import type { ApiRequest, Filter } from '../request.ts';

export interface AuditSink {
  /** The request is read, nobody has been authenticated yet. */
  received(request: ApiRequest): void;
  /** Answered; `user`, `status` and the annotations stand in the request. */
  completed(request: ApiRequest): void;
}

export function auditFilter(sink: AuditSink | undefined): Filter {
  if (sink === undefined) return (request, next) => next(request);
  return (request, next) => {
    sink.received(request);
    request.exchange.onClose(() => sink.completed(request));
    return next(request);
  };
}
