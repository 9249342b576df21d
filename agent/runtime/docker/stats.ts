/**
 * Reads the resource usage of containers from the engine's one-shot statistics. The engine walks the file
 * system to compute the sizes of writable layers, so a successful answer is used for a minute.
 */
import type Docker from 'dockerode';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { ContainerId } from '../runtime-identity.ts';
import type { ContainerStats } from '../runtime-stats.ts';
import { engineTime } from './engine-time.ts';
import { isCode, type DockerClient } from './docker-client.ts';
import { LABEL_INSTANCE } from '../instance.ts';
import { LABEL_POD_UID, LABEL_TYPE, readLabels } from './labels.ts';

const SIZES_TTL_MS = 60_000;

interface EngineStats {
  readonly read: string;
  readonly cpu_stats: { readonly cpu_usage: { readonly total_usage: number } };
  readonly memory_stats: { readonly usage?: number; readonly stats?: Readonly<Record<string, number>> };
}

/** Reads statistics of the containers of one agent. */
export class DockerStats {
  readonly #client: DockerClient;
  readonly #clock: Clock;
  readonly #instance: string;
  #sizes: { readonly atMs: number; readonly byId: Promise<ReadonlyMap<string, number>> } | undefined;

  constructor(client: DockerClient, clock: Clock, instance: string) {
    this.#client = client;
    this.#clock = clock;
    this.#instance = instance;
  }

  async containers(podUid: string | undefined): Promise<readonly ContainerStats[]> {
    const running = await this.#running(podUid);
    const sizes = await this.#layerSizes();
    const stats = await Promise.all(running.map((entry) => this.#container(entry, sizes)));
    return stats.filter((entry) => entry !== undefined);
  }

  #running(podUid: string | undefined): Promise<Docker.ContainerInfo[]> {
    const label = [
      `${LABEL_INSTANCE}=${this.#instance}`,
      `${LABEL_TYPE}=container`,
      ...(podUid === undefined ? [] : [`${LABEL_POD_UID}=${podUid}`]),
    ];
    return this.#client.call('list containers', () => this.#client.docker.listContainers({ filters: { label } }));
  }

  async #container(
    entry: Docker.ContainerInfo,
    sizes: ReadonlyMap<string, number>,
  ): Promise<ContainerStats | undefined> {
    const stats = await this.#read(entry.Id);
    if (stats === undefined) return undefined;
    const memory = stats.memory_stats.stats ?? {};
    const usage = stats.memory_stats.usage ?? 0;
    return {
      id: entry.Id as ContainerId,
      labels: readLabels(entry.Labels).labels,
      timestampMs: engineTime(stats.read),
      cpuUsageCoreNs: stats.cpu_stats.cpu_usage.total_usage,
      memoryUsageBytes: usage,
      memoryWorkingSetBytes: Math.max(0, usage - (memory['total_inactive_file'] ?? memory['inactive_file'] ?? 0)),
      memoryRssBytes: memory['total_rss'] ?? memory['anon'] ?? 0,
      pageFaults: memory['pgfault'] ?? 0,
      majorPageFaults: memory['pgmajfault'] ?? 0,
      writableLayerBytes: sizes.get(entry.Id) ?? 0,
      writableLayerInodes: 0,
    };
  }

  async #read(id: string): Promise<EngineStats | undefined> {
    try {
      return (await this.#client.call('container stats', () =>
        this.#client.docker.getContainer(id).stats({ stream: false, 'one-shot': true }),
      )) as unknown as EngineStats;
    } catch (error) {
      if (isCode(error, 'not-found')) return undefined;
      throw error;
    }
  }

  #layerSizes(): Promise<ReadonlyMap<string, number>> {
    const nowMs = this.#clock.monotonic();
    if (this.#sizes !== undefined && nowMs - this.#sizes.atMs < SIZES_TTL_MS) return this.#sizes.byId;
    const filters = { label: [`${LABEL_INSTANCE}=${this.#instance}`] };
    const byId = this.#client
      .call('container sizes', () => this.#client.docker.listContainers({ size: true, filters }))
      .then((list) => new Map(list.map((entry) => [entry.Id, (entry as { SizeRw?: number }).SizeRw ?? 0])));
    // The caller gets the failure. The next call measures again.
    byId.catch(() => (this.#sizes = undefined));
    this.#sizes = { atMs: nowMs, byId };
    return byId;
  }
}
