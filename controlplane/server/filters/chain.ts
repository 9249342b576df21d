/** Makes one handler of a list of filters: the first stands outermost. */
import type { Filter, Handler } from '../request.ts';

export function chain(filters: readonly Filter[], last: Handler): Handler {
  return filters.reduceRight<Handler>((next, filter) => (request) => filter(request, next), last);
}
