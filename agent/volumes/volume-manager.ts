/**
 * The volume manager mounts the volumes of a pod below `<root>/pods/<uid>`, most at `volumes/<plugin>/<name>`, keeps their
 * content up to date while the pod exists, and unmounts them after it has terminated. What only this pod used is removed.
 *
 * Each pod has one operation at a time, so a volume that hangs blocks only its own pod. The state is read from the host (mounts
 * and directories), so that a restarted agent finds it.
 */
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { SelectableNode } from '../../api/kinds/node-selection.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { PodEventRecorder } from '../base/model/pod-events.ts';
import type { Container, Pod, Volume } from '../base/model/pod.ts';
import { type PreparedMounts, VolumeError, type VolumeText } from '../runtime/container-volumes.ts';
import { formatPod } from '../runtime/kuberuntime/pod-containers.ts';
import { type PodVolume, usedVolumes, type VolumeManager } from './pod-volumes.ts';
import { removeTree } from '../base/files/beneath.ts';
import { containerMounts } from './container-mounts.ts';
import { ExclusiveVolumes } from './exclusive-volumes.ts';
import type { Mounter } from './mounter.ts';
import type { PayloadSources } from './payload.ts';
import { PodMounts } from './pod-mounts.ts';
import { readInside } from './subpath.ts';
import { checkLimit, unmountedError, VolumeNotProcessedError, VolumeStepError } from './volume-failure.ts';
import { type CsiMounts, isPayloadVolume, type ReadyVolume, VolumeSetUp } from './volume-set-up.ts';

interface VolumeManagerOptions {
  /** The value of `--root-dir`. */
  readonly rootDirectory: string;
  readonly client: Client | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly events: PodEventRecorder;
  readonly mounter: Mounter;
  readonly sources: PayloadSources;
  /** How often the content of a mounted volume is refreshed. */
  readonly refreshMs: number;
  /** How long mounting a pod's volumes may take until the sync fails. */
  readonly mountTimeoutMs: number;
  readonly csi?: CsiDriverVolumes;
  readonly allocatableMemoryBytes?: () => number;
  /** The node with the labels that the API server knows. */
  readonly node: () => SelectableNode;
  /** Whether the runtime supports recursive read-only mounts. */
  readonly recursiveReadOnly?: () => boolean;
  /** Forgets the tokens and certificates of a removed pod. */
  readonly forgetPod: (podUid: string) => void;
  readonly observe?: VolumeObserver;
}

/** Receives the operations and their results, for metrics. */
export interface VolumeObserver {
  mounted(volume: Volume, step: { readonly tookMs: number; readonly isDone: boolean }): void;
  /** The numbers of removed pods whose volumes one clean-up has removed, and of those where it failed. */
  swept(pods: { readonly cleaned: number; readonly failed: number }): void;
}

/** Volumes of CSI drivers (`csi/`). */
export interface CsiDriverVolumes extends CsiMounts {
  unmountPod(podUid: string): Promise<void>;
  /** Removes volumes that no pod of the node uses any more. */
  cleanUnused(): Promise<void>;
}

interface PodVolumes {
  pod: Pod;
  readonly ready: Map<string, ReadyVolume>;
  refresh: Timer | undefined;
  /** Mounting, refreshing and unmounting of one pod's volumes must not overlap. */
  readonly queue: SerialQueue;
  /** The number of failures to mount since the last success or the last change of an object of the pod. */
  failures: number;
  failingSinceMs: number | undefined;
}

/** The largest file from which environment variables are read. */
const MAX_TEXT_BYTES = 1_048_576;

/**
 * Creates the volume manager. Its `refreshPods` updates the content of volumes of these pods at once, because an object that
 * they show has changed.
 */
export function createVolumeManager(
  options: VolumeManagerOptions,
): VolumeManager & { refreshPods(uids: ReadonlySet<string>): void } {
  return new HostVolumes(options);
}

class HostVolumes implements VolumeManager {
  readonly #options: VolumeManagerOptions;
  readonly #pods = new Map<string, PodVolumes>();
  readonly #mounts: PodMounts;
  readonly #exclusive: ExclusiveVolumes;
  readonly #setUp: VolumeSetUp;

  constructor(options: VolumeManagerOptions) {
    const { rootDirectory, client, clock, sources, csi, events, allocatableMemoryBytes = () => 0 } = options;
    this.#options = options;
    this.#mounts = new PodMounts(options.mounter);
    this.#exclusive = new ExclusiveVolumes(rootDirectory);
    this.#setUp = new VolumeSetUp({
      rootDirectory,
      client,
      clock,
      sources,
      mounts: this.#mounts,
      exclusive: this.#exclusive,
      csi,
      allocatableMemoryBytes,
      node: options.node,
      onGrown: (pod, name) =>
        events.event(
          pod,
          'Normal',
          'FileSystemResizeSuccessful',
          `MountVolume.NodeExpandVolume succeeded for volume "${name}"`,
        ),
    });
  }

  #directory(podUid: string): string {
    return this.#setUp.podDirectory(podUid);
  }

  #state(pod: Pod): PodVolumes {
    const existing = this.#pods.get(pod.metadata.uid);
    if (existing !== undefined) {
      existing.pod = pod;
      return existing;
    }
    const state: PodVolumes = {
      pod,
      ready: new Map(),
      refresh: undefined,
      queue: new SerialQueue(),
      failures: 0,
      failingSinceMs: undefined,
    };
    this.#pods.set(pod.metadata.uid, state);
    return state;
  }

  async mount(pod: Pod, signal: AbortSignal): Promise<void> {
    const { clock, mountTimeoutMs } = this.#options;
    const state = this.#state(pod);
    const volumes = usedVolumes(pod);
    const failures = new Map<string, unknown>();
    const pending = new Set(volumes.map((volume) => volume.name));
    const work = state.queue.run(async () => {
      await mkdir(join(this.#directory(pod.metadata.uid), 'volumes'), { recursive: true, mode: 0o750 });
      await Promise.all(
        volumes.map(async (volume) => {
          try {
            // Of volumes that are set up already, only the content is refreshed. Their mounts are not checked again.
            if (!state.ready.has(volume.name) || isPayloadVolume(volume))
              state.ready.set(volume.name, await this.#setUpVolume(pod, volume, signal));
            pending.delete(volume.name);
          } catch (error) {
            // A mounted volume stays usable with its last content if its source is gone.
            if (state.ready.has(volume.name)) pending.delete(volume.name);
            else failures.set(volume.name, error);
            if (!signal.aborted) this.#reportFailure(pod, volume, error);
          }
        }),
      );
    });
    await this.#within(work, pending, signal);
    if (failures.size > 0) {
      state.failures += 1;
      state.failingSinceMs ??= clock.monotonic();
      if (clock.monotonic() - state.failingSinceMs >= mountTimeoutMs) checkLimit(pending, failures);
      const failed = unmountedError(pending, failures, state.failures);
      if (!signal.aborted && [...failures.values()].some((error) => error instanceof VolumeNotProcessedError))
        this.#options.events.event(
          pod,
          'Warning',
          'FailedMount',
          `Unable to attach or mount volumes: ${failed.message}`,
        );
      throw failed;
    }
    state.failures = 0;
    state.failingSinceMs = undefined;
    this.#scheduleRefresh(state);
  }

  async #setUpVolume(pod: Pod, volume: Volume, signal: AbortSignal): Promise<ReadyVolume> {
    const { clock, observe } = this.#options;
    const fromMs = clock.monotonic();
    let isDone = false;
    try {
      const ready = await this.#setUp.setUp(pod, volume, signal);
      isDone = true;
      return ready;
    } finally {
      observe?.mounted(volume, { tookMs: clock.monotonic() - fromMs, isDone });
    }
  }

  #reportFailure(pod: Pod, volume: Volume, error: unknown): void {
    // Nothing was attempted. The event of the whole pod reports it.
    if (error instanceof VolumeNotProcessedError) return;
    const [step, name] =
      error instanceof VolumeStepError ? [error.step, error.volume] : ['MountVolume.SetUp', volume.name];
    const reason = step.startsWith('MapVolume') ? 'FailedMapVolume' : 'FailedMount';
    this.#options.events.event(pod, 'Warning', reason, `${step} failed for volume "${name}" : ${errorMessage(error)}`);
  }

  /** Waits for the work. Rejects if the signal aborts, and after the mount timeout, with an error that names the volumes. */
  async #within(work: Promise<void>, pending: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { clock, mountTimeoutMs } = this.#options;
    const timeout = Promise.withResolvers<never>();
    const timer = clock.after(mountTimeoutMs, () =>
      timeout.reject(unmountedError(pending, new Map(), 0, 'context deadline exceeded')),
    );
    const onAbort = (): void => timeout.reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await Promise.race([work, timeout.promise]);
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** Sets the timer of the next refresh, if the content of a volume of the pod can change. */
  #scheduleRefresh(state: PodVolumes): void {
    if (![...state.ready.values()].some((volume) => volume.refreshes === true)) return;
    state.refresh?.cancel();
    state.refresh = this.#options.clock.after(this.#options.refreshMs, () => this.#refresh(state));
  }

  #refresh(state: PodVolumes): void {
    const { uid } = state.pod.metadata;
    if (this.#pods.get(uid) !== state) return;
    const volumes = (state.pod.spec.volumes ?? []).filter((volume) => state.ready.get(volume.name)?.refreshes === true);
    state.queue
      .run(async () => {
        await Promise.all(volumes.map((volume) => this.#refreshVolume(state, volume)));
      })
      .catch((error: unknown) =>
        this.#options.logger.warn(
          { pod: formatPod(state.pod), err: error },
          'Cannot refresh the content of the volumes of a pod, keeping it',
        ),
      )
      .finally(() => {
        if (this.#pods.get(uid) === state) this.#scheduleRefresh(state);
      });
  }

  /** Refreshes the content of a volume. Records a failure as an event and does not reject, so that the others are refreshed. */
  async #refreshVolume(state: PodVolumes, volume: Volume): Promise<void> {
    try {
      state.ready.set(volume.name, await this.#setUpVolume(state.pod, volume, new AbortController().signal));
    } catch (error) {
      this.#reportFailure(state.pod, volume, error);
    }
  }

  refreshPods(uids: ReadonlySet<string>): void {
    for (const uid of uids) {
      const state = this.#pods.get(uid);
      if (state === undefined) continue;
      // A missing object may exist now, so the delays begin again.
      state.failures = 0;
      if (state.ready.size > 0) this.#refresh(state);
    }
  }

  /** Whether the runtime supports recursive read-only mounts. */
  recursiveReadOnly(): boolean {
    return this.#options.recursiveReadOnly?.() ?? false;
  }

  async containerMounts(pod: Pod, container: Container, env: ReadonlyMap<string, string>): Promise<PreparedMounts> {
    const { mounter, logger } = this.#options;
    return containerMounts({
      pod,
      container,
      env,
      ready: this.#pods.get(pod.metadata.uid)?.ready ?? new Map<string, ReadyVolume>(),
      podDirectory: this.#directory(pod.metadata.uid),
      recursiveReadOnly: this.recursiveReadOnly(),
      mounter,
      logger,
    });
  }

  async fileText(pod: Pod, volumeName: string, path: string): Promise<VolumeText> {
    const volume = this.#pods.get(pod.metadata.uid)?.ready.get(volumeName);
    if (volume === undefined || volume.path === '')
      throw new VolumeError(`cannot find the volume "${volumeName}" referenced by FileKeyRef`);
    return { path: join(volume.path, path), text: await readInside(volume.path, path, MAX_TEXT_BYTES) };
  }

  async unmount(pod: Pod, _signal: AbortSignal): Promise<void> {
    const uid = pod.metadata.uid;
    const state = this.#pods.get(uid);
    const clean = async (): Promise<void> => {
      state?.refresh?.cancel();
      await this.#cleanPod(uid);
    };
    // Waits for the running operation.
    if (state === undefined) await clean();
    else await state.queue.run(clean);
    this.#pods.delete(uid);
    state?.refresh?.cancel();
    this.#options.forgetPod(uid);
  }

  async #cleanPod(uid: string): Promise<void> {
    const directory = this.#directory(uid);
    // Sub-paths are binds of the drivers' volumes, so they are unmounted first.
    await this.#mounts.takeDownAll(join(directory, 'volume-subpaths'));
    await this.#options.csi?.unmountPod(uid);
    await this.#mounts.takeDownAll(directory);
    for (const part of ['volumes', 'volume-subpaths', 'volumeDevices', 'plugins']) {
      await removeTree(join(directory, part));
    }
    await this.#exclusive.release(uid);
  }

  async cleanOrphans(podUids: () => ReadonlySet<string>): Promise<void> {
    const { csi, logger, observe, rootDirectory } = this.#options;
    const root = join(rootDirectory, 'pods');
    const pods = { cleaned: 0, failed: 0 };
    // The directory does not exist before the first pod.
    for (const uid of await readdir(root).catch(() => [])) {
      if (this.#pods.has(uid) || podUids().has(uid)) continue;
      try {
        await this.#cleanPod(uid);
        await removeTree(join(root, uid));
        pods.cleaned += 1;
      } catch (error) {
        pods.failed += 1;
        logger.warn({ podUid: uid, err: error }, 'Cannot remove the volumes of a removed pod, retrying');
      }
    }
    observe?.swept(pods);
    await csi?.cleanUnused();
  }

  podVolumes(podUid: string): readonly PodVolume[] {
    const state = this.#pods.get(podUid);
    return state === undefined ? [] : [...state.ready.values()].filter((volume) => volume.path !== '');
  }

  extraSupplementalGroups(pod: Pod): readonly number[] {
    const ready = this.#pods.get(pod.metadata.uid)?.ready.values() ?? [];
    return [...new Set([...ready].flatMap((volume) => (volume.groupId === undefined ? [] : [volume.groupId])))];
  }

  async close(): Promise<void> {
    for (const state of this.#pods.values()) state.refresh?.cancel();
    await Promise.all([...this.#pods.values()].map((state) => state.queue.drained()));
  }
}
