/** Reads from the options the resources that are reserved on the node, and the eviction settings, which also reserve some. */
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

/** Returns a function that computes how much of a capacity is reserved and not allocatable to pods, by resource. */
export function nodeReservations(
  flags: AgentFlags,
  thresholds: readonly Threshold[],
): (capacity: Capacity) => Readonly<Record<string, number>> {
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  return (capacity) =>
    flags.experimentalAllocatableIgnoreEviction ? reserved : withEviction(reserved, thresholds, capacity);
}
