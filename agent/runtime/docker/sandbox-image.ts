/**
 * The image of pod sandboxes on Docker, where nobody else brings it: looked for when a sandbox could not be made without it.
 * The agent's own is made here and loaded, any other is pulled. Once at a time for all pods that wait for it.
 */
import { Readable } from 'node:stream';
import type { Logger } from '../../../api/component/logger.ts';
import { hostArchitecture, imageArchive } from '../../images/image-archive.ts';
import { PAUSE_IMAGE, pauseImage } from '../../images/pause-image.ts';
import type { DockerImages } from './images.ts';

export class SandboxImage {
  readonly #images: Pick<DockerImages, 'load' | 'pull'>;
  readonly #reference: string;
  readonly #logger: Logger;
  #bringing: Promise<void> | undefined;

  constructor(images: Pick<DockerImages, 'load' | 'pull'>, reference: string, logger: Logger) {
    this.#images = images;
    this.#reference = reference;
    this.#logger = logger;
  }

  /** Throws `RuntimeError` as a pull does. */
  bring(signal: AbortSignal): Promise<void> {
    this.#bringing ??= this.#bring(signal).finally(() => {
      this.#bringing = undefined;
    });
    return this.#bringing;
  }

  async #bring(signal: AbortSignal): Promise<void> {
    if (this.#reference === PAUSE_IMAGE) {
      const architecture = hostArchitecture();
      await this.#images.load(Readable.from([await imageArchive([pauseImage(architecture)], architecture)]));
    } else {
      await this.#images.pull(this.#reference, undefined, { signal });
    }
    this.#logger.info({ image: this.#reference }, 'The image of pod sandboxes was missing, and is there now');
  }
}
