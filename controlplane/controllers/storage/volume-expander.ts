/**
 * Records events for bound claims that request more than they have: the resizer of the driver expands them, and not this
 * controller.
 */
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { PersistentVolumeClaim } from '../../../api/kinds/kinds.ts';
import { persistentVolumeClaims } from '../../../api/client/resources.ts';
import { compareQuantities, parseQuantity } from '../../../api/meta/quantity.ts';
import { ReconcileLoop, splitKey, type RunController } from '../controller.ts';

function wantsToGrow(claim: PersistentVolumeClaim): boolean {
  const requested = claim.spec?.resources?.requests?.['storage'];
  const capacity = claim.status?.capacity?.['storage'];
  if (claim.status?.phase !== 'Bound' || requested === undefined || capacity === undefined) return false;
  return compareQuantities(parseQuantity(requested), parseQuantity(capacity)) > 0;
}

/** Writes the events. External controllers expand the volumes. */
export const runVolumeExpander: RunController = (environment, signal) => {
  const { informers, recorder } = environment;
  const claims = informers.for(persistentVolumeClaims);
  const loop = new ReconcileLoop(environment, {
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const claim = claims.get(namespace, name);
      if (claim === undefined || !wantsToGrow(claim)) return;
      recorder.event(
        referenceTo(claim, persistentVolumeClaims),
        'Normal',
        'ExternalExpanding',
        'waiting for an external controller to expand this PVC',
      );
    },
  });
  claims.addHandler({
    update(previous, current) {
      const before = previous.spec?.resources?.requests?.['storage'];
      if (before !== current.spec?.resources?.requests?.['storage'] && wantsToGrow(current)) loop.enqueue(current);
    },
  });
  return loop.run(signal, claims);
};
