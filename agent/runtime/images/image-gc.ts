/**
 * Collects unused images: those that are older than the maximum age, and the least recently used ones while the image
 * filesystem is too full. Conditions and messages are the kubelet's.
 */
import { formatDuration } from '../../../api/component/duration.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { periodically } from '../../../api/machinery/periodic.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { errorMessage, toError } from '../../../api/meta/error-message.ts';
import type { ContainerStatus, ImageInfo, Runtime } from '../runtime.ts';

/** The limits of `--image-gc-*` and `imageMaximumGCAge`. */
export interface ImageGcPolicy {
  /** 100 without a maximum age disables the collection. */
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
  readonly protectedImages: () => Promise<ReadonlySet<string>>;
  readonly nodeEvent: (reason: string, message: string) => void;
  readonly onRemoved?: (reason: 'space' | 'age') => void;
  /** Called with the ids of the images that the runtime listed at this wall-clock time. */
  readonly onListed?: (ids: ReadonlySet<string>, atMs: number) => Promise<void>;
}

interface ImageRecord {
  readonly image: ImageInfo;
  readonly firstSeenMs: number;
  /** The last use of the image; `NEVER` if it was not used since the agent started. */
  readonly lastUsedMs: number;
}

/** What a removal of images achieved. */
interface Removals {
  readonly freedBytes: number;
  readonly errors: readonly Error[];
}

const PERIOD_MS = 300_000;
const NEVER = Number.NEGATIVE_INFINITY;

/** Returns the images that may be removed, the least recently used first. Pure. */
function collectable(
  records: readonly ImageRecord[],
  containers: readonly Pick<ContainerStatus, 'imageId' | 'image' | 'imageRef'>[],
  protectedNames: ReadonlySet<string>,
): readonly ImageRecord[] {
  const used = new Set(containers.flatMap(({ imageId, image, imageRef }) => [imageId, image, imageRef]));
  return records
    .filter(({ image }) => !image.pinned && !namesOf(image).some((name) => used.has(name) || protectedNames.has(name)))
    .toSorted((a, b) => a.lastUsedMs - b.lastUsedMs || a.firstSeenMs - b.firstSeenMs);
}

/** Returns the number of bytes to free, or `undefined` below the high threshold. Pure. */
export function bytesToFree(
  { capacityBytes, availableBytes }: ImageSpace,
  { highThresholdPercent, lowThresholdPercent }: ImageGcPolicy,
): number | undefined {
  if (usedPercent({ capacityBytes, availableBytes }) < highThresholdPercent) return undefined;
  return Math.floor((capacityBytes * (100 - lowThresholdPercent)) / 100) - Math.min(availableBytes, capacityBytes);
}

function usedPercent({ capacityBytes, availableBytes }: ImageSpace): number {
  return 100 - Math.floor((Math.min(availableBytes, capacityBytes) * 100) / capacityBytes);
}

/** Formats a size for people, for example `1.5 GiB`. */
function formatSize(bytes: number): string {
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power - 1] ?? ''}`;
}

/** Joins errors as the kubelet does: several distinct ones in brackets. */
function joined(errors: readonly Error[]): string {
  const messages = [...new Set(errors.map(({ message }) => message))];
  return messages.length === 1 ? (messages[0] ?? '') : `[${messages.join(', ')}]`;
}

function namesOf(image: ImageInfo): readonly string[] {
  const familiar = image.repoTags.map((tag) => tag.replace(/^docker\.io\/(?:library\/)?/, ''));
  return [image.id, ...image.repoTags, ...familiar, ...image.repoDigests];
}

/** Owns the times at which images were last used. Collections run one at a time. */
export class ImageGc {
  readonly #options: ImageGcOptions;
  #records = new Map<string, { firstSeenMs: number; lastUsedMs: number }>();
  /** Serializes collections, which the eviction manager starts too. */
  readonly #collections = new SerialQueue();
  readonly #startedAtMs: number;

  constructor(options: ImageGcOptions) {
    this.#options = options;
    this.#startedAtMs = options.clock.monotonic();
  }

  /** Marks an image as used, because a pod is about to use it. */
  used(id: string): void {
    const nowMs = this.#options.clock.monotonic();
    const record = this.#records.get(id);
    if (record === undefined) this.#records.set(id, { firstSeenMs: nowMs, lastUsedMs: nowMs });
    else record.lastUsedMs = nowMs;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, nodeEvent } = this.#options;
    const onError = (error: unknown, failures: number): void => {
      logger.warn({ err: error }, 'Cannot collect images');
      // The first failure may only mean that the runtime is still starting.
      if (failures > 1) nodeEvent('ImageGCFailed', errorMessage(error));
    };
    await periodically(() => this.collect(), { clock, periodMs: PERIOD_MS, signal, onError });
  }

  /**
   * Removes images that are too old, and then as many as the thresholds require. Throws if it could not free enough, if an
   * image could not be removed, or if the filesystem reports no capacity.
   */
  collect(): Promise<void> {
    return this.#collections.run(async () => {
      const { policy, space, nodeEvent } = this.#options;
      // Lists the images even if the collection is disabled, because listing records which images are used.
      const candidates = await this.#candidates();
      if (policy.highThresholdPercent === 100 && policy.maxAgeMs === 0) return;
      const images = await this.#freeOld(candidates);
      const found = await space();
      if (found === undefined) return;
      if (found.capacityBytes === 0) {
        const message = 'invalid capacity 0 on image filesystem';
        nodeEvent('InvalidDiskCapacity', message);
        throw new Error(message);
      }
      const wanted = bytesToFree(found, policy);
      if (wanted === undefined) return;
      this.#options.logger.info({ bytes: wanted }, 'The image file system is nearly full; removing unused images');
      const freed = await this.#free(images, wanted);
      if (freed >= wanted) return;
      const message =
        `Insufficient free disk space on the node's image filesystem (${usedPercent(found)}% of ${formatSize(found.capacityBytes)} used). ` +
        `Failed to free sufficient space by deleting unused images (freed ${freed} bytes). ` +
        'Investigate disk usage, as it could be used by active images, logs, volumes, or other data.';
      nodeEvent('FreeDiskSpaceFailed', message);
      throw new Error(message);
    });
  }

  /**
   * Removes all images that nothing uses and that are not younger than the minimum age, because the node lacks disk. Throws if
   * one could not be removed.
   */
  deleteUnused(): Promise<void> {
    return this.#collections.run(async () => {
      await this.#free(await this.#candidates(), Number.MAX_SAFE_INTEGER);
    });
  }

  async #candidates(): Promise<readonly ImageRecord[]> {
    const { runtime, clock, protectedImages } = this.#options;
    const listedAtMs = clock.now();
    const [images, containers] = [await runtime.listImages(), await runtime.listContainers()];
    await this.#options.onListed?.(new Set(images.map(({ id }) => id)), listedAtMs);
    const nowMs = clock.monotonic();
    const inUse = new Set(containers.flatMap(({ imageId, image, imageRef }) => [imageId, image, imageRef]));
    const next = new Map<string, { firstSeenMs: number; lastUsedMs: number }>();
    for (const image of images) {
      const record = this.#records.get(image.id) ?? { firstSeenMs: nowMs, lastUsedMs: NEVER };
      if (namesOf(image).some((name) => inUse.has(name))) record.lastUsedMs = nowMs;
      next.set(image.id, record);
    }
    this.#records = next;
    return collectable(
      images.map((image) => ({ image, ...(next.get(image.id) ?? { firstSeenMs: nowMs, lastUsedMs: NEVER }) })),
      containers,
      await protectedImages(),
    );
  }

  /** Removes the images that are too old, and returns the others. Throws if an image could not be removed. */
  async #freeOld(images: readonly ImageRecord[]): Promise<readonly ImageRecord[]> {
    const { policy, clock } = this.#options;
    const nowMs = clock.monotonic();
    // The agent does not know about the use of images before its start.
    if (policy.maxAgeMs === 0 || nowMs - this.#startedAtMs <= policy.maxAgeMs) return images;
    const isOld = ({ lastUsedMs }: ImageRecord): boolean => nowMs - lastUsedMs > policy.maxAgeMs;
    const { errors } = await this.#removeAll(images.filter(isOld), { reason: 'age' });
    if (errors.length > 0) {
      const age = formatDuration(policy.maxAgeMs);
      throw new Error(
        `wanted to free images older than ${age}, encountered errors in image deletion: ${joined(errors)}`,
      );
    }
    return images.filter((record) => !isOld(record));
  }

  /**
   * Removes images that are not younger than the minimum age until `wanted` bytes are freed. Returns the number of bytes that
   * were freed. Throws if an image could not be removed.
   */
  async #free(images: readonly ImageRecord[], wanted: number): Promise<number> {
    const { policy, clock } = this.#options;
    const nowMs = clock.monotonic();
    // A fresh image may have been pulled for a pod that has not started yet.
    const old = images.filter(({ firstSeenMs }) => nowMs - firstSeenMs >= policy.minAgeMs);
    const { freedBytes, errors } = await this.#removeAll(old, { reason: 'space', wanted });
    if (errors.length > 0)
      throw new Error(
        `wanted to free ${wanted} bytes, but freed ${freedBytes} bytes space with errors in image deletion: ${joined(errors)}`,
      );
    return freedBytes;
  }

  /** Removes images until enough bytes are freed. An image that cannot be removed does not stop the others. */
  async #removeAll(
    images: readonly ImageRecord[],
    { reason, wanted = Number.POSITIVE_INFINITY }: { readonly reason: 'space' | 'age'; readonly wanted?: number },
  ): Promise<Removals> {
    const { logger } = this.#options;
    let freedBytes = 0;
    const errors: Error[] = [];
    for (const { image } of images) {
      try {
        await this.#remove(image, reason);
      } catch (error) {
        logger.debug({ err: error, image: image.id }, 'Cannot remove an unused image');
        errors.push(toError(error));
        continue;
      }
      freedBytes += image.sizeBytes;
      if (freedBytes >= wanted) break;
    }
    return { freedBytes, errors };
  }

  async #remove(image: ImageInfo, reason: 'space' | 'age'): Promise<void> {
    const { runtime, logger, onRemoved } = this.#options;
    // An image with several names is removed with its last name.
    for (const name of image.repoTags.length > 1 ? image.repoTags : [image.id]) await runtime.removeImage(name);
    this.#records.delete(image.id);
    logger.info({ image: image.repoTags[0] ?? image.id, bytes: image.sizeBytes, reason }, 'Removed an unused image');
    onRemoved?.(reason);
  }
}
