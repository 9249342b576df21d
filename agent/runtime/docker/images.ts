/**
 * Lists, inspects, pulls, loads and removes images in Docker. Pull progress is logged. An error inside the progress stream
 * fails the pull.
 */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { archiveReferences } from '../images/archive-check.ts';
import { type ImageInfo, type RegistryAuth, RuntimeError } from '../runtime.ts';
import { isCode, toRuntimeError, type DockerClient } from './docker-client.ts';

/** Images of the engine. Methods throw `RuntimeError`s. */
export class DockerImages {
  readonly #client: DockerClient;
  /** Digest references by image id. Cleared whenever images change. */
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

  async status(reference: string): Promise<ImageInfo | undefined> {
    try {
      const image = await this.#client.call('inspect image', () => this.#client.docker.getImage(reference).inspect());
      return {
        id: image.Id,
        repoTags: image.RepoTags ?? [],
        repoDigests: image.RepoDigests ?? [],
        sizeBytes: image.Size,
        user: image.Config?.User ?? '',
        pinned: false,
      };
    } catch (error) {
      if (isCode(error, 'not-found', 'image-not-found')) return undefined;
      throw error;
    }
  }

  /** Returns `repo@sha256:…` if the engine knows the digest, else the image id. */
  reference(id: string): Promise<string> {
    let known = this.#refs.get(id);
    if (known === undefined) {
      known = this.status(id).then(
        (image) => image?.repoDigests[0] ?? id,
        () => id,
      );
      this.#refs.set(id, known);
    }
    return known;
  }

  async pull(
    reference: string,
    auth: RegistryAuth | undefined,
    options: { readonly signal: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<string> {
    let stream: NodeJS.ReadableStream;
    try {
      stream = (await this.#client.docker.createImage(authConfig(auth), {
        ...splitReference(reference),
        abortSignal: options.signal,
      })) as NodeJS.ReadableStream;
      await this.#progress(stream, options.onProgress);
    } catch (error) {
      throw toRuntimeError(error);
    }
    this.#refs.clear();
    const image = await this.status(reference);
    if (image === undefined)
      throw new RuntimeError('image-not-found', `image "${reference}" does not exist after the pull`);
    return image.id;
  }

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

  async #progress(stream: NodeJS.ReadableStream, onText: ((text: string) => void) | undefined): Promise<void> {
    for await (const line of createInterface({ input: stream })) {
      if (line === '') continue;
      const entry = JSON.parse(line) as {
        error?: string;
        stream?: string;
        status?: string;
        id?: string;
        progressDetail?: object;
      };
      if (entry.error !== undefined) throw toRuntimeError(Object.assign(new Error(entry.error), { statusCode: 500 }));
      if (onText === undefined) continue;
      if (entry.stream !== undefined) onText(entry.stream);
      else if (entry.status !== undefined)
        onText(entry.id === undefined ? entry.status : `${entry.id}: ${entry.status}`);
    }
  }
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
