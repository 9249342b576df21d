/**
 * The eviction manager keeps the node from running out of memory, disk and processes: it reclaims resources of the node,
 * and if that is not enough, evicts pods.
 *
 * It does not use the kernel's notifications, because they need an eventfd, which Node.js does not offer.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import type { PodEventRecorder } from '../../base/model/pod-events.ts';
import type { Pod } from '../../base/model/pod.ts';
import { isCriticalPod } from '../../base/model/pod-kinds.ts';
import { formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import type { PodStorage } from '../statistics/storage-usage.ts';
import type { UsageSnapshot } from '../statistics/usage.ts';
import { consumptionFrom, partsOn } from './consumption.ts';
import { explainEviction, type EvictionReport, type SupposedPressure } from './explain.ts';
import { withContainerThresholds } from './container-filesystem.ts';
import { exceededStorage, type ExceededLimit, hasStorageLimits } from './local-storage.ts';
import { evictionMessage } from './messages.ts';
import type { NodePressure } from './node-pressure.ts';
import { advance, CALM, type PressureState } from './pressure-state.ts';
import { rankPods } from './ranking.ts';
import { type HostObservations, layoutOf, reclaimSteps, type StorageLayout } from './signals.ts';
import {
  byUrgency,
  type EvictionSettings,
  resourceOf,
  type Signal,
  type Threshold,
  thresholdsMet,
} from './thresholds.ts';

interface EvictionDeps {
  readonly settings: EvictionSettings;
  /** Receives the pressure conditions. */
  readonly pressure: NodePressure;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observe: () => Promise<HostObservations>;
  readonly usage: (maxAgeMs: number) => Promise<UsageSnapshot>;
  readonly storage: (maxAgeMs: number) => Promise<ReadonlyMap<string, PodStorage>>;
  readonly activePods: () => readonly Pod[];
  /** Resolves when none of the pod's containers is running. Rejects after 1.5 grace periods, but not before ten seconds. */
  readonly evict: (
    pod: Pod,
    ending: { readonly gracePeriodSeconds: number; readonly message: string; readonly isDisruption: boolean },
  ) => Promise<void>;
  /** Resolves when the pod's volumes are removed, which frees its data, also in memory, but at the latest after `withinMs`. */
  readonly cleanedUp: (pod: Pod, limits: { readonly withinMs: number; readonly signal: AbortSignal }) => Promise<void>;
  readonly events: PodEventRecorder;
  readonly nodeEvent: (reason: string, message: string) => void;
  /** Removes every dead container. */
  readonly deleteDeadContainers: () => Promise<void>;
  /** Removes every image that nothing uses. */
  readonly deleteUnusedImages: () => Promise<void>;
  /** Called when a pressure condition of the node changes. */
  readonly onConditionsChange: () => void;
  /** Called for each threshold that is due when the pods have been ranked, with the age of the signals. */
  readonly onRanked?: (signal: Signal, signalsAgeMs: number) => void;
  readonly onEviction?: (signal: Signal | ExceededLimit['signal']) => void;
}

const CALM_POLL_MS = 10_000;
const PRESSED_POLL_MS = 1_000;
/** The greatest age of the CPU and memory usage in a report of `explain`. */
const EXPLAIN_USAGE_AGE_MS = 2_000;
/** The greatest age of disk usage that a decision uses, because measuring it walks the directories. */
const STORAGE_AGE_MS = 10_000;
/** How long an evicted pod may take to free its resources before the signals are read again, as in the kubelet. */
const CLEANUP_WAIT_MS = 30_000;
/** The grace period of an eviction by a hard threshold or by a limit of the pod, and the minimum under a soft threshold. */
const MIN_GRACE_SECONDS = 1;

/** Owns the state of the thresholds. */
export class EvictionManager {
  readonly #deps: EvictionDeps;
  /** Aborts when the current run stops. */
  #stopSignal = new AbortController().signal;
  readonly #reportedAtMs = new Map<Signal, number>();
  readonly #thresholds = new Map<string, readonly Threshold[]>();
  #state: PressureState = CALM;
  /** A threshold is due and no pod may be evicted: polling more often does not help. */
  #exhausted = false;

  constructor(deps: EvictionDeps) {
    this.#deps = deps;
  }

  /** Compares the usage with the thresholds periodically, and evicts pods, until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps;
    this.#stopSignal = signal;
    const loop = new WakeableLoop({
      clock,
      onError: (error) => logger.warn({ err: error }, 'Cannot read the eviction signals of the node'),
      backoff: new Backoff({ firstMs: PRESSED_POLL_MS, longestMs: CALM_POLL_MS }),
    });
    await loop.run(signal, async () => {
      const evicted = await this.synchronize();
      const pressed = (this.#state.met.length > 0 && !this.#exhausted) || evicted;
      return pressed ? PRESSED_POLL_MS : CALM_POLL_MS;
    });
  }

  /** Reads the signals once and acts on them. Returns whether pods were evicted. */
  async synchronize(): Promise<boolean> {
    const { clock, settings, observe } = this.#deps;
    this.#exhausted = false;
    const observedAtMs = clock.monotonic();
    const host = await observe();
    const thresholds = this.#thresholdsOf(layoutOf(host.storage));
    this.#state = advance(this.#state, {
      thresholds,
      observations: host.observations,
      nowMs: clock.monotonic(),
      transitionPeriodMs: settings.transitionPeriodMs,
    });
    const { conditions, due } = this.#state;
    if (this.#deps.pressure.set(conditions)) this.#deps.onConditionsChange();
    if (settings.localStorage && (await this.#enforceStorageLimits(host))) return true;
    const [urgent] = byUrgency(due);
    if (urgent === undefined) return false;
    return this.#reclaim(urgent, due, host, observedAtMs);
  }

  /** Measures the host and its pods, and returns what the manager would do. Evicts nothing. Rejects if a measurement fails. */
  async explain(supposed: SupposedPressure): Promise<EvictionReport> {
    const host = await this.#deps.observe();
    const [usage, storage] = await Promise.all([
      this.#deps.usage(EXPLAIN_USAGE_AGE_MS),
      this.#deps.storage(STORAGE_AGE_MS),
    ]);
    return explainEviction({
      thresholds: this.#thresholdsOf(layoutOf(host.storage)),
      state: this.#state,
      host,
      usage,
      storage,
      pods: this.#deps.activePods(),
      supposed,
      nowMs: this.#deps.clock.monotonic(),
    });
  }

  /**
   * Acts on the most urgent threshold: reclaims resources of the node, and if that does not suffice, evicts the first pod of
   * the ranking that is not critical. Returns whether it evicted one.
   */
  async #reclaim(
    urgent: Threshold,
    due: readonly Threshold[],
    host: HostObservations,
    observedAtMs: number,
  ): Promise<boolean> {
    const { clock, settings, logger, nodeEvent, activePods, usage, storage } = this.#deps;
    const resource = resourceOf(urgent.signal);
    if (this.#mayReport(urgent.signal)) {
      logger.warn({ signal: urgent.signal, resource }, 'The node is short of a resource, reclaiming it');
      nodeEvent('EvictionThresholdMet', `Attempting to reclaim ${resource}`);
    }
    if (await this.#reclaimFromNode(urgent.signal, host)) return false;
    const needsDisk = resource === 'ephemeral-storage' || resource === 'inodes';
    const [used, written] = await Promise.all([
      usage(0),
      needsDisk ? storage(STORAGE_AGE_MS) : new Map<string, PodStorage>(),
    ]);
    const consumption = consumptionFrom(used, written, partsOn(urgent.signal, layoutOf(host.storage)));
    const ranked = rankPods(activePods(), consumption.of, resource);
    this.#exhausted = ranked.every(({ spared }) => spared);
    if (ranked.length === 0) {
      logger.debug({ resource }, 'The node is short of a resource, and there is no pod to evict');
      return false;
    }
    for (const { signal } of due) this.#deps.onRanked?.(signal, clock.monotonic() - observedAtMs);
    for (const { pod, spared } of ranked) {
      if (spared) {
        logger.debug({ pod: formatPod(pod) }, 'A critical pod is not evicted');
        continue;
      }
      const { message, annotations } = evictionMessage(pod, {
        resource,
        usage: consumption.measured(pod),
        thresholds: due,
        observations: host.observations,
      });
      const maxSeconds = settings.maxPodGracePeriodSeconds;
      const softSeconds = Math.max(
        MIN_GRACE_SECONDS,
        Math.min(maxSeconds, pod.spec.terminationGracePeriodSeconds ?? maxSeconds),
      );
      this.#deps.onEviction?.(urgent.signal);
      await this.#evict(pod, urgent.gracePeriodMs > 0 ? softSeconds : MIN_GRACE_SECONDS, message, annotations);
      return true;
    }
    logger.debug({ resource }, 'The node is short of a resource, and no pod may be evicted');
    return false;
  }

  /** Whether to report the signal: at most every ten seconds, however often the signals are read. */
  #mayReport(signal: Signal): boolean {
    const nowMs = this.#deps.clock.monotonic();
    const reportedMs = this.#reportedAtMs.get(signal);
    if (reportedMs !== undefined && nowMs - reportedMs < CALM_POLL_MS) return false;
    this.#reportedAtMs.set(signal, nowMs);
    return true;
  }

  /** Removes what the node can spare under a signal. Resolves to whether that ended the shortage. */
  async #reclaimFromNode(signal: Signal, host: HostObservations): Promise<boolean> {
    const { deleteDeadContainers, deleteUnusedImages, observe, logger } = this.#deps;
    const work = { 'dead-containers': deleteDeadContainers, 'unused-images': deleteUnusedImages };
    const steps = reclaimSteps(signal, layoutOf(host.storage));
    if (steps.length === 0) return false;
    for (const step of steps) {
      try {
        await work[step]();
      } catch (error) {
        logger.warn({ err: error }, 'Cannot reclaim a resource of the node');
      }
    }
    const { observations, storage } = await observe();
    // As in the kubelet, a soft threshold counts without its grace period, and every threshold with its minimum reclaim.
    return thresholdsMet(this.#thresholdsOf(layoutOf(storage)), observations, { withReclaim: true }).length === 0;
  }

  /** Evicts every pod that exceeds a limit of its own storage and is not critical. Returns whether there was one. */
  async #enforceStorageLimits(host: HostObservations): Promise<boolean> {
    const limited = this.#deps.activePods().filter(hasStorageLimits);
    if (limited.length === 0) return false;
    const storage = await this.#deps.storage(STORAGE_AGE_MS);
    const { dedicatedImages } = layoutOf(host.storage);
    let evicted = false;
    for (const pod of limited) {
      const measured = storage.get(pod.metadata.uid);
      const exceeded =
        measured === undefined || isCriticalPod(pod) ? undefined : exceededStorage(pod, measured, { dedicatedImages });
      if (exceeded === undefined) continue;
      this.#deps.onEviction?.(exceeded.signal);
      await this.#evict(pod, MIN_GRACE_SECONDS, exceeded.message, undefined);
      evicted = true;
    }
    return evicted;
  }

  /**
   * Evicts a pod, records the event, and waits for the pod to release its resources. `annotations` belong to an eviction
   * because of the node. A pod that exceeds a limit of its own has none.
   */
  async #evict(
    pod: Pod,
    gracePeriodSeconds: number,
    message: string,
    annotations: Readonly<Record<string, string>> | undefined,
  ): Promise<void> {
    const { cleanedUp, events, evict, logger } = this.#deps;
    logger.info({ pod: formatPod(pod), reason: message.trim() }, 'Evicting a pod');
    events.event(pod, 'Warning', 'Evicted', message, annotations === undefined ? {} : { annotations });
    const ended = evict(pod, { gracePeriodSeconds, message, isDisruption: annotations !== undefined });
    background(ended, { logger, what: 'Terminating an evicted pod', fields: { pod: formatPod(pod) } });
    // `background` logs the failure.
    await untilAborted(ended, this.#stopSignal).catch(() => undefined);
    // The next reading of the signals makes sense only after the pod has released its resources.
    await cleanedUp(pod, { withinMs: CLEANUP_WAIT_MS, signal: this.#stopSignal });
  }

  /** Returns the thresholds on a node with these filesystems, the same objects each time, because the state refers to them. */
  #thresholdsOf(layout: StorageLayout): readonly Threshold[] {
    const key = JSON.stringify(layout);
    const cached = this.#thresholds.get(key);
    if (cached !== undefined) return cached;
    const thresholds = withContainerThresholds(this.#deps.settings.thresholds, layout);
    this.#thresholds.set(key, thresholds);
    return thresholds;
  }
}
