/**
 * The pod lifecycle event generator (PLEG) reports which pods' containers changed state. It reads a pod when the runtime sends
 * an event of it, and relists all pods periodically, because events can be lost. A container that hangs delays only the reading
 * of its own pod.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { WorkQueue } from '../../../api/machinery/work-queue.ts';
import type { ContainerStatus, Runtime, SandboxStatus } from '../runtime.ts';

/** The state of a container or sandbox as PLEG compares it. */
export type ContainerState = 'running' | 'exited' | 'unknown' | 'created';

/** A change of a container or sandbox. `id` is that of the container or sandbox. */
export interface PodEvent {
  readonly type: 'started' | 'died' | 'changed' | 'removed';
  readonly podUid: string;
  readonly id: string;
}

/** Returns the events that lead from one observed state of a pod to the next. Pure. */
export function generateEvents(
  podUid: string,
  before: ReadonlyMap<string, ContainerState> | undefined,
  after: ReadonlyMap<string, ContainerState> | undefined,
): readonly PodEvent[] {
  const events: PodEvent[] = [];
  for (const id of new Set([...(before?.keys() ?? []), ...(after?.keys() ?? [])])) {
    const [was, is] = [before?.get(id), after?.get(id)];
    if (was === is) continue;
    if (is === 'running') events.push({ type: 'started', podUid, id });
    else if (is === 'exited') events.push({ type: 'died', podUid, id });
    else if (is === 'unknown') events.push({ type: 'changed', podUid, id });
    else if (is === undefined) {
      if (was === 'running' || was === 'unknown') events.push({ type: 'died', podUid, id });
      events.push({ type: 'removed', podUid, id });
    }
  }
  return events;
}

interface PlegOptions {
  readonly runtime: Pick<Runtime, 'listSandboxes' | 'listContainers' | 'events'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onEvent: (event: PodEvent) => void;
  /** Called after each successful relist, for metrics. */
  readonly onRelist?: (tookMs: number) => void;
  /** Called after each reading of one pod, for metrics. */
  readonly onPodRead?: (tookMs: number) => void;
  /** The time from a successful relist to the next one; a minute by default. */
  readonly relistMs?: number;
  /** The time from a failed relist to the next one; a second by default. */
  readonly failedRelistMs?: number;
}

/** The time without a relist after which the PLEG is unhealthy, as in the kubelet (`genericPlegRelistThreshold`). */
const UNHEALTHY_AFTER_MS = 180_000;
/** Delays before a failed reading of a pod is repeated. */
const RETRY = { baseDelayMs: 200, maxDelayMs: 10_000 };
/** The maximum number of pods that are read at once, and of those that wait for it. */
const MAX_READINGS = 250;

/** Owns the last state of every pod. Its health is the age of the last relist. */
export class Pleg {
  readonly #options: PlegOptions;
  #view = new Map<string, ReadonlyMap<string, ContainerState>>();
  /** The UIDs of the pods to read. Requests during a reading cause one more reading. */
  readonly #queue: WorkQueue;
  readonly #reading = new Set<string>();
  /** The UIDs of the pods whose reading is newer than the current relist. */
  #readSinceRelist = new Set<string>();
  #lastRelistMs: number;
  readonly #firstRelist = Promise.withResolvers<void>();
  #relisted = false;
  readonly #relists: WakeableLoop;

  constructor(options: PlegOptions) {
    this.#options = options;
    this.#lastRelistMs = options.clock.monotonic();
    this.#queue = new WorkQueue({ clock: options.clock, maxLength: MAX_READINGS, ...RETRY });
    this.#relists = new WakeableLoop({
      clock: options.clock,
      onError: (error) => options.logger.error({ err: error }, 'Relisting the containers failed'),
    });
  }

  /** Returns the problem, or an empty string if the PLEG is healthy. */
  health(): string {
    const age = this.#options.clock.monotonic() - this.#lastRelistMs;
    if (!this.#relisted && age < UNHEALTHY_AFTER_MS) return 'pleg has yet to be successful';
    return age > UNHEALTHY_AFTER_MS
      ? `pleg was last seen active ${Math.round(age / 1000)}s ago; threshold is 3m0s`
      : '';
  }

  /** Resolves after the first successful relist. Before it, the PLEG is unhealthy. */
  relisted(): Promise<void> {
    return this.#firstRelist.promise;
  }

  /** Lists and reads the containers until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { runtime, relistMs = 60_000, failedRelistMs = 1_000 } = this.#options;
    const stop = (): void => this.#queue.shutDown();
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    await Promise.all([
      this.#readPods(),
      this.#relists.run(signal, async () => ((await this.#relist()) ? relistMs : failedRelistMs)),
      runtime.events(
        signal,
        (event) => {
          // The creation of a container changes nothing. Its start causes another event.
          if (event.type !== 'created') this.#request(event.podUid);
        },
        () => this.#relists.wake(),
      ),
    ]);
  }

  /** Requests the reading of a pod. Beyond the limit, a relist takes its place: it reads all pods by two calls. */
  #request(podUid: string): void {
    const isFull = this.#reading.size >= MAX_READINGS && !this.#reading.has(podUid);
    if (isFull || !this.#queue.add(podUid)) this.#relists.wake();
  }

  /** Begins each reading at once, because the runtime may hang on a container of another pod. */
  async #readPods(): Promise<void> {
    for (let podUid = await this.#queue.next(); podUid !== undefined; podUid = await this.#queue.next()) {
      background(this.#readPod(podUid), {
        logger: this.#options.logger,
        what: 'Reading the containers of a pod',
        fields: { podUid },
      });
    }
  }

  async #readPod(podUid: string): Promise<void> {
    const { runtime, clock, logger, onPodRead } = this.#options;
    const fromMs = clock.monotonic();
    this.#reading.add(podUid);
    this.#readSinceRelist.add(podUid);
    try {
      const [sandboxes, containers] = await Promise.all([
        runtime.listSandboxes({ podUid }),
        runtime.listContainers({ podUid }),
      ]);
      this.#queue.forget(podUid);
      this.#advance(podUid, viewOf(sandboxes, containers).get(podUid));
    } catch (error) {
      // The view stays unchanged, so the next reading finds the same difference.
      logger.debug({ err: error, podUid }, 'Cannot read the containers of a pod');
      this.#queue.addRateLimited(podUid);
    } finally {
      this.#reading.delete(podUid);
      this.#queue.done(podUid);
      onPodRead?.(clock.monotonic() - fromMs);
    }
  }

  /** Resolves to whether the runtime responded. */
  async #relist(): Promise<boolean> {
    const { runtime, clock, logger } = this.#options;
    const fromMs = clock.monotonic();
    this.#readSinceRelist = new Set(this.#reading);
    try {
      const [sandboxes, containers] = await Promise.all([runtime.listSandboxes(), runtime.listContainers()]);
      const view = viewOf(sandboxes, containers);
      for (const uid of new Set([...this.#view.keys(), ...view.keys()])) {
        if (!this.#readSinceRelist.has(uid)) this.#advance(uid, view.get(uid));
      }
      this.#lastRelistMs = clock.monotonic();
      this.#relisted = true;
      this.#firstRelist.resolve();
      this.#options.onRelist?.(this.#lastRelistMs - fromMs);
      return true;
    } catch (error) {
      logger.debug({ err: error }, 'Cannot list the containers');
      return false;
    }
  }

  #advance(podUid: string, after: ReadonlyMap<string, ContainerState> | undefined): void {
    const events = generateEvents(podUid, this.#view.get(podUid), after);
    if (after === undefined) this.#view.delete(podUid);
    else this.#view.set(podUid, after);
    for (const event of events) this.#options.onEvent(event);
  }
}

function viewOf(
  sandboxes: readonly SandboxStatus[],
  containers: readonly ContainerStatus[],
): Map<string, Map<string, ContainerState>> {
  const view = new Map<string, Map<string, ContainerState>>();
  const put = (uid: string, id: string, state: ContainerState): void => {
    const pod = view.get(uid) ?? new Map<string, ContainerState>();
    pod.set(id, state);
    view.set(uid, pod);
  };
  for (const sandbox of sandboxes) put(sandbox.pod.uid, sandbox.id, sandbox.state === 'ready' ? 'running' : 'exited');
  for (const container of containers)
    put(container.labels['io.kubernetes.pod.uid'] ?? '', container.id, container.state);
  return view;
}
