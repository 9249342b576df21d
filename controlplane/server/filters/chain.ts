/** Combines a list of filters and a handler into one handler. The first filter is the outermost. */
import type { Filter, Handler } from '../request.ts';

/**
 * Returns a handler that calls the filters in order, and then the last handler. A filter that does not call `next` has
 * answered the request.
 */
export function chain(filters: readonly Filter[], last: Handler): Handler {
  return filters.reduceRight<Handler>((next, filter) => (request) => filter(request, next), last);
}
