/**
 * How full the node's file systems are and what each pod has written: logs, writable layers, volumes. Sizes are walks over
 * directories: they are kept for a minute, made one after the other, and only when somebody asks.
 */
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Pod, PodVolume, VolumeManager } from '../core-types.ts';
import type { Runtime } from '../runtime/runtime.ts';
import { type DiskUsage, diskUsage, type Filesystem, filesystemOf } from './disk-usage.ts';

export interface VolumeUsage {
  readonly name: string;
  readonly usage: DiskUsage;
  readonly filesystem: Filesystem | undefined;
  /** Goes with the pod and counts for its ephemeral storage. */
  readonly ephemeral: boolean;
  /** In memory: counts for memory, not for disks. */
  readonly memory: boolean;
  /** Name of the claim behind it. */
  readonly claim: string;
}

export interface ContainerStorage {
  readonly layer: DiskUsage;
  readonly logs: DiskUsage;
}

export interface PodStorage {
  readonly containers: ReadonlyMap<string, ContainerStorage>;
  readonly volumes: readonly VolumeUsage[];
  /** Layers, logs and volumes that go with the pod. */
  readonly ephemeral: DiskUsage;
}

export interface NodeStorage {
  /** Of the root directory. */
  readonly root: Filesystem | undefined;
  readonly images: { readonly filesystem: Filesystem | undefined; readonly used: DiskUsage };
  readonly containers: { readonly filesystem: Filesystem | undefined; readonly used: DiskUsage };
}

export interface StorageUsageOptions {
  readonly runtime: Pick<Runtime, 'containerStats' | 'imageFilesystems'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
  readonly volumes: Pick<VolumeManager, 'podVolumes'>;
  readonly pods: () => readonly Pod[];
  /** `--volume-stats-agg-period`; not above 0: never walked. */
  readonly periodMs: number;
}

const NOTHING: DiskUsage = { usedBytes: 0, inodesUsed: 0 };
/** What the runtime says of its own file systems changes slowly, and costs it a walk. */
const RUNTIME_TTL_MS = 60_000;

export class StorageUsage {
  readonly #options: StorageUsageOptions;
  #pods: { readonly atMs: number; readonly byUid: Promise<Map<string, PodStorage>> } | undefined;
  #runtime:
    | { readonly atMs: number; readonly answer: Promise<Awaited<ReturnType<Runtime['imageFilesystems']>>> }
    | undefined;

  constructor(options: StorageUsageOptions) {
    this.#options = options;
  }

  /** Free space is read now; what images take may be a minute old. */
  async node(): Promise<NodeStorage> {
    const { rootDirectory } = this.#options;
    const answer = await this.#runtimeFilesystems();
    const of = async (
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
    const [images, containers] = [await of(answer.images), await of(answer.containers)];
    return {
      root,
      images: images.filesystem === undefined ? { ...images, filesystem: root } : images,
      containers:
        containers.filesystem === undefined ? { ...containers, filesystem: images.filesystem ?? root } : containers,
    };
  }

  pods(maxAgeMs: number = this.#options.periodMs): Promise<ReadonlyMap<string, PodStorage>> {
    const { clock, periodMs, pods } = this.#options;
    if (periodMs <= 0) return Promise.resolve(new Map());
    const atMs = clock.monotonic();
    const known = this.#pods;
    if (known !== undefined && atMs - known.atMs <= maxAgeMs) return this.#withNew(known.byUid);
    const byUid = this.#measure(pods());
    const entry = { atMs, byUid };
    this.#pods = entry;
    byUid.catch(() => {
      if (this.#pods === entry) this.#pods = undefined;
    });
    return byUid;
  }

  async #runtimeFilesystems(): Promise<Awaited<ReturnType<Runtime['imageFilesystems']>>> {
    const { clock, runtime, logger } = this.#options;
    const atMs = clock.monotonic();
    if (this.#runtime === undefined || atMs - this.#runtime.atMs > RUNTIME_TTL_MS)
      this.#runtime = { atMs, answer: runtime.imageFilesystems() };
    try {
      return await this.#runtime.answer;
    } catch (error) {
      this.#runtime = undefined;
      logger.debug({ error }, 'The runtime does not say where its images lie');
      return { images: [], containers: [] };
    }
  }

  /** Pods that came since the last walk are measured alone. */
  async #withNew(known: Promise<Map<string, PodStorage>>): Promise<ReadonlyMap<string, PodStorage>> {
    const measured = await known;
    const missing = this.#options.pods().filter((pod) => !measured.has(pod.metadata.uid));
    if (missing.length > 0) for (const [uid, storage] of await this.#measure(missing)) measured.set(uid, storage);
    return measured;
  }

  async #measure(pods: readonly Pod[]): Promise<Map<string, PodStorage>> {
    const { runtime } = this.#options;
    const layers = new Map<string, DiskUsage>();
    for (const stats of await runtime.containerStats().catch(() => [])) {
      layers.set(
        `${stats.labels['io.kubernetes.pod.uid'] ?? ''}/${stats.labels['io.kubernetes.container.name'] ?? ''}`,
        { usedBytes: stats.writableLayerBytes, inodesUsed: stats.writableLayerInodes },
      );
    }
    const measured = new Map<string, PodStorage>();
    for (const pod of pods) measured.set(pod.metadata.uid, await this.#measurePod(pod, layers));
    return measured;
  }

  /** Never by a walk: a volume of a driver may hold anything, and be far away. */
  async #byDriver(
    measure: NonNullable<PodVolume['measure']>,
  ): Promise<{ readonly usage?: DiskUsage; readonly filesystem: Filesystem | undefined }> {
    try {
      const found = await measure();
      if (found === undefined) return { filesystem: undefined };
      const { usedBytes, inodesUsed } = found;
      return { usage: { usedBytes, inodesUsed }, filesystem: { ...found, device: 0 } };
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'a driver did not say how full its volume is');
      return { filesystem: undefined };
    }
  }

  async #measurePod(pod: Pod, layers: ReadonlyMap<string, DiskUsage>): Promise<PodStorage> {
    const { podLogsDirectory, volumes: manager } = this.#options;
    const { name, namespace, uid } = pod.metadata;
    const containers = new Map<string, ContainerStorage>();
    for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers]) {
      containers.set(container.name, {
        layer: layers.get(`${uid}/${container.name}`) ?? NOTHING,
        logs: await diskUsage(join(podLogsDirectory, `${namespace}_${name}_${uid}`, container.name)),
      });
    }
    const volumes: VolumeUsage[] = [];
    for (const volume of manager.podVolumes(uid)) {
      const spec = (pod.spec.volumes ?? []).find((entry) => entry.name === volume.name);
      const claim = spec?.persistentVolumeClaim?.claimName ?? '';
      if (volume.measure !== undefined) {
        const { usage, filesystem } = await this.#byDriver(volume.measure);
        if (usage !== undefined)
          volumes.push({ name: volume.name, usage, filesystem, ephemeral: false, memory: false, claim });
        continue;
      }
      // A path of the host is anybody's: nobody is charged for it.
      if (volume.path === '' || (!volume.ephemeral && claim === '')) continue;
      volumes.push({
        name: volume.name,
        usage: await diskUsage(volume.path),
        filesystem: await filesystemOf(volume.path),
        ephemeral: volume.ephemeral,
        memory: spec?.emptyDir?.medium === 'Memory' || spec?.secret !== undefined || spec?.projected !== undefined,
        claim,
      });
    }
    const parts = [
      ...[...containers.values()].flatMap(({ layer, logs }) => [layer, logs]),
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
