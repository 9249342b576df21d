/**
 * Provides the image of pod sandboxes on Docker. The agent's own pause image is built here and loaded; any other image is
 * pulled. All pods that wait share one attempt.
 */
import { Readable } from 'node:stream';
import type { Logger } from '../../../api/component/logger.ts';
import { hostArchitecture, imageArchive } from '../images/image-archive.ts';
import { PAUSE_IMAGE, pauseImage } from '../images/pause-image.ts';
import type { DockerImages } from './images.ts';

/** Owns the running attempt. */
export class SandboxImage {
  readonly #images: Pick<DockerImages, 'load' | 'pull'>;
  readonly reference: string;
  readonly #logger: Logger;
  #providing: Promise<void> | undefined;

  constructor(images: Pick<DockerImages, 'load' | 'pull'>, reference: string, logger: Logger) {
    this.#images = images;
    this.reference = reference;
    this.#logger = logger;
  }

  /** Builds and loads the image, or pulls it. Rejects with the `RuntimeError` of the load or the pull. */
  provide(signal: AbortSignal): Promise<void> {
    this.#providing ??= this.#provide(signal).finally(() => {
      this.#providing = undefined;
    });
    return this.#providing;
  }

  async #provide(signal: AbortSignal): Promise<void> {
    if (this.reference === PAUSE_IMAGE) {
      const architecture = hostArchitecture();
      await this.#images.load(Readable.from([await imageArchive([pauseImage(architecture)], architecture)]));
    } else {
      await this.#images.pull(this.reference, undefined, { signal });
    }
    this.#logger.info({ image: this.reference }, 'Provided the missing sandbox image');
  }
}
