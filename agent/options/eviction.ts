/** The options of eviction, container garbage collection and graceful shutdown. */
import { SIGNALS } from '../resources/eviction/thresholds.ts';
import { notNegative } from './checks.ts';
import { gracePeriods, thresholds } from './json-forms.ts';
import { field, option } from './option.ts';
import { quoteText } from '../../api/meta/quote.ts';

const EVICTION = 'Eviction and collection';
const KNOWN_SIGNALS: ReadonlySet<string> = new Set(SIGNALS);
const AMOUNT = /^<?(\d+(\.\d+)?%|[+-]?(\d+(?:\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?)$/;

function signals(map: Readonly<Record<string, string>>): string | undefined {
  const unknown = Object.keys(map).find((signal) => !KNOWN_SIGNALS.has(signal));
  return unknown === undefined ? undefined : `unsupported eviction signal ${unknown}`;
}

function amounts(map: Readonly<Record<string, string>>): string | undefined {
  const wrong = Object.entries(map).find(([, amount]) => !AMOUNT.test(amount) || amount.includes('-'));
  return (
    signals(map) ??
    (wrong === undefined
      ? undefined
      : `${quoteText(wrong[1].replace(/^</, ''))} of ${wrong[0]} is neither a quantity nor a percentage`)
  );
}

const USE_EVICTION = 'Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.';

/** The rows of the option table. Thresholds are maps from the signal to an operator with a value. */
export const evictionOptions = {
  evictionHard: option({
    name: 'eviction-hard',
    type: 'map',
    default: {
      'imagefs.available': '<15%',
      'memory.available': '<100Mi',
      'nodefs.available': '<10%',
      'nodefs.inodesFree': '<5%',
    },
    group: EVICTION,
    placeholder: 'signal<amount,…',
    check: amounts,
    config: { path: 'evictionHard', keepsZero: true, json: thresholds },
    help: 'Thresholds below which pods are evicted without grace period.',
  }),
  evictionSoft: option({
    name: 'eviction-soft',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal<amount,…',
    check: amounts,
    config: { path: 'evictionSoft', json: thresholds },
    help: 'Thresholds below which pods are evicted after a grace period.',
  }),
  evictionSoftGracePeriod: option({
    name: 'eviction-soft-grace-period',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal=duration,…',
    check: signals,
    config: { path: 'evictionSoftGracePeriod' },
    help: 'How long a soft threshold must be met before pods are evicted.',
  }),
  evictionMinimumReclaim: option({
    name: 'eviction-minimum-reclaim',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal=amount,…',
    check: amounts,
    config: { path: 'evictionMinimumReclaim' },
    help: 'Minimum amount that an eviction frees.',
  }),
  evictionPressureTransitionPeriod: option({
    name: 'eviction-pressure-transition-period',
    type: 'duration',
    default: 300_000,
    group: EVICTION,
    check: notNegative,
    config: { path: 'evictionPressureTransitionPeriod' },
    help: 'How long a pressure condition stays true after the pressure ended.',
  }),
  evictionMaxPodGracePeriod: option({
    name: 'eviction-max-pod-grace-period',
    type: 'integer',
    default: 0,
    group: EVICTION,
    config: { path: 'evictionMaxPodGracePeriod' },
    help: 'Maximum grace period in seconds of a pod that is evicted for a soft threshold. The least is one second, also for 0 and for a negative value.',
  }),
  mergeDefaultEvictionSettings: field({
    type: 'boolean',
    default: false,
    group: EVICTION,
    config: { path: 'mergeDefaultEvictionSettings', keepsZero: true },
    help: 'Keep the default thresholds of signals that evictionHard does not set. Otherwise they are disabled.',
  }),
  kernelMemcgNotification: option({
    name: 'kernel-memcg-notification',
    type: 'boolean',
    default: false,
    group: EVICTION,
    config: { path: 'kernelMemcgNotification' },
    noEffect: 'memory is polled every few seconds',
    help: 'Get kernel notifications about memory pressure.',
  }),
  experimentalKernelMemcgNotification: option({
    name: 'experimental-kernel-memcg-notification',
    type: 'boolean',
    default: false,
    group: EVICTION,
    deprecated: 'use --kernel-memcg-notification',
    noEffect: 'memory is polled every few seconds',
    help: 'As --kernel-memcg-notification.',
  }),
  experimentalAllocatableIgnoreEviction: option({
    name: 'experimental-allocatable-ignore-eviction',
    type: 'boolean',
    default: false,
    group: EVICTION,
    deprecated: 'will be removed in 1.25 or later.',
    help: 'Do not subtract the hard eviction thresholds from node allocatable.',
  }),
  localStorageCapacityIsolation: option({
    name: 'local-storage-capacity-isolation',
    type: 'boolean',
    default: true,
    group: EVICTION,
    config: { path: 'localStorageCapacityIsolation', keepsZero: true },
    help: "Enforce the ephemeral storage limits of pods, and report the node's ephemeral storage.",
  }),
  maximumDeadContainers: option({
    name: 'maximum-dead-containers',
    type: 'integer',
    default: -1,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Maximum number of dead containers on the node. A negative value means no limit.',
  }),
  maximumDeadContainersPerContainer: option({
    name: 'maximum-dead-containers-per-container',
    type: 'integer',
    default: 1,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Maximum number of dead instances of each container of a pod.',
  }),
  minimumContainerTtlDuration: option({
    name: 'minimum-container-ttl-duration',
    type: 'duration',
    default: 0,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Minimum age of a dead container before it is removed.',
  }),
  volumeStatsAggPeriod: option({
    name: 'volume-stats-agg-period',
    type: 'duration',
    default: 60_000,
    group: EVICTION,
    config: { path: 'volumeStatsAggPeriod' },
    help: 'How often the disk usage of volumes is measured. A negative value disables it.',
  }),
  shutdownGracePeriodByPodPriority: field({
    type: 'map',
    default: {},
    group: 'Node',
    config: { path: 'shutdownGracePeriodByPodPriority', json: gracePeriods },
    help: 'Grace period in seconds for the pods of each priority at a node shutdown.',
  }),
} as const;
