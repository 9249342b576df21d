/**
 * One worker a pod: at most one sync of a pod runs at a time, the latest update wins, a failure is tried again later. A pod
 * goes syncing → terminating → terminated → finished and never back; a static pod waits until an older one of its name has
 * finished. The three steps themselves are given (`PodSyncer`).
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { Pod, PodStatus } from '../../model/core-types.ts';
import { formatPod, podFullName } from '../../runtime/kuberuntime/pod-containers.ts';
import { isStaticPod } from './pod-manager.ts';

export interface Ending {
  /** Overrides the pod's grace period. */
  readonly gracePeriodSeconds: number | undefined;
  /** Reason and message of the pod's final status (eviction, deadline). */
  readonly status: { readonly reason: string; readonly message: string } | undefined;
}

export type PodState =
  | { readonly kind: 'waiting'; readonly forUid: string }
  | { readonly kind: 'syncing' }
  | { readonly kind: 'terminating'; readonly ending: Ending }
  | { readonly kind: 'terminated'; readonly ending: Ending }
  | { readonly kind: 'finished' };

export interface SyncOutcome {
  /** All containers have exited and none is started again. */
  readonly ended: boolean;
  /** Empty after a sync without failures. */
  readonly errors: readonly Error[];
  /** When the next sync is due at the latest. */
  readonly retryAtMs: number | undefined;
}

export interface PodSyncer {
  sync(pod: Pod, signal: AbortSignal): Promise<SyncOutcome>;
  /**
   * Resolves when nothing of the pod runs. Rejects soon after the abort, and changes nothing from then on: the worker
   * terminates the pod again with a shorter grace period.
   */
  terminate(pod: Pod, ending: Ending, signal: AbortSignal): Promise<void>;
  /** Resolves when the pod's volumes and cgroups are removed. */
  cleanUp(pod: Pod, signal: AbortSignal): Promise<void>;
}

export interface PodWorkersOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly syncer: PodSyncer;
  /** `--sync-frequency`. */
  readonly resyncMs: number;
  readonly random: () => number;
}

interface Worker {
  pod: Pod;
  state: PodState;
  /** Something is new since the running step began. */
  dirty: boolean;
  running: Promise<void> | undefined;
  timer: Timer | undefined;
  abort: AbortController;
  /** Of the steps that terminate the pod and clean up after it. */
  readonly backoff: Backoff;
  /** Taken away and wanted again since: it starts anew when its end is over. */
  isWantedAgain: boolean;
  readonly whenTerminated: (() => void)[];
  readonly whenFinished: (() => void)[];
}

const RETRY_MS = 10_000;
const RETRY_AFTER_FAILURE = { firstMs: 1_000, longestMs: RETRY_MS };
/** How long the end waits for steps that are under way. */
const CLOSE_WITHIN_MS = 5_000;
/** What is due already is not done in a tight loop. */
const SOON_MS = 50;

export class PodWorkers {
  readonly #options: PodWorkersOptions;
  readonly #workers = new Map<string, Worker>();
  #closed = false;

  constructor(options: PodWorkersOptions) {
    this.#options = options;
  }

  /** A new or changed pod. One that is being deleted, or has ended, goes on to terminating. */
  update(pod: Pod): void {
    const existing = this.#workers.get(pod.metadata.uid);
    const worker = existing ?? this.#add(pod);
    const isHurried = graceOf(pod) < graceOf(worker.pod);
    worker.pod = pod;
    if (isHurried && worker.state.kind === 'terminating') this.#hurry(worker);
    if (
      pod.metadata.deletionTimestamp !== undefined ||
      pod.status?.phase === 'Succeeded' ||
      pod.status?.phase === 'Failed'
    ) {
      this.#end(worker, { gracePeriodSeconds: undefined, status: undefined });
    }
    this.#wake(worker);
  }

  /** A pod that was taken away is back, as it was. True where its end goes on first; then `forget` lets it start anew. */
  isBack(uid: string): boolean {
    const worker = this.#workers.get(uid);
    if (worker === undefined || worker.state.kind === 'waiting' || worker.state.kind === 'syncing') return false;
    worker.isWantedAgain = true;
    return true;
  }

  /** Ends the pod; resolves when none of its containers runs. A pod that nobody knows has ended. */
  async kill(pod: Pod, ending: Ending): Promise<void> {
    let worker = this.#workers.get(pod.metadata.uid);
    if (worker === undefined) {
      worker = this.#add(pod);
      if (worker.state.kind === 'waiting') worker.state = { kind: 'syncing' };
    }
    const terminated = this.#terminated(worker);
    this.#end(worker, ending);
    this.#wake(worker);
    await terminated;
  }

  /** Resolves when nothing of an ending pod is left, neither its volumes. A pod that nobody knows has left nothing. */
  async finished(uid: string): Promise<void> {
    const worker = this.#workers.get(uid);
    if (worker === undefined || worker.state.kind === 'finished') return;
    await new Promise<void>((resolve) => worker.whenFinished.push(resolve));
  }

  /** Something happened to the pod: look at it again. Unknown pods are ignored. */
  wake(uid: string): void {
    const worker = this.#workers.get(uid);
    if (worker !== undefined && worker.state.kind !== 'finished') this.#wake(worker);
  }

  state(uid: string): PodState | undefined {
    return this.#workers.get(uid)?.state;
  }

  known(): ReadonlyMap<string, Pod> {
    return new Map([...this.#workers].map(([uid, worker]) => [uid, worker.pod]));
  }

  couldHaveRunningContainers(uid: string): boolean {
    const kind = this.#workers.get(uid)?.state.kind;
    return kind === 'syncing' || kind === 'terminating';
  }

  isFinished(uid: string): boolean {
    return this.#workers.get(uid)?.state.kind === 'finished';
  }

  /** Forgets finished pods that nobody wants any more, or wants again, and names them; others that are wanted stay finished. */
  forget(wanted: ReadonlySet<string>): readonly string[] {
    const forgotten: string[] = [];
    for (const [uid, worker] of this.#workers) {
      if (worker.state.kind !== 'finished' || (wanted.has(uid) && !worker.isWantedAgain)) continue;
      this.#workers.delete(uid);
      forgotten.push(uid);
    }
    return forgotten;
  }

  /** Ends the loops; containers run on. */
  async close(): Promise<void> {
    this.#closed = true;
    const running = [...this.#workers.values()].map((worker) => {
      worker.timer?.cancel();
      worker.abort.abort(new Error('the agent is stopping'));
      return worker.running;
    });
    // A runtime that never answers keeps nobody from ending; the next start finds what it did.
    const limit = new AbortController();
    await Promise.race([
      Promise.all(running),
      this.#options.clock.sleep(CLOSE_WITHIN_MS, limit.signal).catch(() => undefined),
    ]);
    limit.abort();
  }

  #add(pod: Pod): Worker {
    const older = isStaticPod(pod) ? this.#unfinishedNamesake(pod) : undefined;
    const worker: Worker = {
      pod,
      state: older === undefined ? { kind: 'syncing' } : { kind: 'waiting', forUid: older },
      dirty: false,
      running: undefined,
      timer: undefined,
      abort: new AbortController(),
      backoff: new Backoff(RETRY_AFTER_FAILURE),
      isWantedAgain: false,
      whenTerminated: [],
      whenFinished: [],
    };
    this.#workers.set(pod.metadata.uid, worker);
    return worker;
  }

  #unfinishedNamesake(pod: Pod): string | undefined {
    for (const [uid, worker] of this.#workers) {
      if (
        uid !== pod.metadata.uid &&
        worker.state.kind !== 'finished' &&
        isStaticPod(worker.pod) &&
        podFullName(worker.pod) === podFullName(pod)
      )
        return uid;
    }
    return undefined;
  }

  #end(worker: Worker, ending: Ending): void {
    const { state } = worker;
    if (state.kind === 'waiting') {
      worker.state = { kind: 'terminating', ending };
    } else if (state.kind === 'syncing') {
      worker.state = { kind: 'terminating', ending };
      worker.abort.abort(new Error('the pod is ending'));
      worker.abort = new AbortController();
    } else if (state.kind === 'terminating') {
      // A shorter grace period counts, a longer one does not.
      const grace = shorter(state.ending.gracePeriodSeconds, ending.gracePeriodSeconds);
      worker.state = {
        kind: 'terminating',
        ending: { gracePeriodSeconds: grace, status: state.ending.status ?? ending.status },
      };
      if (grace !== state.ending.gracePeriodSeconds) this.#hurry(worker);
    }
  }

  /** The step under way would take the longer grace: it is aborted and done again with the shorter one. */
  #hurry(worker: Worker): void {
    worker.abort.abort(new Error('the grace period is shorter now'));
    worker.abort = new AbortController();
  }

  #terminated(worker: Worker): Promise<void> {
    if (worker.state.kind === 'terminated' || worker.state.kind === 'finished') return Promise.resolve();
    return new Promise((resolve) => worker.whenTerminated.push(resolve));
  }

  #wake(worker: Worker): void {
    if (this.#closed) return;
    worker.timer?.cancel();
    worker.timer = undefined;
    worker.dirty = true;
    worker.running ??= this.#run(worker).finally(() => {
      worker.running = undefined;
      if (worker.dirty && !this.#closed) this.#wake(worker);
    });
  }

  async #run(worker: Worker): Promise<void> {
    while (worker.dirty && !this.#closed) {
      worker.dirty = false;
      const delayMs = await this.#step(worker);
      if (delayMs === 0) worker.dirty = true;
      else if (delayMs !== undefined && !worker.dirty)
        worker.timer = this.#options.clock.after(delayMs, () => this.#wake(worker));
    }
  }

  /** One step; returns after how long the next is due (0: now), undefined for when something happens. */
  async #step(worker: Worker): Promise<number | undefined> {
    const { state, pod } = worker;
    const { signal } = worker.abort;
    const { syncer, logger } = this.#options;
    try {
      switch (state.kind) {
        case 'waiting':
          if (this.#unfinishedNamesake(pod) === undefined) worker.state = { kind: 'syncing' };
          return worker.state.kind === 'waiting' ? undefined : 0;
        case 'syncing':
          return await this.#sync(worker);
        case 'terminating':
          await syncer.terminate(pod, state.ending, signal);
          if (signal.aborted) return 0;
          worker.backoff.reset();
          worker.state = { kind: 'terminated', ending: state.ending };
          for (const resolve of worker.whenTerminated.splice(0)) resolve();
          return 0;
        case 'terminated':
          await syncer.cleanUp(pod, signal);
          worker.state = { kind: 'finished' };
          for (const resolve of worker.whenFinished.splice(0)) resolve();
          for (const other of this.#workers.values()) if (other.state.kind === 'waiting') this.#wake(other);
          return undefined;
        case 'finished':
          return undefined;
      }
    } catch (error) {
      if (this.#closed) return undefined;
      // The step was cut short for another one, which is due now.
      if (signal.aborted) return 0;
      logger.warn({ err: error, pod: formatPod(pod), state: state.kind }, 'A step of a pod failed; it is tried again');
      return state.kind === 'syncing' ? this.#jittered(RETRY_MS) : worker.backoff.next();
    }
  }

  async #sync(worker: Worker): Promise<number | undefined> {
    const { clock, syncer } = this.#options;
    const { signal } = worker.abort;
    const outcome = await syncer.sync(worker.pod, signal);
    if (signal.aborted || worker.state.kind !== 'syncing') return 0;
    if (outcome.ended) {
      worker.state = { kind: 'terminating', ending: { gracePeriodSeconds: undefined, status: undefined } };
      return 0;
    }
    // Containers that wait for their back-off do not keep the others from their regular sync.
    const resyncMs = this.#jittered(outcome.errors.length > 0 ? RETRY_MS : this.#options.resyncMs);
    if (outcome.retryAtMs === undefined) return resyncMs;
    return Math.min(Math.max(outcome.retryAtMs - clock.now(), SOON_MS), resyncMs);
  }

  #jittered(delayMs: number): number {
    return delayMs * (1 + this.#options.random() * 0.5);
  }
}

function shorter(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined) return b;
  return b === undefined ? a : Math.min(a, b);
}

/** What an ended pod's phase is when its own containers do not say. */
export function isEnded(status: PodStatus | undefined): boolean {
  return status?.phase === 'Succeeded' || status?.phase === 'Failed';
}

/** The grace that a deletion leaves a pod. */
function graceOf({ metadata }: Pod): number {
  return metadata.deletionTimestamp === undefined ? Infinity : (metadata.deletionGracePeriodSeconds ?? Infinity);
}
