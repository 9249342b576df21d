/** Rejects nodes without the devices that the pod claims. */
import { allocateOn, claimsOn, devicesOf, isUsableOn } from '../devices/pod-devices.ts';
import { SearchBudget } from '../devices/search-budget.ts';
import { FilterError, unresolvable, type FilterPlugin } from '../plugin.ts';

/** Refuses the pod as a whole if one of its claims cannot be read or allocated anywhere. */
export const dynamicResources: FilterPlugin = {
  name: 'DynamicResources',
  prepare(pod, cluster) {
    const devices = devicesOf(pod, cluster);
    if (typeof devices === 'string') return unresolvable(devices);
    const { allocated, open, hasExtended, stale } = devices;
    if (allocated.length + open.length === 0 && !hasExtended) return undefined;
    const search = { allocated: cluster.allocatedDevices(), budget: new SearchBudget() };
    return {
      check(node) {
        if (stale !== undefined) return unresolvable('cannot schedule extended resource claim');
        const { claims } = claimsOn(pod, node, devices, cluster);
        if (claims.length > 0) {
          const outcome = allocateOn(node, claims, cluster, search);
          // The pod must not run on another node meanwhile, where the mistake does not show.
          if (outcome.kind === 'invalid') throw new FilterError(dynamicResources.name, outcome.message);
          if (outcome.kind === 'unavailable') return unresolvable('cannot allocate all claims');
        }
        return allocated.every((claim) => isUsableOn(claim, node))
          ? undefined
          : unresolvable('resourceclaim not available on the node');
      },
    };
  },
};
