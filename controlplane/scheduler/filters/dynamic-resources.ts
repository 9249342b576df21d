/** Rejects nodes without the devices that the pod claims. */
import { allocateOn, devicesOf, isUsableOn } from '../devices/pod-devices.ts';
import { SearchBudget } from '../devices/search-budget.ts';
import { unresolvable, type FilterPlugin } from '../plugin.ts';

/** Refuses the pod as a whole if one of its claims cannot be read or allocated anywhere. */
export const dynamicResources: FilterPlugin = {
  name: 'DynamicResources',
  prepare(pod, cluster) {
    if ((pod.pod.spec?.resourceClaims ?? []).length === 0) return undefined;
    const devices = devicesOf(pod, cluster);
    if (typeof devices === 'string') return unresolvable(devices);
    const { allocated, open } = devices;
    if (allocated.length + open.length === 0) return undefined;
    const search = { allocated: cluster.allocatedDevices(), budget: new SearchBudget() };
    return {
      check(node) {
        if (open.length > 0) {
          const outcome = allocateOn(node, open, cluster, search);
          if (outcome.kind === 'invalid') return unresolvable(outcome.message);
          if (outcome.kind === 'unavailable') return unresolvable('cannot allocate all claims');
        }
        return allocated.every((claim) => isUsableOn(claim, node))
          ? undefined
          : unresolvable('resourceclaim not available on the node');
      },
    };
  },
};
