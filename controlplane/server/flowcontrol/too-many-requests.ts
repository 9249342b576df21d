/**
 * Defines the error of a request that exceeds a limit of the server: of priority and fairness, of requests in flight, of
 * bodies, of watches or of forwarded connections. The outermost filter responds with a 429 like that of kube-apiserver.
 */
import type { ApiRequest } from '../request.ts';
import { TEXT_TYPE } from '../../../api/http/media-types.ts';

/** The error of a rejected request. `retryAfterSeconds` becomes the header Retry-After. */
export class TooManyRequests extends Error {
  readonly retryAfterSeconds: number;

  constructor(retryAfterSeconds: number) {
    super('too many requests');
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Answers with plain text, as kube-apiserver does, and not with a Status. */
export function sendTooManyRequests(request: ApiRequest, { retryAfterSeconds }: TooManyRequests): void {
  const headers = request.responseHeaders(TEXT_TYPE);
  headers['retry-after'] = String(retryAfterSeconds);
  headers['x-content-type-options'] = 'nosniff';
  request.status = 429;
  request.exchange.send(429, headers, 'Too many requests, please try again later.\n');
}
