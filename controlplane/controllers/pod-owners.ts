/** Finds the owners that the change of a pod concerns, for the controllers whose pods are selected by labels. */
import { fromLabelSelector } from '../../api/meta/selector.ts';
import type { Informer } from '../../api/client/informer.ts';
import type { ResourceOf } from '../../api/client/resources.ts';
import type { Pod } from '../../api/kinds/kinds.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { ReconcileLoop } from './controller.ts';
import { controllerOf, ownerKey } from './owner-references.ts';

interface SelectingOwner extends KubeObject {
  readonly spec?: { readonly selector?: Parameters<typeof fromLabelSelector>[0] };
}

/** Returns a handler that enqueues the controller of a pod or, for a pod without one, every owner that selects the pod. */
export function enqueueOwner<Owner extends SelectingOwner>(
  loop: Pick<ReconcileLoop, 'enqueue' | 'queue'>,
  owners: Pick<Informer<Owner>, 'list'>,
  resource: ResourceOf<Owner>,
): (pod: Pod) => void {
  return (pod) => {
    const key = ownerKey(pod, resource);
    if (key !== undefined) loop.queue.add(key);
    else if (controllerOf(pod) === undefined) {
      for (const owner of owners.list(pod.metadata.namespace ?? ''))
        if (fromLabelSelector(owner.spec?.selector).matches(pod.metadata.labels)) loop.enqueue(owner);
    }
  };
}
