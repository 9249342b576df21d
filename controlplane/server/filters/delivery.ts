/**
 * Implements the innermost filter, which lets a request last until its client has taken the response. So the request keeps its
 * seats of priority and fairness, as in kube-apiserver, and is ended by the time limit.
 */
import { isLongRunning } from '../long-running.ts';
import type { ApiRequest, Filter, MaybePromise } from '../request.ts';
import { fail, type GuardOptions } from './guard.ts';

/** Creates the filter. It answers errors of the handler itself, because their responses can be long, too. */
export function deliveryFilter(options: GuardOptions): Filter {
  return (request, next) => {
    let pending: MaybePromise<void>;
    try {
      pending = next(request);
    } catch (error) {
      fail(request, error, options);
      return untilTaken(request);
    }
    if (pending === undefined) return untilTaken(request);
    return pending.catch((error: unknown) => fail(request, error, options)).then(() => untilTaken(request));
  };
}

/** Resolves when the client has taken the response. Returns at once for streams, which have limits of their own. */
function untilTaken({ exchange, info }: ApiRequest): MaybePromise<void> {
  if (!exchange.answered || exchange.isTaken || isLongRunning(info)) return undefined;
  return new Promise((resolve) => exchange.onClose(resolve));
}
