/**
 * Provides image volumes on Docker. Not every engine can mount an image, so the files of an image are extracted once into a
 * directory below the root directory, and bound read-only into the containers that mount them.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { moveFile, syncTree } from '../../../api/machinery/replace-file.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { ifMissing } from '../../base/files/beneath.ts';
import { LABEL_INSTANCE } from '../instance.ts';
import { type Mount, RuntimeError } from '../runtime.ts';
import type { DockerImages } from './images.ts';
import { isCode, type DockerClient } from './docker-client.ts';

/** The length of the output of `tar` that an error quotes. */
const QUOTED_CHARACTERS = 4096;

/** Returns the directory of an image's files. `root` has no symbolic links, because the engine reports mounts without them. */
const directoryOf = (root: string, image: string): string =>
  join(root, createHash('sha256').update(image).digest('hex'));

/** Owns the extracted images. Callers that need the same image meanwhile share one extraction. */
export class ImageVolumes {
  readonly #client: DockerClient;
  readonly #images: Pick<DockerImages, 'emptiedLabels'>;
  readonly #directory: string;
  readonly #running = new Map<string, Promise<string>>();

  constructor(client: DockerClient, images: Pick<DockerImages, 'emptiedLabels'>, rootDirectory: string) {
    this.#client = client;
    this.#images = images;
    this.#directory = join(rootDirectory, 'image-volumes');
  }

  /**
   * Turns an image mount into a bind mount of the extracted files. Returns other mounts unchanged. Throws `RuntimeError`
   * `invalid` if the image does not have the sub-path, or if the sub-path leads out of the image.
   */
  async bind({ image, imageSubPath = '', ...mount }: Mount): Promise<Mount> {
    if (image === undefined) return mount;
    let extracting = this.#running.get(image);
    if (extracting === undefined) {
      extracting = this.#extracted(image).finally(() => this.#running.delete(image));
      this.#running.set(image, extracting);
    }
    const root = await extracting;
    const hostPath = await realpath(join(root, imageSubPath)).catch((error: unknown) => {
      throw new RuntimeError('invalid', `the image has no path ${quoteText(imageSubPath)}`, { cause: error });
    });
    // A symbolic link in an image must not lead to files of the host.
    if (hostPath !== root && !hostPath.startsWith(`${root}/`))
      throw new RuntimeError('invalid', `the path ${quoteText(imageSubPath)} leads out of the image`);
    return { ...mount, hostPath, readonly: true };
  }

  /** Removes the files of an image that the engine has removed, unless a container still mounts them. */
  async forget(image: string): Promise<void> {
    const root = await realpath(this.#directory).catch(ifMissing);
    if (root === undefined) return;
    const directory = directoryOf(root, image);
    const containers = await this.#client.call('list containers', () =>
      this.#client.docker.listContainers({ all: true }),
    );
    const isUsed = containers.some(({ Mounts }) =>
      Mounts.some(({ Source }) => Source === directory || Source.startsWith(`${directory}/`)),
    );
    if (!isUsed) await rm(directory, { recursive: true, force: true });
  }

  async #extracted(image: string): Promise<string> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const directory = directoryOf(await realpath(this.#directory), image);
    const isThere = await access(directory).then(
      () => true,
      () => false,
    );
    if (isThere) return directory;
    const partial = `${directory}.partial`;
    await rm(partial, { recursive: true, force: true });
    await mkdir(partial);
    await this.#export(image, partial);
    // A folder that is there counts as complete, also after a power failure.
    await syncTree(partial);
    await moveFile(partial, directory);
    return directory;
  }

  /**
   * Exports the image's files through a container that is never started, because the engine exports layers as one archive only
   * for containers.
   */
  async #export(image: string, directory: string): Promise<void> {
    const { docker } = this.#client;
    const name = `orchlet-image-volume-${createHash('sha256').update(directory).digest('hex').slice(0, 16)}`;
    const remove = async (): Promise<void> => {
      try {
        await this.#client.call('remove container', () => docker.getContainer(name).remove({ force: true, v: true }));
      } catch (error) {
        if (!isCode(error, 'not-found')) throw error;
      }
    };
    await remove();
    const emptied = await this.#images.emptiedLabels(image);
    const container = await this.#client.call('create container', () =>
      docker.createContainer({
        name,
        Image: image,
        // The engine requires a command, even of a container that is never started.
        Entrypoint: ['-'],
        NetworkDisabled: true,
        // A container has the labels of its image. Those of this image must not make it a container of a pod.
        Labels: { ...emptied, [LABEL_INSTANCE]: '' },
      }),
    );
    try {
      const archive = await this.#client.call('export container', () => container.export());
      const tar = spawn('tar', ['--extract', '--numeric-owner', '--directory', directory], {
        stdio: ['pipe', 'ignore', 'pipe'],
      });
      let errors = '';
      tar.stderr.on('data', (chunk: Buffer) => {
        errors = (errors + chunk.toString()).slice(-QUOTED_CHARACTERS);
      });
      const ended = new Promise<number | null>((resolve, reject) => {
        tar.on('error', reject);
        tar.on('close', resolve);
      });
      const [code] = await Promise.all([ended, pipeline(archive, tar.stdin)]);
      if (code !== 0)
        throw new RuntimeError('unknown', `the files of image "${image}" could not be extracted: ${errors.trim()}`);
    } finally {
      await remove();
    }
  }
}
