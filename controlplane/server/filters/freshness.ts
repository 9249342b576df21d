/**
 * Waits until the caches show what other servers wrote before the request. It is the first filter that reads them: users,
 * permissions and objects are then as new as the request. Reads that accept an older state (`resourceVersion`) do not wait.
 */
import type { Filter } from '../request.ts';

export function freshnessFilter(catchUp: () => Promise<void>): Filter {
  return async (request, next) => {
    const { isResource, verb } = request.info;
    const isRead = verb === 'get' || verb === 'list' || verb === 'watch';
    const acceptsOlder = isRead && (request.query.get('resourceVersion') ?? '') !== '';
    if (isResource && !acceptsOlder) await catchUp();
    return next(request);
  };
}
