/**
 * Housekeeping periodically starts desired pods that have no worker, forgets finished pods, terminates orphaned ones, and
 * removes what pods have left. Until every source has sent its pods, it only removes dead containers and sandboxes.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { PodCgroups } from '../host/cgroups/pod-cgroups.ts';
import type { Pod } from '../base/model/pod.ts';
import type { VolumeManager } from '../volumes/pod-volumes.ts';
import type { ProbeManager } from './prober/probe-manager.ts';
import type { StatusManager } from './status/status-manager.ts';
import { collectContainers, type CollectOptions } from '../runtime/kuberuntime/container-gc.ts';
import type { KubeRuntime } from '../runtime/kuberuntime/kube-runtime.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import { readRuntimeStatus } from '../runtime/kuberuntime/runtime-status.ts';
import { runningPods } from '../runtime/kuberuntime/running-pods.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { PodTable } from './pod-table.ts';
import type { SyncLoop } from './sync-loop.ts';
import type { PodAllocations } from './workers/pod-allocation.ts';
import type { PodManager } from './workers/pod-manager.ts';
import { isEnded, type PodWorkers } from './workers/pod-workers.ts';

const PERIOD_MS = 2_000;
const COLLECT_MS = 60_000;
const RESIZE_RETRY_MS = 30_000;

interface HousekeepingOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runtime: Runtime;
  readonly kubeRuntime: Pick<KubeRuntime, 'forgetExpiredBackOffs'>;
  readonly table: PodTable;
  readonly desired: PodManager;
  readonly workers: PodWorkers;
  readonly syncLoop: Pick<SyncLoop, 'admit' | 'deleteMirror'>;
  readonly volumes: Pick<VolumeManager, 'cleanOrphans'>;
  readonly probes: Pick<ProbeManager, 'cleanup'>;
  readonly statuses: Pick<StatusManager, 'get' | 'removeOrphans'>;
  readonly cgroups: Pick<PodCgroups, 'cleanOrphans'>;
  readonly allocations: PodAllocations;
  readonly podLogsDirectory: string;
  readonly podsDirectory: string;
  readonly containerLogsDirectory: string | undefined;
  /** The dead containers to keep. */
  readonly deadContainers: Pick<CollectOptions, 'keptPerContainer' | 'keptInTotal' | 'minAgeMs'>;
  /** Records an event about the node. */
  readonly nodeEvent: (reason: string, message: string) => void;
  /** Counts orphaned pods, and pods that were started again with the same uid. */
  readonly observe: (event: 'orphaned' | 'restarted', pod: Pod) => void;
}

/** Runs the clean-ups in turns. A failure is logged and ends the turn. */
export class Housekeeping {
  readonly #options: HousekeepingOptions;
  #cleanedUpAtMs: number | undefined;
  /** Some cgroups of orphaned pods can only be removed in the next turn. */
  #areCgroupsLeft = false;
  #collectedAtMs: number | undefined;
  #resizesWokenAtMs = 0;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
  }

  /** Repeats the work at its period until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, table } = this.#options;
    const loop = new WakeableLoop({
      clock,
      backoff: new Backoff({ firstMs: PERIOD_MS, longestMs: PERIOD_MS }),
      onError: (error) => logger.error({ err: error }, 'Housekeeping failed, retrying'),
    });
    await loop.run(signal, async () => {
      if (table.sourcesReady()) await this.#cleanUp();
      else await this.#collectEarly();
      return PERIOD_MS;
    });
  }

  async #cleanUp(): Promise<void> {
    const { cgroups, clock, desired, kubeRuntime, syncLoop, table, volumes } = this.#options;
    for (const mirror of desired.mirrors())
      if (desired.podOfMirror(mirror) === undefined) await syncLoop.deleteMirror(mirror);
    const { hasForgotten } = this.#restartAndForget();
    if (!hasForgotten && !this.#areCgroupsLeft && !isDue(this.#cleanedUpAtMs, clock)) return;
    this.#cleanedUpAtMs = clock.monotonic();
    kubeRuntime.forgetExpiredBackOffs();
    await this.#collect();
    // Each step reads the known pods after it has listed what exists: a pod that was added meanwhile is no orphan.
    await this.#terminateOrphans();
    await volumes.cleanOrphans(() => table.uids());
    this.#areCgroupsLeft = await cgroups.cleanOrphans(() => table.uids());
  }

  /**
   * Starts desired pods without a worker and forgets finished pods. Returns whether a pod was forgotten. Does not await, so
   * that the set of desired pods stays valid.
   */
  #restartAndForget(): { readonly hasForgotten: boolean } {
    const { allocations, clock, desired, probes, statuses, table, workers } = this.#options;
    const desiredUids = new Set(desired.list().map((pod) => pod.metadata.uid));
    this.#restart();
    const forgotten = workers.forget(desiredUids);
    // A forgotten pod that is desired again starts without state; the next turn admits it.
    const remaining = table.uids().difference(new Set(forgotten));
    probes.cleanup(remaining);
    allocations.forget(remaining);
    // A pod that is gone can make room for a deferred resize.
    if (forgotten.length > 0 || clock.monotonic() - this.#resizesWokenAtMs >= RESIZE_RETRY_MS) {
      this.#resizesWokenAtMs = clock.monotonic();
      for (const uid of allocations.deferred()) workers.wake(uid);
    }
    statuses.removeOrphans(new Set([...remaining, ...desired.mirrors().map((mirror) => mirror.metadata.uid)]));
    return { hasForgotten: forgotten.length > 0 };
  }

  /** Admits desired pods that have no worker, such as static pods whose manifest was removed and added again. */
  #restart(): void {
    const { desired, observe, statuses, syncLoop, table, workers } = this.#options;
    for (const pod of desired.list()) {
      const { uid } = pod.metadata;
      if (workers.state(uid) !== undefined || table.isAdmitting(uid)) continue;
      if (isEnded(pod.status) || statuses.get(uid)?.phase === 'Failed') continue;
      observe('restarted', pod);
      syncLoop.admit(pod);
    }
  }

  /** Removes dead containers. Records a failure as an event of the node, and rejects with it. */
  async #collect(): Promise<void> {
    try {
      await this.collectContainers();
    } catch (error) {
      this.#options.nodeEvent('ContainerGCFailed', errorMessage(error));
      throw error;
    }
  }

  /** Removes dead containers, once a minute, while a source has not sent its pods yet. */
  async #collectEarly(): Promise<void> {
    const { clock } = this.#options;
    if (!isDue(this.#collectedAtMs, clock)) return;
    this.#collectedAtMs = clock.monotonic();
    await this.#collect();
  }

  /**
   * Removes dead containers that are not to be kept, and everything of pods that are gone. With `terminatedPods`, also removes
   * the containers of terminated pods that are still desired.
   */
  async collectContainers({ terminatedPods = false }: { readonly terminatedPods?: boolean } = {}): Promise<void> {
    const { desired, runtime, podLogsDirectory, podsDirectory, logger, table, workers, clock } = this.#options;
    const { containerLogsDirectory, deadContainers } = this.#options;
    await collectContainers({
      runtime,
      logger,
      podLogsDirectory,
      podsDirectory,
      ...(containerLogsDirectory === undefined ? {} : { containerLogsDirectory }),
      nowMs: clock.now(),
      ...deadContainers,
      podExists: (uid) =>
        !table.sourcesReady() ||
        (desired.byUid(uid) !== undefined && !(terminatedPods && workers.isFinished(uid))) ||
        !table.isFinished(uid),
    });
  }

  /** Terminates pods that run although they are neither desired nor have a worker, and rejected pods that still run. */
  async #terminateOrphans(): Promise<void> {
    const { desired, logger, observe, runtime, statuses, table, workers } = this.#options;
    for (const pod of await runningPods(runtime)) {
      const { uid, name, namespace } = pod.metadata;
      const rejected = desired.byUid(uid);
      if (rejected !== undefined && statuses.get(uid)?.phase === 'Failed' && workers.state(uid) === undefined) {
        this.#terminateRejected(rejected);
        continue;
      }
      if (table.uids().has(uid)) continue;
      logger.info({ pod: formatPod(pod) }, 'Terminating a running pod that no source has');
      observe('orphaned', pod);
      const status = await readRuntimeStatus(runtime, { uid, name, namespace });
      // The pod has terminated since the list was read.
      if (status.sandboxes.length === 0) continue;
      // The pod's specification, and with it its grace period, is unknown.
      background(workers.kill(pod, { gracePeriodSeconds: 1, status: undefined }), {
        logger,
        what: 'Terminating an orphaned pod',
        fields: { pod: formatPod(pod) },
      });
    }
  }

  /**
   * Terminates a rejected pod that still runs after a restart of the agent. Its status may not show that it runs: the status
   * may not have been sent before the restart, and static pods may have none.
   */
  #terminateRejected(pod: Pod): void {
    const { logger, statuses, workers } = this.#options;
    const { reason = '', message = '' } = statuses.get(pod.metadata.uid) ?? {};
    logger.info({ pod: formatPod(pod), reason }, 'Terminating a rejected pod that still runs');
    background(workers.kill(pod, { gracePeriodSeconds: undefined, status: { reason, message } }), {
      logger,
      what: 'Terminating a rejected pod',
      fields: { pod: formatPod(pod) },
    });
  }
}

function isDue(lastMs: number | undefined, clock: Clock): boolean {
  return lastMs === undefined || clock.monotonic() - lastMs >= COLLECT_MS;
}
