/**
 * Queues the pods that wait for a node: active ones by priority and age, ones in backoff after an attempt, and unschedulable
 * ones. The latter wait, at most five minutes, for a change that concerns the filters that rejected them.
 */
import { backoffDelay } from '../../api/machinery/backoff.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { Heap } from '../../api/machinery/heap.ts';
import type { PodInfo } from './pod-info.ts';

/** A change in the cluster, as coarse as the filters need it. */
export type Change =
  | 'node-added'
  | 'node-allocatable'
  | 'node-labels'
  | 'node-features'
  | 'node-taints'
  | 'node-removed'
  | 'pod-assigned'
  | 'pod-labels'
  | 'pod-gone'
  | 'volume'
  | 'csi-node'
  | 'devices'
  | 'device-classes';

/** The changes after which a pod may fit that the filter of this name rejected. */
const HELPFUL: ReadonlyMap<string, readonly Change[]> = new Map(
  Object.entries({
    NodeUnschedulable: ['node-added', 'node-taints'],
    NodeName: ['node-added'],
    TaintToleration: ['node-added', 'node-taints'],
    NodeAffinity: ['node-added', 'node-labels'],
    NodePorts: ['node-added', 'pod-gone'],
    NodeResourcesFit: ['node-added', 'node-allocatable', 'pod-gone', 'device-classes'],
    VolumeRestrictions: ['node-added', 'pod-gone', 'volume'],
    NodeVolumeLimits: ['node-added', 'pod-gone', 'volume', 'csi-node'],
    VolumeBinding: ['node-added', 'node-labels', 'volume', 'csi-node'],
    VolumeZone: ['node-added', 'node-labels', 'volume'],
    PodTopologySpread: [
      'node-added',
      'node-removed',
      'node-labels',
      'node-taints',
      'pod-assigned',
      'pod-labels',
      'pod-gone',
    ],
    NodeDeclaredFeatures: ['node-added', 'node-features'],
    DynamicResources: ['node-added', 'node-labels', 'devices', 'device-classes'],
    DefaultPreemption: ['pod-gone'],
    InterPodAffinity: ['node-added', 'node-labels', 'pod-assigned', 'pod-labels', 'pod-gone'],
  }),
);

const BACKOFF = { firstMs: 1000, longestMs: 10_000 };
const MAX_WAIT_MS = 5 * 60_000;
/**
 * The number of attempts up to which a pod in backoff may be tried early. kube-scheduler has no such limit, and searches a full
 * cluster for each of its waiting pods after every change.
 */
const EARLY_ATTEMPTS = 3;
/**
 * The interval to whose multiples wake times are rounded up, so that pods that are due at about the same time wake together.
 */
const WAKE_STEP_MS = 100;

/** The numbers of pods that wait, by place and by the filters that rejected them. */
export interface QueueCounts {
  readonly active: number;
  readonly backoff: number;
  readonly unschedulable: number;
  readonly byPlugin: ReadonlyMap<string, number>;
}

interface Queued {
  info: PodInfo;
  /** The number of the first arrival. The oldest of equal pods comes first. */
  readonly order: number;
  readonly arrivedMs: number;
  attempts: number;
  place: 'active' | 'backoff' | 'unschedulable' | 'in-flight' | 'removed';
  isInHeap: boolean;
  backoffUntilMs: number;
  waitingSinceMs: number;
  rejectedBy: ReadonlySet<string>;
}

/** A pod in backoff that may be tried before its time. It counts only while the pod still has this time. */
interface EarlyTry {
  readonly queued: Queued;
  readonly untilMs: number;
}

/**
 * Orders the pods that wait for the scheduler. A pod is in the queue once at most. `onActive` is called when a pod can be
 * taken.
 */
export class SchedulingQueue {
  readonly #clock: Clock;
  readonly #onActive: () => void;
  readonly #pods = new Map<string, Queued>();
  /** May contain pods that are no longer active. `pop` skips them. */
  readonly #active = new Heap<Queued>(goesBefore);
  /** May contain pods that are no longer in backoff. */
  readonly #early = new Heap<EarlyTry>(endsBefore);
  /** The unschedulable pods by the filters that rejected them, so that a change costs only the pods that it may help. */
  readonly #waiting = new Map<string, Set<Queued>>();
  #order = 0;
  #timer: Timer | undefined;
  #timerAtMs = Infinity;

  constructor(clock: Clock, onActive: () => void) {
    this.#clock = clock;
    this.#onActive = onActive;
  }

  get size(): number {
    return this.#pods.size;
  }

  /** Returns the numbers of pods by queue, and of waiting pods by the plugin that rejected them. */
  counts(): QueueCounts {
    const counts = { active: 0, backoff: 0, unschedulable: 0 };
    for (const { place } of this.#pods.values())
      if (place === 'active' || place === 'backoff' || place === 'unschedulable') counts[place]++;
    return { ...counts, byPlugin: new Map([...this.#waiting].map(([name, waiting]) => [name, waiting.size])) };
  }

  /**
   * Returns how often a pod was tried, and the seconds since it arrived. A pod that is not in the queue counts as tried once
   * now.
   */
  triesOf(uid: string): { readonly attempts: number; readonly seconds: number } {
    const queued = this.#pods.get(uid);
    if (queued === undefined) return { attempts: 1, seconds: 0 };
    return { attempts: queued.attempts, seconds: (this.#clock.monotonic() - queued.arrivedMs) / 1000 };
  }

  /** Adds or updates a pod. An unschedulable pod is retried if `mayHelp` is set. */
  put(info: PodInfo, options: { readonly mayHelp: boolean }): void {
    const existing = this.#pods.get(info.uid);
    if (existing === undefined) {
      this.#order += 1;
      const queued: Queued = {
        info,
        order: this.#order,
        arrivedMs: this.#clock.monotonic(),
        attempts: 0,
        place: 'backoff',
        isInHeap: false,
        backoffUntilMs: 0,
        waitingSinceMs: 0,
        rejectedBy: new Set(),
      };
      this.#pods.set(info.uid, queued);
      this.#activate(queued);
      return;
    }
    existing.info = info;
    if (options.mayHelp && existing.place === 'unschedulable') this.#retry(existing);
  }

  remove(uid: string): void {
    const queued = this.#pods.get(uid);
    if (queued === undefined) return;
    this.#pods.delete(uid);
    this.#endWaiting(queued);
    queued.place = 'removed';
  }

  /**
   * Returns the next pod to schedule: an active one, or else one in backoff that may be tried early. Returns `undefined` if
   * there is neither. The pod is in flight until `remove`, `unschedulable`, `gated` or `failed`.
   */
  pop(): PodInfo | undefined {
    const next = this.#nextActive() ?? this.#firstEarly()?.queued;
    if (next === undefined) return undefined;
    next.place = 'in-flight';
    next.attempts += 1;
    return next.info;
  }

  #nextActive(): Queued | undefined {
    for (let next = this.#active.pop(); next !== undefined; next = this.#active.pop()) {
      next.isInHeap = false;
      if (next.place === 'active') return next;
    }
    return undefined;
  }

  #firstEarly(): EarlyTry | undefined {
    for (let first = this.#early.first; first !== undefined; first = this.#early.first) {
      if (first.queued.place === 'backoff' && first.queued.backoffUntilMs === first.untilMs) return first;
      this.#early.pop();
    }
    return undefined;
  }

  /** Records that no node fits because of the filters with these names. */
  unschedulable(uid: string, rejectedBy: ReadonlySet<string>): void {
    const queued = this.#backOff(uid);
    if (queued !== undefined) this.#wait(queued, rejectedBy);
  }

  #wait(queued: Queued, rejectedBy: ReadonlySet<string>): void {
    queued.place = 'unschedulable';
    queued.rejectedBy = rejectedBy;
    queued.waitingSinceMs = this.#clock.monotonic();
    for (const name of rejectedBy) {
      const waiting = this.#waiting.get(name);
      if (waiting === undefined) this.#waiting.set(name, new Set([queued]));
      else waiting.add(queued);
    }
    this.#arm(queued.waitingSinceMs + MAX_WAIT_MS);
  }

  /** Records that the filter rejected the pod before it was tried on a node. This counts as no attempt. */
  gated(uid: string, filter: string): void {
    const queued = this.#pods.get(uid);
    if (queued === undefined) return;
    queued.attempts -= 1;
    queued.backoffUntilMs = 0;
    this.#wait(queued, new Set([filter]));
  }

  /** Records another error, after which the pod is retried. */
  failed(uid: string): void {
    // Another change may have made the pod active already.
    if (this.#pods.get(uid)?.place === 'active') return;
    const queued = this.#backOff(uid);
    if (queued !== undefined) this.#retry(queued, { early: false });
  }

  /** Wakes pods that this change may help. Any change may help a pod that a filter without a row in `HELPFUL` rejected. */
  changed(change: Change): void {
    for (const [name, waiting] of this.#waiting) {
      if (HELPFUL.get(name)?.includes(change) === false) continue;
      for (const queued of waiting) this.#retry(queued);
    }
  }

  /** Wakes this pod if it is unschedulable, whatever change it waits for. */
  changedFor(uid: string): void {
    const queued = this.#pods.get(uid);
    if (queued?.place === 'unschedulable') this.#retry(queued);
  }

  /** Forgets all pods and stops the timer. */
  close(): void {
    this.#timer?.cancel();
    this.#pods.clear();
    this.#active.clear();
    this.#early.clear();
    this.#waiting.clear();
  }

  #backOff(uid: string): Queued | undefined {
    const queued = this.#pods.get(uid);
    if (queued === undefined) return undefined;
    queued.backoffUntilMs = this.#clock.monotonic() + backoffDelay(queued.attempts, BACKOFF);
    return queued;
  }

  #endWaiting(queued: Queued): void {
    if (queued.place !== 'unschedulable') return;
    for (const name of queued.rejectedBy) {
      const waiting = this.#waiting.get(name);
      waiting?.delete(queued);
      if (waiting?.size === 0) this.#waiting.delete(name);
    }
  }

  #retry(queued: Queued, { early }: { readonly early: boolean } = { early: true }): void {
    this.#endWaiting(queued);
    const { backoffUntilMs } = queued;
    if (backoffUntilMs <= this.#clock.monotonic()) {
      this.#activate(queued);
      return;
    }
    queued.place = 'backoff';
    this.#arm(backoffUntilMs);
    if (!early || queued.attempts > EARLY_ATTEMPTS) return;
    this.#early.push({ queued, untilMs: backoffUntilMs });
    this.#onActive();
  }

  #activate(queued: Queued): void {
    this.#endWaiting(queued);
    queued.place = 'active';
    if (!queued.isInHeap) {
      queued.isInHeap = true;
      this.#active.push(queued);
    }
    this.#onActive();
  }

  #arm(wantedMs: number): void {
    const atMs = Math.ceil(wantedMs / WAKE_STEP_MS) * WAKE_STEP_MS;
    if (atMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = atMs;
    this.#timer = this.#clock.after(Math.max(0, atMs - this.#clock.monotonic()), () => this.#wake());
  }

  #wake(): void {
    this.#timerAtMs = Infinity;
    const nowMs = this.#clock.monotonic();
    // Entries of pods that were tried in time are dropped here, as `pop` may not come to them.
    while ((this.#firstEarly()?.untilMs ?? Infinity) <= nowMs) this.#early.pop();
    let nextMs = Infinity;
    for (const queued of this.#pods.values()) {
      const atMs = wakesAt(queued);
      if (atMs <= nowMs) this.#activate(queued);
      else nextMs = Math.min(nextMs, atMs);
    }
    if (nextMs < Infinity) this.#arm(nextMs);
  }
}

function wakesAt({ place, backoffUntilMs, waitingSinceMs }: Queued): number {
  if (place === 'backoff') return backoffUntilMs;
  return place === 'unschedulable' ? waitingSinceMs + MAX_WAIT_MS : Infinity;
}

/** Orders pods by the end of their backoff. Those whose backoff ends in the same second are tried by priority and age. */
function endsBefore(a: EarlyTry, b: EarlyTry): boolean {
  const [first, second] = [secondOf(a), secondOf(b)];
  return first === second ? goesBefore(a.queued, b.queued) : first < second;
}

const secondOf = ({ untilMs }: EarlyTry): number => Math.ceil(untilMs / 1000);

function goesBefore(a: Queued, b: Queued): boolean {
  return a.info.priority === b.info.priority ? a.order < b.order : a.info.priority > b.info.priority;
}
