/** The image calls of the runtime boundary over CRI's image service. */
import type { Clock } from '../../../api/machinery/clock.ts';
import { faultyImage, imageFault } from '../image-faults.ts';
import type { FilesystemUsage, ImageInfo, RegistryAuth, Runtime } from '../runtime.ts';
import { type CriClient, unlessGone } from './cri-client.ts';
import { filesystemOf } from './cri-stats.ts';
import { importArchive } from './image-archives.ts';
import type { Incoming } from './schema.ts';

/** The waits between checks whether the runtime lists an imported image. */
const LOAD_WAITS_MS = [10, 40, 160, 640, 2_500, 5_000] as const;

interface CriImagesOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  /** The runtime's own name, such as `containerd`, which decides how archives are imported. */
  readonly runtimeName: string;
  /** The endpoint of the image service. */
  readonly endpoint: string;
}

/**
 * Lists, pulls, removes and imports the images of a CRI runtime. Methods throw `RuntimeError`s. `load` also throws other errors
 * for an invalid archive, and when its signal aborts.
 */
export class CriImages {
  readonly #options: CriImagesOptions;

  constructor(options: CriImagesOptions) {
    this.#options = options;
  }

  async list(): Promise<readonly ImageInfo[]> {
    const { images } = await this.#options.client.call('listImages', {});
    return images.map(imageOf);
  }

  /** Returns the image, or `undefined` if the runtime does not have it. */
  async status(reference: string): Promise<ImageInfo | undefined> {
    const { image } = await this.#options.client.call('imageStatus', { image: { image: reference } });
    return image === null || image.id === '' ? undefined : imageOf(image);
  }

  async pull(
    reference: string,
    auth: RegistryAuth | undefined,
    options: Parameters<Runtime['pullImage']>[2],
  ): Promise<string> {
    // containerd parses the server address as a URL and drops credentials that name another server. These credentials
    // are already selected for this image.
    const { serverAddress: _given, ...credentials } = auth ?? {};
    const { imageRef } = await this.#options.client.call(
      'pullImage',
      {
        image: { image: reference, userSpecifiedImage: reference },
        ...(auth === undefined ? {} : { auth: credentials }),
      },
      { timeoutMs: 0, signal: options.signal },
    );
    // An image whose configuration names an overlong user would make every list of images large, so it is removed.
    const image = await this.status(imageRef);
    const fault = image === undefined ? '' : imageFault(image);
    if (fault !== '') {
      await this.remove(imageRef);
      throw faultyImage(reference, fault);
    }
    return imageRef;
  }

  /** Removes the image. Resolves also if the runtime does not have it. */
  async remove(reference: string): Promise<void> {
    await unlessGone(this.#options.client.call('removeImage', { image: { image: reference } }));
  }

  /** Imports an archive and returns its references. Waits up to eight seconds for the runtime to list each of them. */
  async load(archive: string, signal: AbortSignal): Promise<readonly string[]> {
    const { runtimeName, endpoint, clock } = this.#options;
    const references = await importArchive(runtimeName, endpoint, archive);
    // The runtime's own tool imported the archive. The runtime lists the images over CRI only after an event.
    for (const reference of references)
      for (const waitMs of LOAD_WAITS_MS) {
        if ((await this.status(reference)) !== undefined) break;
        await clock.sleep(waitMs, signal);
      }
    return references;
  }

  /** Returns the filesystems of images and of writable layers. Without a report of the latter, both are those of images. */
  async filesystems(): Promise<{ images: readonly FilesystemUsage[]; containers: readonly FilesystemUsage[] }> {
    const { imageFilesystems, containerFilesystems } = await this.#options.client.call('imageFsInfo', {});
    const images = imageFilesystems.map(filesystemOf);
    return { images, containers: containerFilesystems.length === 0 ? images : containerFilesystems.map(filesystemOf) };
  }
}

function imageOf(image: Incoming<'Image'>): ImageInfo {
  return {
    id: image.id,
    repoTags: image.repoTags,
    repoDigests: image.repoDigests,
    sizeBytes: image.size,
    user: image.username === '' ? (image.uid === null ? '' : String(image.uid.value)) : image.username,
    pinned: image.pinned,
  };
}
