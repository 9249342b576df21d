/** Lists, inspects, pulls, loads and removes images in Docker. */
import { createReadStream } from 'node:fs';
import type { ImageInspectInfo } from 'dockerode';
import { archiveReferences } from '../images/archive-check.ts';
import { faultyImage, imageFault } from '../image-faults.ts';
import { type ImageInfo, type RegistryAuth, RuntimeError } from '../runtime.ts';
import { ResponseTooLong, valuesOf } from './bounded-responses.ts';
import { isCode, toRuntimeError, type DockerClient } from './docker-client.ts';
import { PullProgress } from './pull-progress.ts';

/** The maximum number of characters of the labels that a container inherits from its image. */
const LONGEST_LABELS = 64 << 10;

/** Owns the cache of digest references. Methods throw `RuntimeError`s. */
export class DockerImages {
  readonly #client: DockerClient;
  /** Digest references by image id. Cleared whenever this changes images. */
  readonly #refs = new Map<string, Promise<string>>();

  constructor(client: DockerClient) {
    this.#client = client;
  }

  async list(): Promise<readonly ImageInfo[]> {
    const images = await this.#client.call('list images', () => this.#client.docker.listImages());
    return images.map((image) => ({
      id: image.Id,
      repoTags: (image.RepoTags ?? []).filter((tag) => tag !== '<none>:<none>'),
      repoDigests: (image.RepoDigests ?? []).filter((digest) => !digest.startsWith('<none>')),
      sizeBytes: image.Size,
      user: '',
      pinned: false,
    }));
  }

  /** Returns the image, or `undefined` if Docker does not have it. */
  async status(reference: string): Promise<ImageInfo | undefined> {
    const image = await this.#inspect(reference);
    return image === undefined ? undefined : imageOf(image);
  }

  /**
   * Returns labels with empty values for a container of the image: they replace the image's labels from the first one on that
   * exceeds the limit. A container inherits the labels of its image, and each list of containers contains them. Throws for an
   * image with a fault (`image-faults.ts`) or with label names above the limit, which another client may have pulled.
   */
  async emptiedLabels(reference: string): Promise<Readonly<Record<string, string>>> {
    const image = await this.#inspect(reference);
    const labels = Object.entries(image?.Config?.Labels ?? {});
    const fault = image === undefined ? '' : faultOf(image);
    if (fault !== '') throw faultyImage(reference, fault);
    if (labels.reduce((sum, [key]) => sum + key.length, 0) > LONGEST_LABELS)
      throw faultyImage(reference, `the names of its labels have more than ${LONGEST_LABELS} characters`);
    let left = LONGEST_LABELS;
    return Object.fromEntries(
      labels.flatMap(([key, value]) => ((left -= key.length + value.length) < 0 ? [[key, ''] as const] : [])),
    );
  }

  async #inspect(reference: string): Promise<ImageInspectInfo | undefined> {
    try {
      return await this.#client.call('inspect image', () => this.#client.docker.getImage(reference).inspect());
    } catch (error) {
      if (isCode(error, 'not-found', 'image-not-found')) return undefined;
      throw error;
    }
  }

  /** Returns the id of an image that was pulled. Removes an image with a fault (`image-faults.ts`), and throws. */
  async #pulled(reference: string): Promise<string> {
    const image = await this.#inspect(reference).catch((error: unknown) => {
      if (error instanceof ResponseTooLong) return 'its configuration is too large';
      throw error;
    });
    if (image === undefined)
      throw new RuntimeError('image-not-found', `image "${reference}" does not exist after the pull`);
    const fault = typeof image === 'string' ? image : faultOf(image);
    if (typeof image !== 'string' && fault === '') return image.Id;
    await this.remove(reference);
    throw faultyImage(reference, fault);
  }

  /** Returns `repo@sha256:…` if the engine knows the digest, else the image id. Never rejects. */
  reference(id: string): Promise<string> {
    let reference = this.#refs.get(id);
    if (reference === undefined) {
      reference = this.status(id).then(
        (image) => image?.repoDigests[0] ?? id,
        () => {
          // The next call reads again.
          this.#refs.delete(id);
          return id;
        },
      );
      this.#refs.set(id, reference);
    }
    return reference;
  }

  async pull(
    reference: string,
    auth: RegistryAuth | undefined,
    options: { readonly signal: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<string> {
    const progress = new PullProgress(this.#client.clock);
    try {
      const stream = (await this.#client.docker.createImage(authConfig(auth), {
        ...splitReference(reference),
        abortSignal: AbortSignal.any([options.signal, progress.signal]),
      })) as NodeJS.ReadableStream;
      await this.#progress(stream, options.onProgress, progress);
    } catch (error) {
      throw toRuntimeError(progress.signal.aborted ? progress.signal.reason : error);
    } finally {
      progress.end();
    }
    this.#refs.clear();
    return this.#pulled(reference);
  }

  /** Removes a name of an image, or all names if the engine refuses to remove one of several. */
  async remove(reference: string): Promise<void> {
    this.#refs.clear();
    try {
      await this.#removeName(reference);
    } catch (error) {
      // The engine does not remove an image that has several tags. Every tag is removed, and the last one removes the image. A
      // digest may be removed together with its tag.
      const image = /multiple repositories|multiple tags|more than one tag/i.test((error as Error).message)
        ? await this.status(reference)
        : undefined;
      if (image === undefined) throw error;
      for (const name of [...image.repoTags, ...image.repoDigests]) await this.#removeName(name);
    }
  }

  async #removeName(name: string): Promise<void> {
    try {
      await this.#client.call('remove image', () => this.#client.docker.getImage(name).remove());
    } catch (error) {
      if (!isCode(error, 'not-found', 'image-not-found')) throw error;
    }
  }

  /** Loads an archive, and returns the references of its images. A file is checked before. */
  async load(archive: string | NodeJS.ReadableStream): Promise<readonly string[]> {
    if (typeof archive === 'string') await archiveReferences(archive);
    const references: string[] = [];
    try {
      const bytes = typeof archive === 'string' ? createReadStream(archive) : archive;
      const stream = (await this.#client.docker.loadImage(bytes, { quiet: true })) as NodeJS.ReadableStream;
      await this.#progress(stream, (text) => {
        const match = /Loaded image(?: ID)?: (\S+)/.exec(text);
        // Podman lists all references of an archive in one line.
        if (match?.[1] !== undefined) references.push(...match[1].split(','));
      });
    } catch (error) {
      const { code, message } = toRuntimeError(error);
      // Podman reports one line for each archive format that it tried.
      throw new RuntimeError(
        code,
        message
          .split('\n')
          .map((line) => line.trim())
          .filter((line) => line !== '')
          .join(' '),
        { cause: error },
      );
    }
    this.#refs.clear();
    return references;
  }

  async #progress(
    stream: NodeJS.ReadableStream,
    onText: ((text: string) => void) | undefined,
    progress?: PullProgress,
  ): Promise<void> {
    for await (const value of valuesOf(stream)) {
      const entry = value as ProgressEntry;
      progress?.observe(entry);
      if (entry.error !== undefined) throw toRuntimeError(Object.assign(new Error(entry.error), { statusCode: 500 }));
      if (onText === undefined) continue;
      if (entry.stream !== undefined) onText(entry.stream);
      else if (entry.status !== undefined)
        onText(entry.id === undefined ? entry.status : `${entry.id}: ${entry.status}`);
    }
  }
}

interface ProgressEntry {
  readonly error?: string;
  readonly stream?: string;
  readonly status?: string;
  readonly id?: string;
  readonly progressDetail?: unknown;
}

const faultOf = ({ Config: config }: ImageInspectInfo): string =>
  imageFault({
    user: config?.User ?? '',
    configBytes: Buffer.byteLength(JSON.stringify(config ?? {})),
    volumes: Object.keys(config?.Volumes ?? {}).length,
    command: [config?.Entrypoint ?? [], config?.Cmd ?? []].flat().join(' ').length,
  });

function imageOf(image: ImageInspectInfo): ImageInfo {
  return {
    id: image.Id,
    repoTags: image.RepoTags ?? [],
    repoDigests: image.RepoDigests ?? [],
    sizeBytes: image.Size,
    user: image.Config?.User ?? '',
    pinned: false,
  };
}

function splitReference(reference: string): { fromImage: string; tag: string } {
  const at = reference.indexOf('@');
  if (at !== -1) return { fromImage: reference.slice(0, at), tag: reference.slice(at + 1) };
  const colon = reference.lastIndexOf(':');
  if (colon > reference.lastIndexOf('/'))
    return { fromImage: reference.slice(0, colon), tag: reference.slice(colon + 1) };
  return { fromImage: reference, tag: 'latest' };
}

function authConfig(auth: RegistryAuth | undefined): object {
  if (auth === undefined) return {};
  return {
    ...(auth.username === undefined ? {} : { username: auth.username }),
    ...(auth.password === undefined ? {} : { password: auth.password }),
    ...(auth.serverAddress === undefined ? {} : { serveraddress: auth.serverAddress }),
    ...(auth.identityToken === undefined ? {} : { identitytoken: auth.identityToken }),
    ...(auth.registryToken === undefined ? {} : { registrytoken: auth.registryToken }),
  };
}
