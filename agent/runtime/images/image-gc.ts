/**
 * Collects unused images. When the usage of the image filesystem exceeds the high threshold, it removes the least recently used
 * images down to the low threshold. It removes images that are unused for longer than the maximum age at any time. Images in
 * use, the pause image, and preloaded and pinned images are never removed.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { ContainerStatus, ImageInfo, Runtime } from '../runtime.ts';

/** The limits of `--image-gc-*` and `imageMaximumGCAge`. */
export interface ImageGcPolicy {
  /** 100 disables the collection by disk usage. */
  readonly highThresholdPercent: number;
  readonly lowThresholdPercent: number;
  readonly minAgeMs: number;
  /** 0 means no maximum. */
  readonly maxAgeMs: number;
}

/** The usage of the image filesystem. */
export interface ImageSpace {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

interface ImageGcOptions {
  readonly policy: ImageGcPolicy;
  readonly runtime: Pick<Runtime, 'listImages' | 'listContainers' | 'removeImage'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly space: () => Promise<ImageSpace | undefined>;
  /** The references and ids of images that are always kept. */
  readonly kept: () => Promise<ReadonlySet<string>>;
  readonly aboutNode: (reason: string, message: string) => void;
  readonly onRemoved?: (reason: 'space' | 'age') => void;
  /** Called with the ids of the images that the runtime listed at this wall-clock time. */
  readonly onListed?: (ids: ReadonlySet<string>, atMs: number) => Promise<void>;
}

interface ImageRecord {
  readonly image: ImageInfo;
  readonly firstSeenMs: number;
  /** The last use of the image. If it was not used since the agent started, the time at which the agent first saw it. */
  readonly lastUsedMs: number;
}

const PERIOD_MS = 300_000;

/** Returns the images that may be removed, the least recently used first. Pure. */
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

/** Returns the number of bytes to free; 0 below the high threshold. Pure. */
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

/** Owns the times at which images were last used. Collections run one at a time. */
export class ImageGc {
  readonly #options: ImageGcOptions;
  #records = new Map<string, { firstSeenMs: number; lastUsedMs: number }>();
  /** Collections must not overlap. The eviction manager starts them too. */
  readonly #collections = new SerialQueue();

  constructor(options: ImageGcOptions) {
    this.#options = options;
  }

  /** Marks an image as used, because a pod is about to use it. */
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
        logger.warn({ err: error }, 'Cannot collect images');
        // Once may be the runtime's start.
        if (failures > 1) this.#options.aboutNode('ImageGCFailed', (error as Error).message);
      }
      await pause(clock, PERIOD_MS, signal);
    }
  }

  /** Removes images that are too old, and then as many as the thresholds require. Throws if it could not free enough. */
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

  /** Removes all images that nothing uses, because the node lacks disk. */
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
      // An image with several names is removed with its last name.
      for (const name of image.repoTags.length > 1 ? image.repoTags : [image.id]) await runtime.removeImage(name);
      this.#records.delete(image.id);
      logger.info({ image: image.repoTags[0] ?? image.id, bytes: image.sizeBytes, reason }, 'Removed an unused image');
      onRemoved?.(reason);
      return true;
    } catch (error) {
      logger.debug({ err: error, image: image.id }, 'Cannot remove an unused image');
      return false;
    }
  }
}
