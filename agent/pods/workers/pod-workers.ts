/**
 * The pod workers. Each pod has one worker: at most one step of a pod runs at a time, the latest update wins, and a failed
 * step is retried. A pod goes syncing → terminating → terminated → finished and never back. The steps (`PodSyncer`) are
 * passed to `run` and not to the constructor, because their implementation reads the state of workers.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, type Timer, whenAborted, pause } from '../../../api/machinery/clock.ts';
import type { Pod, PodStatus } from '../../base/model/pod.ts';
import type { PodEnd } from '../../runtime/kuberuntime/api-conditions.ts';
import { formatPod, podFullName } from '../../runtime/kuberuntime/pod-containers.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import { lesser } from './lesser.ts';

/** How a pod terminates, from the eviction, deadline or deletion that caused it. */
export interface Ending {
  /** Overrides the pod's grace period. */
  readonly gracePeriodSeconds: number | undefined;
  readonly status: PodEnd | undefined;
}

/** The state of a worker. `waiting` is that of a static pod whose predecessor `forUid` has not finished. */
export type PodState =
  | { readonly kind: 'waiting'; readonly forUid: string }
  | { readonly kind: 'syncing' }
  | { readonly kind: 'terminating'; readonly ending: Ending }
  | { readonly kind: 'terminated'; readonly ending: Ending }
  | { readonly kind: 'finished' };

/** The result of one sync. */
export interface SyncOutcome {
  /** The pod is to be terminated. */
  readonly ended: boolean;
  /** Empty after a sync without failures. */
  readonly errors: readonly Error[];
  /** The latest time of the next sync. */
  readonly retryAtMs: number | undefined;
  /**
   * The time at which the first back-off of a container that crashes is over. Another error does not make the next sync
   * earlier.
   */
  readonly backOffUntilMs?: number | undefined;
  /**
   * The time until which the next sync waits, whatever wakes the worker meanwhile. The termination of the pod does not wait.
   */
  readonly settlesAtMs?: number | undefined;
}

/** The steps of a pod's life. */
export interface PodSyncer {
  /** Brings a running pod closer to its specification. Resolves also if containers or volumes failed. */
  sync(pod: Pod, signal: AbortSignal): Promise<SyncOutcome>;
  /** Resolves when nothing of the pod runs. Rejects soon after the abort, and changes nothing from then on. */
  terminate(pod: Pod, ending: Ending, signal: AbortSignal): Promise<void>;
  /** Resolves when the pod's volumes and cgroups are removed. */
  cleanUp(pod: Pod, signal: AbortSignal): Promise<void>;
}

interface PodWorkersOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The value of `--sync-frequency`. */
  readonly resyncMs: number;
  readonly random: () => number;
}

interface Worker {
  pod: Pod;
  state: PodState;
  /** The pod needs another step: something changed since the running step began. */
  dirty: boolean;
  running: Promise<void> | undefined;
  timer: Timer | undefined;
  /** The earliest time of the next sync on the monotonic clock, because the wall clock may be set back. */
  settlesAtMs: number;
  abort: AbortController;
  /** Delays retries of the steps that terminate the pod and clean up after it. */
  readonly backoff: Backoff;
  /** The pod was removed and is desired again: it starts again after it has finished. */
  restartsWhenFinished: boolean;
  readonly whenTerminated: (() => void)[];
  readonly whenFinished: (() => void)[];
}

const RETRY_MS = 10_000;
const RETRY_AFTER_FAILURE = { firstMs: 1_000, longestMs: RETRY_MS };
/** How long a stop waits for running steps. */
const CLOSE_WITHIN_MS = 5_000;
/** The shortest delay, so that a step that is overdue does not become a tight loop. */
const MIN_DELAY_MS = 50;

/** Owns one worker for each pod. */
export class PodWorkers {
  readonly #options: PodWorkersOptions;
  readonly #workers = new Map<string, Worker>();
  /** The steps, while `run` is running. */
  #syncer: PodSyncer | undefined;

  constructor(options: PodWorkersOptions) {
    this.#options = options;
  }

  /**
   * Takes the steps of pods until the signal aborts, then waits up to five seconds for the running steps. Containers keep
   * running.
   */
  async run(syncer: PodSyncer, signal: AbortSignal): Promise<void> {
    this.#syncer = syncer;
    for (const worker of this.#workers.values()) if (worker.dirty) this.#wake(worker);
    await whenAborted(signal);
    this.#syncer = undefined;
    await this.#stop();
  }

  /** Takes a new or changed pod. */
  update(pod: Pod): void {
    const existing = this.#workers.get(pod.metadata.uid);
    const worker = existing ?? this.#add(pod);
    const isSooner = graceOf(pod) < graceOf(worker.pod);
    worker.pod = pod;
    if (isSooner && worker.state.kind === 'terminating') this.#repeatSooner(worker);
    if (pod.metadata.deletionTimestamp !== undefined || isEnded(pod.status))
      this.#end(worker, { gracePeriodSeconds: undefined, status: undefined });
    this.#wake(worker);
  }

  /**
   * Lets `forget` forget the pod although it is desired, so that it starts again. Returns false, without an effect, if the
   * pod has no worker or is not terminating yet.
   */
  restartWhenFinished(uid: string): boolean {
    const worker = this.#workers.get(uid);
    if (worker === undefined || worker.state.kind === 'waiting' || worker.state.kind === 'syncing') return false;
    worker.restartsWhenFinished = true;
    return true;
  }

  /** Terminates the pod. Resolves when none of its containers is running. */
  async kill(pod: Pod, ending: Ending): Promise<void> {
    const worker = this.#workers.get(pod.metadata.uid) ?? this.#add(pod);
    const terminated = this.#terminated(worker);
    this.#end(worker, ending);
    this.#wake(worker);
    await terminated;
  }

  /** Resolves when the pod has finished, volumes included. Resolves at once for an unknown pod. */
  async finished(uid: string): Promise<void> {
    const worker = this.#workers.get(uid);
    if (worker === undefined || worker.state.kind === 'finished') return;
    await new Promise<void>((resolve) => worker.whenFinished.push(resolve));
  }

  /** Makes the pod's worker take another step, because something happened to the pod. Ignores unknown and finished pods. */
  wake(uid: string): void {
    const worker = this.#workers.get(uid);
    if (worker !== undefined && worker.state.kind !== 'finished') this.#wake(worker);
  }

  state(uid: string): PodState | undefined {
    return this.#workers.get(uid)?.state;
  }

  /** Returns the pods that have a worker, by uid. */
  pods(): ReadonlyMap<string, Pod> {
    return new Map([...this.#workers].map(([uid, worker]) => [uid, worker.pod]));
  }

  /** Whether the worker of the pod syncs or terminates it, so that containers may run. */
  couldHaveRunningContainers(uid: string): boolean {
    const kind = this.#workers.get(uid)?.state.kind;
    return kind === 'syncing' || kind === 'terminating';
  }

  /** Whether a static pod of this name may have running containers, also one that was removed and is terminating. */
  mayStaticPodRun({ metadata }: Pod): boolean {
    for (const { pod, state } of this.#workers.values()) {
      const isNamesake = pod.metadata.name === metadata.name && pod.metadata.namespace === metadata.namespace;
      if (isNamesake && isStaticPod(pod) && (state.kind === 'syncing' || state.kind === 'terminating')) return true;
    }
    return false;
  }

  /** Whether the worker of the pod has terminated it and cleaned up. */
  isFinished(uid: string): boolean {
    return this.#workers.get(uid)?.state.kind === 'finished';
  }

  /** Forgets finished pods that are not desired or that `restartWhenFinished` has marked, and returns their uids. */
  forget(desired: ReadonlySet<string>): readonly string[] {
    const forgotten: string[] = [];
    for (const [uid, worker] of this.#workers) {
      if (worker.state.kind !== 'finished' || (desired.has(uid) && !worker.restartsWhenFinished)) continue;
      this.#workers.delete(uid);
      forgotten.push(uid);
    }
    return forgotten;
  }

  async #stop(): Promise<void> {
    const running = [...this.#workers.values()].map((worker) => {
      worker.timer?.cancel();
      worker.abort.abort(new Error('the agent is stopping'));
      return worker.running;
    });
    // A runtime that never responds must not block the stop. The next start of the agent reads what the runtime has done.
    const limit = new AbortController();
    await Promise.race([Promise.all(running), pause(this.#options.clock, CLOSE_WITHIN_MS, limit.signal)]);
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
      settlesAtMs: 0,
      abort: new AbortController(),
      backoff: new Backoff(RETRY_AFTER_FAILURE),
      restartsWhenFinished: false,
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

  /**
   * Makes the worker terminate the pod, unless it already has. A termination in progress goes on with the shorter grace
   * period.
   */
  #end(worker: Worker, ending: Ending): void {
    const { state } = worker;
    if (state.kind === 'waiting') {
      worker.state = { kind: 'terminating', ending };
    } else if (state.kind === 'syncing') {
      worker.state = { kind: 'terminating', ending };
      worker.abort.abort(new Error('the pod is terminating'));
      worker.abort = new AbortController();
    } else if (state.kind === 'terminating') {
      const grace = lesser(state.ending.gracePeriodSeconds, ending.gracePeriodSeconds);
      worker.state = {
        kind: 'terminating',
        ending: { gracePeriodSeconds: grace, status: state.ending.status ?? ending.status },
      };
      if (grace !== state.ending.gracePeriodSeconds) this.#repeatSooner(worker);
    }
  }

  /** Aborts the running step, because it uses a longer grace period. */
  #repeatSooner(worker: Worker): void {
    worker.abort.abort(new Error('the grace period is shorter now'));
    worker.abort = new AbortController();
  }

  #terminated(worker: Worker): Promise<void> {
    if (worker.state.kind === 'terminated' || worker.state.kind === 'finished') return Promise.resolve();
    return new Promise((resolve) => worker.whenTerminated.push(resolve));
  }

  #wake(worker: Worker): void {
    worker.dirty = true;
    if (this.#syncer === undefined) return;
    worker.timer?.cancel();
    worker.timer = undefined;
    const settlesInMs = this.#settlesInMs(worker);
    if (settlesInMs > 0 && worker.running === undefined) {
      worker.timer = this.#options.clock.after(settlesInMs, () => this.#wake(worker));
      return;
    }
    worker.running ??= this.#takeSteps(worker).finally(() => {
      worker.running = undefined;
      if (worker.dirty) this.#wake(worker);
    });
  }

  #settlesInMs({ state, settlesAtMs }: Worker): number {
    return state.kind === 'syncing' ? settlesAtMs - this.#options.clock.monotonic() : 0;
  }

  async #takeSteps(worker: Worker): Promise<void> {
    for (let syncer = this.#syncer; worker.dirty && syncer !== undefined; syncer = this.#syncer) {
      // The wake after the steps sets the timer.
      if (this.#settlesInMs(worker) > 0) return;
      worker.dirty = false;
      const delayMs = await this.#step(worker, syncer);
      if (this.#syncer === undefined) return;
      if (delayMs === 0) worker.dirty = true;
      else if (delayMs !== undefined && !worker.dirty)
        worker.timer = this.#options.clock.after(delayMs, () => this.#wake(worker));
    }
  }

  /** Takes one step. Returns the delay until the next step (0: now), or undefined if the next step needs a wake. */
  async #step(worker: Worker, syncer: PodSyncer): Promise<number | undefined> {
    const { state, pod } = worker;
    const { signal } = worker.abort;
    const { logger } = this.#options;
    try {
      switch (state.kind) {
        case 'waiting':
          if (this.#unfinishedNamesake(pod) === undefined) worker.state = { kind: 'syncing' };
          return worker.state.kind === 'waiting' ? undefined : 0;
        case 'syncing':
          return await this.#sync(worker, syncer);
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
      if (this.#syncer === undefined) return undefined;
      // The step was aborted in favor of another one, which is due now.
      if (signal.aborted) return 0;
      logger.warn({ err: error, pod: formatPod(pod), state: state.kind }, 'A step of a pod failed and is retried');
      return state.kind === 'syncing' ? this.#jittered(RETRY_MS) : worker.backoff.next();
    }
  }

  /** Syncs the pod. Returns the delay until the next step (0: now). */
  async #sync(worker: Worker, syncer: PodSyncer): Promise<number> {
    const { clock } = this.#options;
    const { signal } = worker.abort;
    const outcome = await syncer.sync(worker.pod, signal);
    if (signal.aborted || worker.state.kind !== 'syncing') return 0;
    if (outcome.ended) {
      worker.state = { kind: 'terminating', ending: { gracePeriodSeconds: undefined, status: undefined } };
      return 0;
    }
    const { errors, backOffUntilMs, retryAtMs = Infinity, settlesAtMs = 0 } = outcome;
    worker.settlesAtMs = clock.monotonic() + settlesAtMs - clock.now();
    const { resyncMs } = this.#options;
    let waitMs = errors.length > 0 ? RETRY_MS : resyncMs;
    // Containers that wait for their back-off must not delay the regular sync of the others.
    if (errors.length > 0 && backOffUntilMs !== undefined) waitMs = Math.min(backOffUntilMs - clock.now(), resyncMs);
    return Math.max(MIN_DELAY_MS, Math.min(this.#jittered(waitMs), retryAtMs - clock.now()));
  }

  #jittered(delayMs: number): number {
    return delayMs * (1 + this.#options.random() * 0.5);
  }
}

/** Whether the phase is final. */
export function isEnded(status: PodStatus | undefined): boolean {
  return status?.phase === 'Succeeded' || status?.phase === 'Failed';
}

/** Returns the grace period in seconds that a deletion grants the pod; infinite if there is none. */
function graceOf({ metadata }: Pod): number {
  return metadata.deletionTimestamp === undefined ? Infinity : (metadata.deletionGracePeriodSeconds ?? Infinity);
}
