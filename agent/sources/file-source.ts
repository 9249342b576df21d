/**
 * Static pods from a file, or from the files of a directory. The kernel tells of changes; a rescan now and then finds what it
 * did not tell (a directory that was deleted and made again, a file system without notifications).
 *
 * Names that begin with a dot are ignored. A manifest that will not do keeps its last good pod until it is mended or removed.
 */
import { type FSWatcher, watch } from 'node:fs';
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { Pod } from '../model/core-types.ts';
import type { PodSource } from './pod-source.ts';
import { ManifestError, type PodReader, readManifest } from './static-pod.ts';

export interface FileSourceOptions {
  readonly path: string;
  readonly nodeName: string;
  /** `--file-check-frequency`. */
  readonly checkMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly reader: PodReader;
  /** A manifest that will not do, for an event; once a content. */
  readonly onBadManifest: (file: string, message: string) => void;
}

/** Larger files are no manifests. */
const MAX_MANIFEST_BYTES = 3 * 1024 * 1024;
/** Writes of a file come in several notifications. */
const SETTLE_MS = 10;

interface KnownFile {
  readonly content: Buffer;
  readonly pods: readonly Pod[];
}

export function createFileSource(options: FileSourceOptions): PodSource {
  return new FileSource(options);
}

class FileSource implements PodSource {
  readonly name = 'file';
  readonly #options: FileSourceOptions;
  readonly #known = new Map<string, KnownFile>();
  readonly #complaints = new Map<string, string>();
  #watcher: FSWatcher | undefined;
  /** What the path led to when it began to be watched. */
  #watched = '';
  #settling: Timer | undefined;
  #loop: WakeableLoop | undefined;

  constructor(options: FileSourceOptions) {
    this.#options = options;
  }

  async run(signal: AbortSignal, onPods: (pods: readonly Pod[]) => void): Promise<void> {
    const { clock, checkMs, logger, path } = this.#options;
    const loop = new WakeableLoop({
      clock,
      backoff: new Backoff({ firstMs: checkMs, longestMs: checkMs }),
      onError: (error) =>
        logger.warn({ path, err: error }, 'The manifests could not be read; they are read again later'),
    });
    this.#loop = loop;
    await loop.run(signal, async () => {
      await this.#ensureWatch();
      const pods = await this.#scan();
      if (!signal.aborted) onPods(pods);
      return checkMs;
    });
    this.#settling?.cancel();
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Watchers call this one method, whichever run began them. */
  #onChange(): void {
    this.#settling?.cancel();
    this.#settling = this.#options.clock.after(SETTLE_MS, () => this.#loop?.wake());
  }

  /** A watcher of a directory that is deleted, or that the path no longer leads to, falls silent: it is made anew. */
  async #ensureWatch(): Promise<void> {
    try {
      const target = await realpath(this.#options.path);
      if (this.#watcher !== undefined && target === this.#watched) return;
      this.#watcher?.close();
      this.#watched = target;
      const watcher = watch(this.#options.path, { persistent: false }, (event) => {
        this.#onChange();
        // The watched path itself may be gone: the next scan watches what is there then.
        if (event === 'rename') {
          watcher.close();
          if (this.#watcher === watcher) this.#watcher = undefined;
        }
      });
      watcher.on('error', () => {
        watcher.close();
        if (this.#watcher === watcher) this.#watcher = undefined;
      });
      this.#watcher = watcher;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }

  async #scan(): Promise<Pod[]> {
    const files = await this.#files();
    for (const file of this.#known.keys()) if (!files.includes(file)) this.#known.delete(file);
    const pods: Pod[] = [];
    const origins = new Map<string, string>();
    for (const file of files) {
      for (const pod of await this.#read(file)) {
        const key = `${pod.metadata.namespace}/${pod.metadata.name}`;
        const other = origins.get(key);
        if (other !== undefined) {
          this.#complain(file, `${file}: the pod ${key} stands in ${other} already; this one is ignored`);
          continue;
        }
        origins.set(key, file);
        pods.push(pod);
      }
    }
    return pods;
  }

  async #files(): Promise<string[]> {
    const { path } = this.#options;
    try {
      const found = await stat(path);
      if (found.isFile()) return [path];
      const names = await readdir(path);
      const files: string[] = [];
      for (const name of names.filter((candidate) => !candidate.startsWith('.')).sort()) {
        const file = join(path, name);
        // The file was removed since the directory was listed.
        const kind = await stat(file).catch(() => undefined);
        if (kind?.isFile() === true) files.push(file);
        else if (kind?.isDirectory() === true)
          this.#complain(file, `${file} is a directory; manifests are read from the folder itself only`);
      }
      return files;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== 'ENOENT') throw error;
      this.#complain(path, `${path} does not exist yet; waiting for it`);
      return [];
    }
  }

  async #read(file: string): Promise<readonly Pod[]> {
    const known = this.#known.get(file);
    try {
      const { size } = await stat(file);
      if (size > MAX_MANIFEST_BYTES) throw new ManifestError(`${file}: larger than ${MAX_MANIFEST_BYTES} bytes`);
      const content = await readFile(file);
      if (known?.content.equals(content) === true) return known.pods;
      const { nodeName, clock, reader } = this.#options;
      const read = readManifest(content, { source: 'file', origin: file, nodeName, clock, reader });
      for (const warning of read.warnings) this.#options.logger.warn({ file }, warning);
      this.#known.set(file, { content, pods: read.pods });
      this.#complaints.delete(file);
      return read.pods;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      this.#complain(file, error instanceof Error ? error.message : String(error));
      return known?.pods ?? [];
    }
  }

  #complain(file: string, message: string): void {
    if (this.#complaints.get(file) === message) return;
    this.#complaints.set(file, message);
    this.#options.logger.error({ file }, message);
    this.#options.onBadManifest(file, message);
  }
}
