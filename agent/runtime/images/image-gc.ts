/**
 * Image garbage collection: when the image file system is fuller than the high threshold, the images that were used longest
 * ago go until it is down to the low one; images unused for longer than a maximum age go at any time. Images in use, the
 * pause image, preloaded and pinned ones never do.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { ContainerStatus, ImageInfo, Runtime } from '../runtime.ts';

export interface ImageGcPolicy {
  /** 100: never for want of space. */
  readonly highThresholdPercent: number;
  readonly lowThresholdPercent: number;
  readonly minAgeMs: number;
  /** 0: no maximum. */
  readonly maxAgeMs: number;
}

/** Of the image file system. */
export interface ImageSpace {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

export interface ImageGcOptions {
  readonly policy: ImageGcPolicy;
  readonly runtime: Pick<Runtime, 'listImages' | 'listContainers' | 'removeImage'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly space: () => Promise<ImageSpace | undefined>;
  /** References and ids that are kept whatever happens. */
  readonly kept: () => Promise<ReadonlySet<string>>;
  readonly aboutNode: (reason: string, message: string) => void;
  readonly onRemoved?: (reason: 'space' | 'age') => void;
  /** What there was at a time of the wall clock. */
  readonly onListed?: (ids: ReadonlySet<string>, atMs: number) => Promise<void>;
}

export interface ImageRecord {
  readonly image: ImageInfo;
  readonly firstSeenMs: number;
  /** Never used since the agent started: when it was first seen. */
  readonly lastUsedMs: number;
}

const PERIOD_MS = 300_000;

/** Pure: images that may go, the one that was used longest ago first. */
function collectable(
  records: readonly ImageRecord[],
  containers: readonly Pick<ContainerStatus, 'imageId' | 'image' | 'imageRef'>[],
  kept: ReadonlySet<string>,
): readonly ImageRecord[] {
  const used = new Set(containers.flatMap(({ imageId, image, imageRef }) => [imageId, image, imageRef]));
  return records
    .filter(({ image }) => !image.pinned && !namesOf(image).some((name) => used.has(name) || kept.has(name)))
    .toSorted((a, b) => a.lastUsedMs - b.lastUsedMs || a.firstSeenMs - b.firstSeenMs);
}

/** Pure: how many bytes have to go; 0 below the high threshold. */
export function bytesToFree(
  { capacityBytes, availableBytes }: ImageSpace,
  { highThresholdPercent, lowThresholdPercent }: ImageGcPolicy,
): number {
  const usedPercent = 100 - Math.floor((availableBytes * 100) / capacityBytes);
  if (highThresholdPercent >= 100 || usedPercent < highThresholdPercent) return 0;
  return Math.max(0, Math.floor((capacityBytes * (100 - lowThresholdPercent)) / 100) - availableBytes);
}

function namesOf(image: ImageInfo): readonly string[] {
  const familiar = image.repoTags.map((tag) => tag.replace(/^docker\.io\/(?:library\/)?/, ''));
  return [image.id, ...image.repoTags, ...familiar, ...image.repoDigests];
}

export class ImageGc {
  readonly #options: ImageGcOptions;
  #records = new Map<string, { firstSeenMs: number; lastUsedMs: number }>();
  /** Collections must not overlap: the eviction manager starts some too. */
  readonly #collections = new SerialQueue();

  constructor(options: ImageGcOptions) {
    this.#options = options;
  }

  /** A pod is about to use it. */
  used(id: string): void {
    const nowMs = this.#options.clock.monotonic();
    const record = this.#records.get(id);
    if (record === undefined) this.#records.set(id, { firstSeenMs: nowMs, lastUsedMs: nowMs });
    else record.lastUsedMs = nowMs;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    let failures = 0;
    while (!signal.aborted) {
      try {
        await this.collect();
        failures = 0;
      } catch (error) {
        failures++;
        logger.warn({ err: error }, 'Images could not be collected');
        // Once may be the runtime's start.
        if (failures > 1) this.#options.aboutNode('ImageGCFailed', (error as Error).message);
      }
      await pause(clock, PERIOD_MS, signal);
    }
  }

  /** Too old ones, then as many as the thresholds say. Throws where not enough could go. */
  collect(): Promise<void> {
    return this.#collections.run(async () => {
      const { policy, space, aboutNode } = this.#options;
      const images = await this.#freeOld(await this.#candidates());
      const found = await space();
      if (found === undefined) return;
      if (found.capacityBytes === 0) {
        const message = 'invalid capacity 0 on image filesystem';
        aboutNode('InvalidDiskCapacity', message);
        throw new Error(message);
      }
      const wanted = bytesToFree(found, policy);
      if (wanted === 0) return;
      this.#options.logger.info({ bytes: wanted }, 'The image file system is nearly full; removing unused images');
      const freed = await this.#free(images, wanted);
      if (freed >= wanted) return;
      const message = `Failed to garbage collect required amount of images. Attempted to free ${wanted} bytes, but only found ${freed} bytes eligible to free.`;
      aboutNode('FreeDiskSpaceFailed', message);
      throw new Error(message);
    });
  }

  /** Under pressure: all that nothing uses. */
  deleteUnused(): Promise<void> {
    return this.#collections.run(async () => {
      await this.#free(await this.#candidates(), Number.POSITIVE_INFINITY);
    });
  }

  async #candidates(): Promise<readonly ImageRecord[]> {
    const { runtime, clock, kept } = this.#options;
    const listedAtMs = clock.now();
    const [images, containers] = [await runtime.listImages(), await runtime.listContainers()];
    await this.#options.onListed?.(new Set(images.map(({ id }) => id)), listedAtMs);
    const nowMs = clock.monotonic();
    const inUse = new Set(containers.flatMap(({ imageId, image, imageRef }) => [imageId, image, imageRef]));
    const next = new Map<string, { firstSeenMs: number; lastUsedMs: number }>();
    for (const image of images) {
      const record = this.#records.get(image.id) ?? { firstSeenMs: nowMs, lastUsedMs: nowMs };
      if (namesOf(image).some((name) => inUse.has(name))) record.lastUsedMs = nowMs;
      next.set(image.id, record);
    }
    this.#records = next;
    return collectable(
      images.map((image) => ({ image, ...(next.get(image.id) ?? { firstSeenMs: nowMs, lastUsedMs: nowMs }) })),
      containers,
      await kept(),
    );
  }

  async #freeOld(images: readonly ImageRecord[]): Promise<readonly ImageRecord[]> {
    const { policy, clock } = this.#options;
    if (policy.maxAgeMs === 0) return images;
    const left: ImageRecord[] = [];
    for (const record of images) {
      if (clock.monotonic() - record.lastUsedMs <= policy.maxAgeMs || !(await this.#remove(record.image, 'age')))
        left.push(record);
    }
    return left;
  }

  async #free(images: readonly ImageRecord[], wanted: number): Promise<number> {
    const { policy, clock } = this.#options;
    let freed = 0;
    for (const { image, firstSeenMs } of images) {
      if (freed >= wanted) break;
      // A fresh image was pulled for a pod that has not started yet.
      if (clock.monotonic() - firstSeenMs < policy.minAgeMs) continue;
      if (await this.#remove(image, 'space')) freed += image.sizeBytes;
    }
    return freed;
  }

  async #remove(image: ImageInfo, reason: 'space' | 'age'): Promise<boolean> {
    const { runtime, logger, onRemoved } = this.#options;
    try {
      // An image of several names goes with the last of them.
      for (const name of image.repoTags.length > 1 ? image.repoTags : [image.id]) await runtime.removeImage(name);
      this.#records.delete(image.id);
      logger.info({ image: image.repoTags[0] ?? image.id, bytes: image.sizeBytes, reason }, 'Removed an unused image');
      onRemoved?.(reason);
      return true;
    } catch (error) {
      logger.debug({ err: error, image: image.id }, 'An unused image could not be removed');
      return false;
    }
  }
}
