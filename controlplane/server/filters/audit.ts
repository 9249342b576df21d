/** The audit filter, which runs between authentication and impersonation. Without a sink it costs nothing. */
import type { ApiRequest, Filter } from '../request.ts';

/** The receiver of requests that are audited. */
export interface AuditSink {
  /**
   * Called once the user is known or refused. The sink sets `request.audited` to record later stages. If it returns a promise,
   * the request waits for it, and a rejection becomes the response.
   */
  received(request: ApiRequest): void | Promise<void>;
}

/** Creates the filter. It rejects with the error of the sink if a request cannot be recorded. */
export function auditFilter(sink: AuditSink | undefined): Filter {
  if (sink === undefined) return (request, next) => next(request);
  return (request, next) => {
    const recorded = sink.received(request);
    return recorded === undefined ? next(request) : recorded.then(() => next(request));
  };
}
