/** Options: eviction under pressure, collection of dead containers, figures. */
import { SIGNALS } from '../resources/eviction/thresholds.ts';
import { notNegative } from './checks.ts';
import { gracePeriods, thresholds } from './json-forms.ts';
import { field, option } from './option.ts';

const EVICTION = 'Eviction and collection';
const KNOWN: ReadonlySet<string> = new Set(SIGNALS);
const AMOUNT = /^<?(\d+(\.\d+)?%|[+-]?(\d+(?:\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?)$/;

function signals(map: Readonly<Record<string, string>>): string | undefined {
  const unknown = Object.keys(map).find((signal) => !KNOWN.has(signal));
  return unknown === undefined ? undefined : `unsupported eviction signal ${unknown}`;
}

function amounts(map: Readonly<Record<string, string>>): string | undefined {
  const wrong = Object.entries(map).find(([, amount]) => !AMOUNT.test(amount) || amount.includes('-'));
  return (
    signals(map) ??
    (wrong === undefined
      ? undefined
      : `${JSON.stringify(wrong[1].replace(/^</, ''))} of ${wrong[0]} is neither a quantity nor a percentage`)
  );
}

const USE_EVICTION = 'Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.';

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
    help: 'Pods are evicted at once below these.',
  }),
  evictionSoft: option({
    name: 'eviction-soft',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal<amount,…',
    check: amounts,
    config: { path: 'evictionSoft', json: thresholds },
    help: 'Pods are evicted below these, after a grace period.',
  }),
  evictionSoftGracePeriod: option({
    name: 'eviction-soft-grace-period',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal=duration,…',
    check: signals,
    config: { path: 'evictionSoftGracePeriod' },
    help: 'How long each soft threshold may stand.',
  }),
  evictionMinimumReclaim: option({
    name: 'eviction-minimum-reclaim',
    type: 'map',
    default: {},
    group: EVICTION,
    placeholder: 'signal=amount,…',
    check: amounts,
    config: { path: 'evictionMinimumReclaim' },
    help: 'What is freed at least when a threshold was met.',
  }),
  evictionPressureTransitionPeriod: option({
    name: 'eviction-pressure-transition-period',
    type: 'duration',
    default: 300_000,
    group: EVICTION,
    check: notNegative,
    config: { path: 'evictionPressureTransitionPeriod' },
    help: 'How long a pressure condition outlasts its cause.',
  }),
  evictionMaxPodGracePeriod: option({
    name: 'eviction-max-pod-grace-period',
    type: 'integer',
    default: 0,
    group: EVICTION,
    config: { path: 'evictionMaxPodGracePeriod' },
    help: 'Most seconds that a pod has to end on a soft threshold; negative leaves it to the pod.',
  }),
  mergeDefaultEvictionSettings: field({
    type: 'boolean',
    default: false,
    group: EVICTION,
    config: { path: 'mergeDefaultEvictionSettings', keepsZero: true },
    help: 'Signals that evictionHard does not name keep their defaults; otherwise they are switched off.',
  }),
  kernelMemcgNotification: option({
    name: 'kernel-memcg-notification',
    type: 'boolean',
    default: false,
    group: EVICTION,
    config: { path: 'kernelMemcgNotification' },
    noEffect: 'memory is looked at every few seconds',
    help: 'Let the kernel tell when memory gets short.',
  }),
  experimentalKernelMemcgNotification: option({
    name: 'experimental-kernel-memcg-notification',
    type: 'boolean',
    default: false,
    group: EVICTION,
    deprecated: 'use --kernel-memcg-notification',
    noEffect: 'memory is looked at every few seconds',
    help: 'As --kernel-memcg-notification.',
  }),
  experimentalAllocatableIgnoreEviction: option({
    name: 'experimental-allocatable-ignore-eviction',
    type: 'boolean',
    default: false,
    group: EVICTION,
    deprecated: 'will be removed in 1.25 or later.',
    help: 'Do not keep the hard eviction threshold back from what pods may request.',
  }),
  localStorageCapacityIsolation: option({
    name: 'local-storage-capacity-isolation',
    type: 'boolean',
    default: true,
    group: EVICTION,
    config: { path: 'localStorageCapacityIsolation', keepsZero: true },
    help: 'Hold pods to their limits of ephemeral storage, and tell how much there is.',
  }),
  maximumDeadContainers: option({
    name: 'maximum-dead-containers',
    type: 'integer',
    default: -1,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Dead containers that are kept on the node. Negative is no limit.',
  }),
  maximumDeadContainersPerContainer: option({
    name: 'maximum-dead-containers-per-container',
    type: 'integer',
    default: 1,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Dead containers that are kept for each container of a pod.',
  }),
  minimumContainerTtlDuration: option({
    name: 'minimum-container-ttl-duration',
    type: 'duration',
    default: 0,
    group: EVICTION,
    deprecated: USE_EVICTION,
    help: 'Dead containers that are younger are not collected.',
  }),
  volumeStatsAggPeriod: option({
    name: 'volume-stats-agg-period',
    type: 'duration',
    default: 60_000,
    group: EVICTION,
    config: { path: 'volumeStatsAggPeriod' },
    help: 'How often the use of volumes is measured. Negative is never.',
  }),
  shutdownGracePeriodByPodPriority: field({
    type: 'map',
    default: {},
    group: 'Node',
    config: { path: 'shutdownGracePeriodByPodPriority', json: gracePeriods },
    help: 'Seconds that pods have at a shutdown, by their priority.',
  }),
} as const;
