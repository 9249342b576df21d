/**
 * Implements the outermost filter, which converts every error to a response, enforces the time limit of requests that are not
 * long-running, and records metrics of every request.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import {
  isStatusError,
  newInternalError,
  newRequestEntityTooLarge,
  newStatusError,
  newTimeout,
  type Status,
} from '../../../api/meta/status-error.ts';
import type { Encodings } from '../../model/encoding.ts';
import { sendTooManyRequests, TooManyRequests } from '../flowcontrol/too-many-requests.ts';
import type { RequestObserver } from '../request-metrics.ts';
import type { ApiRequest, Filter } from '../request.ts';
import { sendStatus } from '../response.ts';
import { isLongRunning } from '../long-running.ts';

/** What the responses to errors need, and the time limit of requests. */
export interface GuardOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly encodings: Encodings;
  readonly requestTimeoutMs: number;
  readonly observer: RequestObserver;
}

/**
 * Creates the filter, which no error escapes: the client gets a response, or a broken connection if a response has begun. A
 * request that is not long-running gets a 504 after `requestTimeoutMs`.
 */
export function guardFilter(options: GuardOptions): Filter {
  const { clock, observer } = options;
  return (request, next) => {
    try {
      const pending = next(request);
      if (pending === undefined) {
        end(request, observer);
        return undefined;
      }
      const timer = clock.after(options.requestTimeoutMs, () => {
        if (!isLongRunning(request.info)) expire(request, options);
      });
      return pending
        .catch((error: unknown) => fail(request, error, options))
        .finally(() => {
          timer.cancel();
          request.hasEnded = true;
          end(request, observer);
        });
    } catch (error) {
      fail(request, error, options);
      end(request, observer);
      return undefined;
    }
  };
}

function end(request: ApiRequest, observer: RequestObserver): void {
  request.audited?.handled();
  observer.done(request);
}

function expire(request: ApiRequest, options: GuardOptions): void {
  const error = newTimeout('request did not complete within the allotted timeout');
  request.abort(error);
  if (request.exchange.answered) request.exchange.abort();
  else answer(request, error.status, options);
}

/**
 * Sends the Status. If it cannot be sent, the exchange is closed, because the client must not wait for it and the error must
 * not exit the process.
 */
function answer(request: ApiRequest, status: Status, { encodings, logger }: GuardOptions): void {
  try {
    sendStatus(request, encodings, status);
  } catch (error) {
    logger.error(
      { err: error, path: request.rawPath },
      'The response to a failed request could not be sent; its connection is closed',
    );
    request.exchange.abort();
  }
}

/**
 * Answers with the error, or breaks the connection if the response has begun. Does nothing for an unexpected error if the
 * response is complete or the client is disconnected. Never throws.
 */
export function fail(request: ApiRequest, error: unknown, options: GuardOptions): void {
  if (!isStatusError(error) && request.exchange.closed) return;
  if (error instanceof TooManyRequests) {
    if (request.exchange.answered) request.exchange.abort();
    else sendTooManyRequests(request, error);
    return;
  }
  const status = toStatus(request, error, options);
  if (!isStatusError(error)) request.audited?.panicked(error);
  if (request.exchange.answered) request.exchange.abort();
  else answer(request, status, options);
}

function toStatus(request: ApiRequest, error: unknown, options: GuardOptions): Status {
  if (isStatusError(error)) return error.status;
  if (exhaustsStack(error)) {
    options.logger.warn(
      { err: error, path: request.rawPath },
      'A request was refused, because its body is nested too deeply or has too many parts',
    );
    return newRequestEntityTooLarge('the request has too many or too deeply nested parts').status;
  }
  if (request.exchange.closed) return newStatusError(499, '', 'the client has gone').status;
  options.logger.error(
    { err: error, method: request.exchange.method, path: request.rawPath },
    'A request failed unexpectedly',
  );
  return newInternalError(error instanceof Error ? error.message : 'unknown').status;
}

/** Whether the call stack was exhausted. */
function exhaustsStack(error: unknown): boolean {
  return error instanceof RangeError && error.message === 'Maximum call stack size exceeded';
}
