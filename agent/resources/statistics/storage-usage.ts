/**
 * Measures the usage of the node's file systems, and what each pod has written: logs, writable layers and volumes. A
 * measurement walks directories, so its result is reused (`--volume-stats-agg-period`), and walks run on request only
 * (`pod-walks.ts`).
 */
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { PodVolume, VolumeManager } from '../../volumes/pod-volumes.ts';
import { allContainers, formatPod } from '../../runtime/kuberuntime/pod-containers.ts';
import type { Runtime } from '../../runtime/runtime.ts';
import {
  countOf,
  type DiskUsage,
  diskUsage,
  filesUsage,
  type Filesystem,
  filesystemOf,
  type GrowingUsage,
} from './disk-usage.ts';
import { PodWalks } from './pod-walks.ts';

/** The usage of one volume of a pod. */
export interface VolumeUsage {
  readonly name: string;
  readonly usage: DiskUsage;
  readonly filesystem: Filesystem | undefined;
  /** The volume is removed with the pod and counts for its ephemeral storage, unless it is in memory. */
  readonly ephemeral: boolean;
  /** The volume is in memory and counts for memory instead of disks. */
  readonly memory: boolean;
  /** The name of the volume's persistent volume claim; '' if it has none. */
  readonly claim: string;
}

interface ContainerStorage {
  readonly layer: DiskUsage;
  readonly logs: DiskUsage;
}

/** What one pod has written to the filesystems of the node. */
export interface PodStorage {
  readonly containers: ReadonlyMap<string, ContainerStorage>;
  readonly volumes: readonly VolumeUsage[];
  /** Writable layers, logs, ephemeral volumes, and the files that the agent creates for the containers. */
  readonly ephemeral: DiskUsage;
}

/** The filesystems of the node. Images and containers may share that of the root directory. */
export interface NodeStorage {
  /** The file system of the root directory. */
  readonly root: Filesystem | undefined;
  readonly images: { readonly filesystem: Filesystem | undefined; readonly used: DiskUsage };
  readonly containers: { readonly filesystem: Filesystem | undefined; readonly used: DiskUsage };
}

interface StorageUsageOptions {
  readonly runtime: Pick<Runtime, 'containerStats' | 'imageFilesystems'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
  readonly volumes: Pick<VolumeManager, 'podVolumes'>;
  readonly pods: () => readonly Pod[];
  /** The value of `--volume-stats-agg-period`. If it is not positive, volumes are never walked. */
  readonly periodMs: number;
  /** Called for each measurement of a volume. `source` is the name of the driver that measured it, or `du` for a walk. */
  readonly onVolume?: (source: string, tookMs: number) => void;
}

const NOTHING: DiskUsage = { usedBytes: 0, inodesUsed: 0 };
/** How long the usage of the runtime's file systems is reused: it changes slowly, and the runtime walks directories for it. */
const RUNTIME_TTL_MS = 60_000;
/** How long the sizes of writable layers are reused: pods that are measured one after the other share one reading. */
const LAYERS_TTL_MS = 2_000;

/** Owns the measurements. Callers that ask for the same measurement meanwhile share it. */
export class StorageUsage {
  readonly #options: StorageUsageOptions;
  readonly #walks: PodWalks<PodStorage>;
  #layerStats: { readonly atMs: number; readonly answer: ReturnType<Runtime['containerStats']> } | undefined;
  #imageFilesystems:
    | { readonly atMs: number; readonly answer: Promise<Awaited<ReturnType<Runtime['imageFilesystems']>>> }
    | undefined;

  constructor(options: StorageUsageOptions) {
    this.#options = options;
    const { clock, logger } = options;
    this.#walks = new PodWalks({
      clock,
      measure: (pod, soFar) => this.#measurePod(pod, soFar),
      onError: (pod, error) =>
        logger.warn({ pod: formatPod(pod), err: error }, 'Cannot measure what a pod has written'),
    });
  }

  /**
   * Measures the filesystems of the node. Free space is read at each call. The usage that the runtime reports for images and
   * writable layers may be a minute old. If the runtime does not report a filesystem, that of the images counts as that of the
   * root directory, and that of the containers as that of the images.
   */
  async node(): Promise<NodeStorage> {
    const { rootDirectory } = this.#options;
    const answer = await this.#runtimeFilesystems();
    const usageOf = async (
      list: readonly { readonly mountpoint: string; readonly usedBytes: number; readonly inodesUsed: number }[],
    ): Promise<NodeStorage['images']> => {
      const [first] = list;
      if (first === undefined) return { filesystem: undefined, used: NOTHING };
      return {
        filesystem: await filesystemOf(first.mountpoint),
        used: { usedBytes: first.usedBytes, inodesUsed: first.inodesUsed },
      };
    };
    const root = await filesystemOf(rootDirectory);
    const [images, containers] = [await usageOf(answer.images), await usageOf(answer.containers)];
    return {
      root,
      images: images.filesystem === undefined ? { ...images, filesystem: root } : images,
      containers:
        containers.filesystem === undefined ? { ...containers, filesystem: images.filesystem ?? root } : containers,
    };
  }

  /**
   * Resolves to the usage of the pods that have been measured. A measurement may be older than `maxAgeMs` where it takes long.
   * Until it has ended, the ephemeral usage of such a pod is at least what was found so far. Nothing is measured if `periodMs`
   * is not positive.
   */
  async pods(maxAgeMs: number = this.#options.periodMs): Promise<ReadonlyMap<string, PodStorage>> {
    const { periodMs, pods } = this.#options;
    if (periodMs <= 0) return new Map();
    const measured = await this.#walks.measured(pods(), maxAgeMs);
    return new Map(
      [...measured].flatMap(([uid, { whole, soFar }]) => {
        const storage = soFar === undefined ? whole : withAtLeast(whole, soFar);
        return storage === undefined ? [] : [[uid, storage] as const];
      }),
    );
  }

  async #runtimeFilesystems(): Promise<Awaited<ReturnType<Runtime['imageFilesystems']>>> {
    const { clock, runtime, logger } = this.#options;
    const atMs = clock.monotonic();
    if (this.#imageFilesystems === undefined || atMs - this.#imageFilesystems.atMs > RUNTIME_TTL_MS)
      this.#imageFilesystems = { atMs, answer: runtime.imageFilesystems() };
    try {
      return await this.#imageFilesystems.answer;
    } catch (error) {
      this.#imageFilesystems = undefined;
      logger.debug({ err: error }, 'Cannot read the image file systems of the runtime');
      return { images: [], containers: [] };
    }
  }

  /** Resolves to the writable layers, by the uid of the pod and the name of the container. */
  async #layers(): Promise<ReadonlyMap<string, DiskUsage>> {
    const { clock, runtime } = this.#options;
    const atMs = clock.monotonic();
    if (this.#layerStats === undefined || atMs - this.#layerStats.atMs > LAYERS_TTL_MS)
      // Without statistics of the runtime, the writable layers count as empty.
      this.#layerStats = { atMs, answer: runtime.containerStats().catch(() => []) };
    return new Map(
      (await this.#layerStats.answer).map((stats) => [
        `${stats.labels['io.kubernetes.pod.uid'] ?? ''}/${stats.labels['io.kubernetes.container.name'] ?? ''}`,
        { usedBytes: stats.writableLayerBytes, inodesUsed: stats.writableLayerInodes },
      ]),
    );
  }

  /** Measures a driver's volume without a walk, because it may contain any number of files and be remote. */
  async #measureByDriver(
    measure: NonNullable<PodVolume['measure']>,
  ): Promise<{ readonly usage?: DiskUsage; readonly filesystem: Filesystem | undefined }> {
    const { clock, onVolume } = this.#options;
    const fromMs = clock.monotonic();
    try {
      const found = await measure();
      if (found === undefined) return { filesystem: undefined };
      onVolume?.(found.driver, clock.monotonic() - fromMs);
      const usage = { usedBytes: countOf(found.usedBytes), inodesUsed: countOf(found.inodesUsed) };
      const filesystem = {
        capacityBytes: countOf(found.capacityBytes),
        availableBytes: countOf(found.availableBytes),
        usedBytes: usage.usedBytes,
        inodes: countOf(found.inodes),
        inodesFree: countOf(found.inodesFree),
        device: 0,
      };
      return { usage, filesystem };
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'Cannot read the volume usage from its driver');
      return { filesystem: undefined };
    }
  }

  /**
   * Measures the files that the agent creates for a pod and its containers can write to: their termination logs and
   * `/etc/hosts`.
   */
  async #createdFiles(uid: string, soFar: GrowingUsage): Promise<readonly DiskUsage[]> {
    const directory = join(this.#options.rootDirectory, 'pods', uid);
    return [
      await diskUsage(join(directory, 'etc-hosts'), soFar),
      await diskUsage(join(directory, 'containers'), soFar),
    ];
  }

  async #measurePod(pod: Pod, soFar: GrowingUsage): Promise<PodStorage> {
    const layers = await this.#layers();
    const { clock, onVolume, podLogsDirectory, volumes: manager } = this.#options;
    const { name, namespace, uid } = pod.metadata;
    const containers = new Map<string, ContainerStorage>();
    for (const { container } of allContainers(pod)) {
      containers.set(container.name, {
        layer: layers.get(`${uid}/${container.name}`) ?? NOTHING,
        logs: await filesUsage(join(podLogsDirectory, `${namespace}_${name}_${uid}`, container.name), soFar),
      });
    }
    const volumes: VolumeUsage[] = [];
    for (const volume of manager.podVolumes(uid)) {
      const spec = (pod.spec.volumes ?? []).find((entry) => entry.name === volume.name);
      const claim = spec?.persistentVolumeClaim?.claimName ?? '';
      if (volume.measure !== undefined) {
        const { usage, filesystem } = await this.#measureByDriver(volume.measure);
        if (usage !== undefined)
          volumes.push({ name: volume.name, usage, filesystem, ephemeral: false, memory: false, claim });
        continue;
      }
      const memory = spec?.emptyDir?.medium === 'Memory' || spec?.secret !== undefined || spec?.projected !== undefined;
      // A host path is not charged to the pod, because any process may write to it.
      if (volume.path === '' || !(volume.ephemeral || memory || claim !== '')) continue;
      const fromMs = clock.monotonic();
      const usage = await diskUsage(volume.path, volume.ephemeral && !memory ? soFar : undefined);
      onVolume?.('du', clock.monotonic() - fromMs);
      volumes.push({
        name: volume.name,
        usage,
        filesystem: await filesystemOf(volume.path),
        ephemeral: volume.ephemeral,
        memory,
        claim,
      });
    }
    const parts = [
      ...[...containers.values()].flatMap(({ layer, logs }) => [layer, logs]),
      ...(await this.#createdFiles(uid, soFar)),
      ...volumes.filter((volume) => volume.ephemeral && !volume.memory).map((volume) => volume.usage),
    ];
    return {
      containers,
      volumes,
      ephemeral: {
        usedBytes: parts.reduce((sum, part) => sum + part.usedBytes, 0),
        inodesUsed: parts.reduce((sum, part) => sum + part.inodesUsed, 0),
      },
    };
  }
}

function withAtLeast(whole: PodStorage | undefined, soFar: DiskUsage): PodStorage {
  const { containers = new Map(), volumes = [], ephemeral = NOTHING } = whole ?? {};
  return {
    containers,
    volumes,
    ephemeral: {
      usedBytes: Math.max(ephemeral.usedBytes, Math.round(soFar.usedBytes)),
      inodesUsed: Math.max(ephemeral.inodesUsed, Math.round(soFar.inodesUsed)),
    },
  };
}
