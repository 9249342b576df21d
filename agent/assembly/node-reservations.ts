/** Reads from the options which resources of the node pods do not get, and the eviction settings, which are a part of this. */
import {
  DEFAULT_HARD,
  type EvictionSettings,
  parseThresholds,
  type Threshold,
} from '../resources/eviction/thresholds.ts';
import { type Capacity, reservedFor, withEviction } from '../node/status/reserved.ts';
import type { AgentFlags } from '../options/agent-options.ts';

/** Parses the thresholds and limits of eviction from the flags. Throws `ThresholdError`. */
export function evictionSettings(flags: AgentFlags): EvictionSettings {
  return {
    thresholds: parseThresholds({
      hard: { ...(flags.mergeDefaultEvictionSettings ? DEFAULT_HARD : {}), ...flags.evictionHard },
      soft: flags.evictionSoft,
      softGracePeriod: flags.evictionSoftGracePeriod,
      minimumReclaim: flags.evictionMinimumReclaim,
      enforcePods: flags.enforceNodeAllocatable.includes('pods'),
    }),
    transitionPeriodMs: flags.evictionPressureTransitionPeriod,
    maxPodGracePeriodSeconds: flags.evictionMaxPodGracePeriod,
    localStorage: flags.localStorageCapacityIsolation,
  };
}

/** Returns the amounts of a capacity that pods do not get, by resource. */
export function nodeReservations(
  flags: AgentFlags,
  thresholds: readonly Threshold[],
): (capacity: Capacity) => Readonly<Record<string, number>> {
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  return (capacity) =>
    flags.experimentalAllocatableIgnoreEviction ? reserved : withEviction(reserved, thresholds, capacity);
}
