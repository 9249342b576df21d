/**
 * LimitPodHardAntiAffinityTopology: required anti-affinity of a pod may only use the hostname as its topology, so that a pod
 * cannot keep others off a whole zone. Off by default.
 */
import { podOf, refusal } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import { HOSTNAME_LABEL } from '../../../api/meta/well-known-labels.ts';

/** Refuses pods with a required anti-affinity term whose topology key is not `kubernetes.io/hostname`. */
export function limitPodHardAntiAffinity(): AdmissionPlugin {
  return {
    name: 'LimitPodHardAntiAffinityTopology',
    handles: (operation) => operation === 'CREATE' || operation === 'UPDATE',
    validate(attributes) {
      const terms =
        podOf(attributes)?.spec.affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
      const wide = terms.find(({ topologyKey }) => topologyKey !== HOSTNAME_LABEL);
      if (wide === undefined) return;
      throw refusal(
        attributes,
        `affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey ${wide.topologyKey} but only key ${HOSTNAME_LABEL} is allowed`,
      );
    },
  };
}
