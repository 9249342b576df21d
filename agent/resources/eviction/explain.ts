/**
 * Explains what the eviction manager would do now, or under an assumed pressure: the signals, the thresholds, and which
 * pods it would evict in which order, with the reasons. Pure.
 */
import type { PodStorage } from '../statistics/storage-usage.ts';
import type { UsageSnapshot } from '../statistics/usage.ts';
import { consumptionFrom, partsOn } from './consumption.ts';
import { evictionMessage } from './messages.ts';
import type { PressureState } from './pressure-state.ts';
import { rankPods, type RankedPod } from './ranking.ts';
import { type HostObservations, layoutOf, reclaimSteps } from './signals.ts';
import {
  amountOf,
  byUrgency,
  conditionOf,
  formatAmount,
  formatValue,
  isMet,
  resourceOf,
  type Signal,
  type StarvedResource,
  type Threshold,
} from './thresholds.ts';
import type { Pod } from '../../base/model/pod.ts';

/** The question that a report answers. */
export interface SupposedPressure {
  /** The signal that is assumed to be below its threshold; `undefined` for the actual state. */
  readonly signal: Signal | undefined;
}

/** The report as JSON. Amounts are texts such as `100Mi`. */
export interface EvictionReport {
  readonly signals: readonly {
    readonly signal: Signal;
    readonly available: string;
    readonly capacity: string;
    readonly thresholds: readonly {
      readonly value: string;
      readonly quantity: string;
      readonly kind: 'hard' | 'soft';
      readonly gracePeriodSeconds: number;
      readonly met: boolean;
      readonly metForSeconds?: number;
    }[];
  }[];
  readonly conditions: readonly string[];
  /** The resource that is short, or is assumed to be; '' if none is. */
  readonly pressure: {
    readonly signal: Signal | '';
    readonly resource: StarvedResource | '';
    readonly condition: string;
    readonly supposed: boolean;
  };
  /** The reclaim steps that the node takes before it evicts pods. */
  readonly nodeLevel: readonly string[];
  readonly ranking: readonly {
    readonly pod: string;
    readonly verdict: 'first' | 'later' | 'spared';
    readonly priority: number;
    readonly usage: string;
    readonly request: string;
    readonly why: string;
    readonly message?: string;
  }[];
}

interface ExplainInput {
  /** The thresholds that the manager compares with: those of the flags, and those of the filesystem of writable layers. */
  readonly thresholds: readonly Threshold[];
  readonly state: PressureState;
  readonly host: HostObservations;
  readonly usage: UsageSnapshot;
  readonly storage: ReadonlyMap<string, PodStorage>;
  readonly pods: readonly Pod[];
  readonly supposed: SupposedPressure;
  readonly nowMs: number;
}

/** Computes the report from one observation. */
export function explainEviction(input: ExplainInput): EvictionReport {
  const { thresholds, state, host, supposed } = input;
  const { observations } = host;
  const signals = [...observations].map(([signal, { available, capacity }]) => {
    const resource = resourceOf(signal);
    return {
      signal,
      available: formatAmount(resource, available),
      capacity: formatAmount(resource, capacity),
      thresholds: thresholds
        .filter((threshold) => threshold.signal === signal)
        .map((threshold) => {
          const since = state.firstMetAtMs.get(threshold);
          return {
            value: formatValue(threshold.value),
            quantity: formatAmount(resource, amountOf(threshold.value, capacity)),
            kind: threshold.gracePeriodMs > 0 ? ('soft' as const) : ('hard' as const),
            gracePeriodSeconds: threshold.gracePeriodMs / 1000,
            met: isMet(threshold, { available, capacity }, { withReclaim: false }),
            ...(since === undefined ? {} : { metForSeconds: Math.round((input.nowMs - since) / 1000) }),
          };
        }),
    };
  });
  const [urgent] = byUrgency(state.met);
  const signal = supposed.signal ?? urgent?.signal;
  const conditions = [...state.conditions];
  if (signal === undefined) {
    return {
      signals,
      conditions,
      pressure: { signal: '', resource: '', condition: '', supposed: false },
      nodeLevel: [],
      ranking: [],
    };
  }
  const layout = layoutOf(host.storage);
  return {
    signals,
    conditions,
    pressure: {
      signal,
      resource: resourceOf(signal),
      condition: conditionOf(signal),
      supposed: supposed.signal !== undefined,
    },
    nodeLevel: reclaimSteps(signal, layout).map((step) => STEPS[step]),
    ranking: rankingOf(input, signal),
  };
}

const STEPS = { 'dead-containers': 'remove dead containers', 'unused-images': 'remove unused images' } as const;

function rankingOf(input: ExplainInput, signal: Signal): EvictionReport['ranking'] {
  const resource = resourceOf(signal);
  const consumption = consumptionFrom(input.usage, input.storage, partsOn(signal, layoutOf(input.host.storage)));
  let chosen = false;
  return rankPods(input.pods, consumption.of, resource).map((ranked) => {
    const verdict = ranked.spared ? ('spared' as const) : chosen ? ('later' as const) : ('first' as const);
    if (!ranked.spared) chosen = true;
    const ofSignal: readonly Threshold[] = input.thresholds.filter((threshold) => threshold.signal === signal);
    return {
      pod: `${ranked.pod.metadata.namespace}/${ranked.pod.metadata.name}`,
      verdict,
      priority: ranked.priority,
      usage: ranked.usage === undefined ? 'unknown' : formatAmount(resource, ranked.usage),
      request: formatAmount(resource, ranked.request),
      why: reasonOf(ranked, resource),
      ...(verdict === 'first'
        ? {
            message: evictionMessage(ranked.pod, {
              resource,
              usage: consumption.measured(ranked.pod),
              thresholds: ofSignal,
              observations: input.host.observations,
            }).message,
          }
        : {}),
    };
  });
}

function reasonOf(ranked: RankedPod, resource: StarvedResource): string {
  if (ranked.spared) return 'static and system-critical pods are never evicted';
  const priority = `priority ${ranked.priority}`;
  if (ranked.usage === undefined) return `nothing is known of its usage; ${priority}`;
  const usage = formatAmount(resource, ranked.usage);
  if (resource === 'pids') return `${priority}; ${usage} processes`;
  const request = formatAmount(resource, ranked.request);
  return ranked.exceedsRequest
    ? `uses ${usage} of ${resource}, ${formatAmount(resource, ranked.usage - ranked.request)} above its request of ${request}; ${priority}`
    : `uses ${usage} of ${resource}, within its request of ${request}; ${priority}`;
}
