/**
 * The status manager keeps the status of each pod and sends it to the API server, in order and coalesced to the newest. It
 * also deletes pods there that are marked for deletion and have finished.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { isNotFound, isStatusError } from '../../../api/meta/status-error.ts';
import type { Client } from '../../../api/client/client.ts';
import { type Clock, formatTime } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { pods as podsResource } from '../../../api/client/resources.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import type { ContainerStatusJson, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ProbeResults } from '../../runtime/kuberuntime/probe-results.ts';
import { withProbeResults, withReadyConditions } from '../../runtime/kuberuntime/readiness.ts';
import { isMirrorOf, publishedStatus } from '../../sources/mirror-pods.ts';
import { isTerminalPhase, mergeStatus, normalize, statusPatch } from './pod-status.ts';
import { MIRROR_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';

type StatusPatch = ReturnType<typeof statusPatch>;

interface StatusEntry {
  pod: Pod;
  status: PodStatus;
  /** The number of changes of the status and of `terminated`. */
  version: number;
  /** The newest version that needs no sending any more: the API server has it, or no longer has the pod. */
  sent: number;
  /** The API server's answer to the last patch, and the changes that it dropped because its version lacks the fields. */
  answer?: { readonly status: Pod['status']; readonly dropped: StatusPatch };
  /** The time of the first of consecutive failures to send the status, by the monotonic clock. */
  failingSinceMs?: number;
  /** A warning about these failures was logged. */
  hasWarned?: true;
  /** The time of the first change that the API server does not have. */
  lagsSinceMs?: number;
  terminated: boolean;
}

/** Owns the statuses. Statuses that are passed in or returned are shared and must not be changed. */
export interface StatusManager {
  /** Stores the status, which is then sent. Logs and ignores a status whose phase is not final if the stored one is. */
  set(pod: Pod, status: PodStatus): void;
  /** Returns the stored status, or `undefined` without one. */
  get(podUid: string): PodStatus | undefined;
  /** Recomputes `started`, `ready` and the conditions that depend on them. Ignores unknown pods. */
  applyProbeResults(podUid: string, probes: ProbeResults): void;
  /**
   * Sends the status again if another writer changed it. `mirror` is the mirror pod of a static pod, as the API server has
   * it.
   */
  reconcile(pod: Pod, mirror?: Pod): void;
  /** Stores the final status of a pod whose containers no longer run, by the rules of the kubelet's `TerminatePod`. */
  terminate(pod: Pod): void;
  /** Removes the statuses of pods that are not in the set. */
  removeOrphans(podUids: ReadonlySet<string>): void;
  /** Sends statuses until the signal aborts, and waits for those that are being sent. Returns at once without a client. */
  run(signal: AbortSignal): Promise<void>;
}

/** The state of pod workers that the status manager reads. */
interface PodDeletionSafety {
  podCouldHaveRunningContainers(pod: Pod): boolean;
  podIsFinished(pod: Pod): boolean;
}

interface StatusManagerOptions {
  /** Absent on a host without an API server. Statuses are then only stored. */
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly safety: PodDeletionSafety;
  /** Returns the mirror pod of a static pod, as the API server has it. */
  readonly mirrorOf: (pod: Pod) => Pod | undefined;
  /** Called when the API server has the newest status, with the milliseconds for which it lacked a change. */
  readonly onCaughtUp?: (tookMs: number) => void;
}

/** The period after which unsent statuses are sent again. */
const RESYNC_MS = 10_000;
/** The number of pods whose statuses are sent at the same time. */
const CONCURRENT_WRITES = 8;

/** Creates a manager without pods. */
export function createStatusManager(options: StatusManagerOptions): StatusManager {
  return new PodStatusManager(options);
}

class PodStatusManager implements StatusManager {
  readonly #options: StatusManagerOptions;
  readonly #entries = new Map<string, StatusEntry>();
  readonly #dirty = new Set<string>();
  readonly #busy = new Set<string>();
  readonly #loop: WakeableLoop;

  constructor(options: StatusManagerOptions) {
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      onError: (error) => options.logger.error({ err: error }, 'Sending the statuses of pods failed'),
    });
  }

  get(podUid: string): PodStatus | undefined {
    return this.#entries.get(podUid)?.status;
  }

  set(pod: Pod, status: PodStatus): void {
    const entry = this.#entries.get(pod.metadata.uid);
    const previous = entry?.status ?? publishedStatus(pod, this.#options.mirrorOf);
    const now = formatTime(this.#options.clock.now());
    const next = normalize(status, previous, now);
    if (isTerminalPhase(previous?.phase) && !isTerminalPhase(next.phase) && entry !== undefined) {
      this.#options.logger.warn(
        { pod: nameOf(pod), phase: next.phase },
        'A finished pod cannot run again, ignoring the status',
      );
      return;
    }
    this.#store(pod, next, entry);
  }

  #store(
    pod: Pod,
    next: PodStatus,
    existing: StatusEntry | undefined,
    change: { readonly terminated?: true } = {},
  ): void {
    const terminated = change.terminated ?? existing?.terminated ?? false;
    const isNew = existing === undefined;
    const entry: StatusEntry = existing ?? { pod, status: next, version: 0, sent: 0, terminated };
    const changed = isNew || !jsonEqual(entry.status, next) || entry.terminated !== terminated;
    entry.pod = pod;
    entry.terminated = terminated;
    // A pod that is being deleted is checked in any case, because it may have become deletable without a change of its status.
    if (!changed && pod.metadata.deletionTimestamp === undefined) return;
    if (changed) {
      entry.status = next;
      entry.version += 1;
      entry.lagsSinceMs ??= this.#options.clock.monotonic();
    }
    this.#entries.set(pod.metadata.uid, entry);
    this.#mark(pod.metadata.uid);
  }

  applyProbeResults(podUid: string, probes: ProbeResults): void {
    const entry = this.#entries.get(podUid);
    if (entry === undefined) return;
    const probed = withProbeResults(entry.pod, entry.status, { probes, previous: entry.status });
    const next = withReadyConditions(entry.pod, probed);
    this.#store(entry.pod, normalize(next, entry.status, formatTime(this.#options.clock.now())), entry);
  }

  terminate(pod: Pod): void {
    const entry = this.#entries.get(pod.metadata.uid);
    const current = entry?.status ?? pod.status ?? {};
    const status: PodStatus = { ...current };
    // Before the pod is initialized, its regular containers stay waiting. Later, one without a known exit code has failed.
    if (hasInitialized(pod, current) && current.containerStatuses !== undefined) {
      status.containerStatuses = current.containerStatuses.map(terminatedStatus);
    }
    if (current.initContainerStatuses !== undefined) {
      // Even if none has begun, the first one counts as begun, as with the kubelet.
      const begun = Math.max(0, current.initContainerStatuses.findLastIndex(hasEverBegun));
      status.initContainerStatuses = current.initContainerStatuses.map((container, index) =>
        index <= begun ? terminatedStatus(container) : container,
      );
    }
    // A deleted pod has succeeded if all containers exited with 0, and failed otherwise. The removal of its manifest does not
    // make the phase of a static pod final.
    if (!isTerminalPhase(status.phase) && !isStaticPod(pod)) {
      const ended = (status.containerStatuses ?? []).map((container) => container.state?.terminated?.exitCode ?? 137);
      status.phase = ended.length > 0 && ended.every((code) => code === 0) ? 'Succeeded' : 'Failed';
    }
    const next = normalize(status, entry?.status ?? pod.status, formatTime(this.#options.clock.now()));
    this.#store(pod, next, entry, { terminated: true });
  }

  reconcile(pod: Pod, mirror?: Pod): void {
    const entry = this.#entries.get(pod.metadata.uid);
    if (entry === undefined || (mirror !== undefined && !isMirrorOf(mirror, entry.pod))) return;
    // An unsent status will be sent anyway, or may have waited for this mirror pod.
    if (entry.sent !== entry.version) {
      if (mirror !== undefined) this.#mark(pod.metadata.uid);
      return;
    }
    // A status that was just sent comes back here and is equal.
    const mayStillRun = this.#mayStillRun(entry);
    if (this.#patchFor(mirror ?? pod, entry, mayStillRun) !== undefined) this.#mark(pod.metadata.uid);
  }

  removeOrphans(podUids: ReadonlySet<string>): void {
    for (const uid of this.#entries.keys()) {
      if (!podUids.has(uid)) {
        this.#entries.delete(uid);
        this.#dirty.delete(uid);
      }
    }
  }

  #mark(uid: string): void {
    this.#dirty.add(uid);
    this.#loop.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const client = this.#options.client;
    if (client === undefined) return;
    const resync = (): void => {
      if (signal.aborted) return;
      for (const [uid, entry] of this.#entries) {
        if (entry.sent !== entry.version || entry.pod.metadata.deletionTimestamp !== undefined) this.#dirty.add(uid);
      }
      this.#loop.wake();
      this.#options.clock.after(RESYNC_MS, resync);
    };
    this.#options.clock.after(RESYNC_MS, resync);
    const running = new Set<Promise<void>>();
    await this.#loop.run(signal, () => {
      for (const uid of this.#dirty) {
        if (running.size >= CONCURRENT_WRITES) break;
        if (this.#busy.has(uid)) continue;
        this.#dirty.delete(uid);
        this.#busy.add(uid);
        const write = this.#sync(client, uid, signal).finally(() => {
          this.#busy.delete(uid);
          running.delete(write);
          this.#loop.wake();
        });
        running.add(write);
        background(write, {
          logger: this.#options.logger,
          what: 'Sending the status of a pod',
          fields: { podUid: uid },
        });
      }
      return Promise.resolve(Number.POSITIVE_INFINITY);
    });
    await Promise.allSettled(running);
  }

  #mayStillRun({ pod, terminated }: StatusEntry): boolean {
    return !terminated && this.#options.safety.podCouldHaveRunningContainers(pod);
  }

  /** Sends the status of a pod, and deletes the pod if it is marked for deletion and has finished. */
  async #sync(client: Client, uid: string, signal: AbortSignal): Promise<void> {
    const entry = this.#entries.get(uid);
    if (entry === undefined) return;
    const target = isStaticPod(entry.pod) ? this.#options.mirrorOf(entry.pod) : entry.pod;
    if (target === undefined) return;
    const { namespace, name } = target.metadata;
    const version = entry.version;
    try {
      const remote = (await client.get(podsResource, namespace, name, { signal })) as unknown as Pod;
      if (isStaticPod(entry.pod)) {
        // The mirror is of an earlier manifest and is about to be replaced. Its successor gets the status.
        if (!isMirrorOf(remote, entry.pod)) return;
      } else if (remote.metadata.uid !== target.metadata.uid) {
        entry.sent = version;
        return;
      }
      // The pod may terminate during the patch. The state in which the patch was computed decides.
      const mayStillRun = this.#mayStillRun(entry);
      const patch = this.#patchFor(remote, entry, mayStillRun);
      let current = remote;
      if (patch !== undefined) {
        const { status } = entry;
        const answer = (await client.patch(podsResource, namespace, name, {
          type: 'strategic',
          body: patch,
          subresource: 'status',
          signal,
        })) as unknown as Pod;
        current = answer;
        entry.answer = { status: answer.status, dropped: this.#changes(answer, status, mayStillRun) };
      }
      entry.sent = version;
      delete entry.failingSinceMs;
      delete entry.hasWarned;
      this.#caughtUp(entry);
      await this.#deleteIfFinished(client, entry, current, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (isNotFound(error)) {
        // A mirror pod is recreated, and then gets the status.
        if (!isStaticPod(entry.pod)) entry.sent = version;
        return;
      }
      const { clock, logger } = this.#options;
      entry.failingSinceMs ??= clock.monotonic();
      const fields = { pod: `${namespace}/${name}`, err: errorMessage(error) };
      // The node authorizer refuses a deleted pod until the agent has seen the deletion, which is before the next resync, while
      // its containers may change several times. Consecutive failures of other kinds cause one warning.
      const isExpected = isStatusError(error, 'Forbidden') && clock.monotonic() - entry.failingSinceMs < RESYNC_MS;
      if (isExpected || entry.hasWarned === true) logger.debug(fields, 'Cannot send the status of a pod yet');
      else {
        entry.hasWarned = true;
        logger.warn(fields, 'Cannot send the status of a pod, retrying');
      }
    }
  }

  /** Reports how long the API server lacked the newest status, if it has it now. */
  #caughtUp(entry: StatusEntry): void {
    const { lagsSinceMs } = entry;
    if (lagsSinceMs === undefined || entry.sent !== entry.version) return;
    delete entry.lagsSinceMs;
    this.#options.onCaughtUp?.(this.#options.clock.monotonic() - lagsSinceMs);
  }

  /** Returns the changes that the API server lacks, except those that it has just dropped from the same patch. */
  #patchFor(remote: Pod, entry: StatusEntry, mayStillRun: boolean): StatusPatch {
    const patch = this.#changes(remote, entry.status, mayStillRun);
    const { answer } = entry;
    const isDropped = answer !== undefined && same(patch, answer.dropped) && same(remote.status, answer.status);
    return isDropped ? undefined : patch;
  }

  /** Returns the patch from the pod at the API server to the status, or `undefined` if nothing differs. */
  #changes(remote: Pod, status: PodStatus, mayStillRun: boolean): StatusPatch {
    const merged = mergeStatus(remote.status, withReadyConditions(remote, status), mayStillRun);
    return statusPatch(remote, normalize(merged, remote.status, formatTime(this.#options.clock.now())));
  }

  /** Deletes a finished pod from the API server if it is marked for deletion. */
  async #deleteIfFinished(client: Client, entry: StatusEntry, remote: Pod, signal: AbortSignal): Promise<void> {
    if (
      remote.metadata.deletionTimestamp === undefined ||
      remote.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined
    )
      return;
    // A client that watches the pod must see its final phase before the deletion.
    if (!isTerminalPhase(remote.status?.phase) || !this.#options.safety.podIsFinished(entry.pod)) return;
    const { namespace, name, uid } = remote.metadata;
    await client.delete(podsResource, namespace, name, { gracePeriodSeconds: 0, preconditions: { uid }, signal });
    this.#options.logger.debug(
      { pod: `${namespace}/${name}` },
      'Deleted a pod from the API server, because nothing of it is left on the node',
    );
  }
}

function same(left: Pod['status'] | StatusPatch, right: Pod['status'] | StatusPatch): boolean {
  return jsonEqual(left as JsonValue, right as JsonValue);
}

function nameOf(pod: Pod): string {
  return `${pod.metadata.namespace}/${pod.metadata.name}`;
}

function hasEverBegun({ state, lastState }: ContainerStatusJson): boolean {
  return state?.waiting === undefined || lastState?.terminated !== undefined;
}

/** Whether the regular containers of the pod may have run. */
function hasInitialized(pod: Pod, status: PodStatus): boolean {
  const spec = pod.spec.initContainers?.at(-1);
  if (spec === undefined || (status.containerStatuses ?? []).some(hasEverBegun)) return true;
  const last = status.initContainerStatuses?.find(({ name }) => name === spec.name);
  if (spec.restartPolicy === 'Always') return last?.state?.running !== undefined && last.started === true;
  return [last?.state, last?.lastState].some((state) => state?.terminated?.exitCode === 0);
}

function terminatedStatus(container: ContainerStatusJson): ContainerStatusJson {
  if (container.state?.terminated !== undefined) return container;
  return {
    ...container,
    ready: false,
    started: false,
    state: {
      terminated: {
        reason: 'ContainerStatusUnknown',
        message: 'The container could not be located when the pod was terminated',
        exitCode: 137,
      },
    },
  } as ContainerStatusJson;
}
