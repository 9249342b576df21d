/**
 * ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of the resource's name, so that
 * nodes with devices can be reserved for such pods. Off by default.
 */
import { initAndMainContainers } from '../../../api/kinds/pod-containers.ts';
import { isExtendedResource } from '../../../api/kinds/resource-validation.ts';
import { podOf } from './pod-attributes.ts';
import { sameToleration, type Toleration } from './tolerations.ts';
import type { AdmissionPlugin } from './admission.ts';

/** Adds a toleration (Exists, NoSchedule) for each extended resource that containers and init containers request. */
export function extendedResourceToleration(): AdmissionPlugin {
  return {
    name: 'ExtendedResourceToleration',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    admit(attributes) {
      const spec = podOf(attributes)?.spec;
      if (spec === undefined) return;
      const names = new Set<string>();
      for (const { resources } of initAndMainContainers(spec))
        for (const name of Object.keys(resources?.requests ?? {})) if (isExtendedResource(name)) names.add(name);
      const tolerations = spec.tolerations ?? [];
      const added = [...names]
        .sort()
        .map((key): Toleration => ({ key, operator: 'Exists', effect: 'NoSchedule' }))
        .filter((one) => !tolerations.some((other) => sameToleration(one, other)));
      if (added.length > 0) spec.tolerations = [...tolerations, ...added];
    },
  };
}
