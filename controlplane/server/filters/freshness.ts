/**
 * Waits until the caches show what other servers wrote before the request. The filter runs before all that read the caches, so
 * users, permissions and objects are as new as the request. Reads that accept an older state (`resourceVersion`) do not wait.
 *
 * A custom resource is then served here as well, once another server has shown that its definition is established.
 */
import type { ResourceCatalog } from '../../model/rest.ts';
import type { Filter } from '../request.ts';

/** Creates the filter. A request for a path that is no resource passes without waiting. */
export function freshnessFilter({ catchUp, settled }: Pick<ResourceCatalog, 'catchUp' | 'settled'>): Filter {
  return async (request, next) => {
    const { isResource, verb, group, resource } = request.info;
    const isRead = verb === 'get' || verb === 'list' || verb === 'watch';
    const acceptsOlder = isRead && (request.query.get('resourceVersion') ?? '') !== '';
    if (isResource && !acceptsOlder) {
      await catchUp?.(group, resource);
      await settled?.(group, resource);
    }
    return next(request);
  };
}
