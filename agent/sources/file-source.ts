/**
 * The source of static pods from a file, or from the files of a directory. The kernel reports changes. A periodic scan finds
 * changes that it does not report, as after the directory was deleted and recreated, or on a filesystem without notifications.
 *
 * A manifest that was removed and created again restarts its pods, even with the same content and however soon: the kubelet
 * handles each notification by itself. Here two notifications about one name within a second count as a removal and a creation;
 * a replacement by a rename causes one.
 *
 * Names that begin with a dot are ignored. If a manifest is invalid, its last valid pod stays until the manifest is corrected
 * or removed.
 */
import { type FSWatcher, watch } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { YamlParser } from '../../api/codec/yaml-thread.ts';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { readRegularFile } from '../base/files/regular-file.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodSource } from './pod-source.ts';
import type { StaticObject, StaticObjectKey, StaticObjects } from './static-objects.ts';
import { type PodReader, readManifest } from './static-pod.ts';

interface FileSourceOptions {
  readonly path: string;
  readonly nodeName: string;
  /** The value of `--file-check-frequency`. */
  readonly checkMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly yaml: YamlParser;
  readonly reader: PodReader;
  /** Gets the ConfigMaps and Secrets of the folder, before the pods are reported. */
  readonly statics: Pick<StaticObjects, 'replace'>;
  /** Called for a manifest or path that cannot be used. Not repeated while the fault and its message stay the same. */
  readonly onBadManifest: (file: string, message: string) => void;
}

/** The largest manifest. */
const MAX_MANIFEST_BYTES = 3 * 1024 * 1024;
/** How long to wait for further notifications, because one write causes several. */
const SETTLE_MS = 10;
/** How close the notifications of a removal and of a creation are. A scan in between finds the removal itself. */
const RECREATED_WITHIN_MS = 1_000;

/** The last valid content of a file. */
interface ManifestFile {
  readonly content: Buffer;
  readonly pods: readonly Pod[];
  readonly objects: readonly StaticObject[];
  /** Why its objects are not used: its owner or mode. */
  readonly fault: string;
}

/** Creates the source of `--pod-manifest-path`. A path that does not exist is an empty set and is logged. */
export function createFileSource(options: FileSourceOptions): PodSource {
  return new FileSource(options);
}

class FileSource implements PodSource {
  readonly name = 'file';
  readonly #options: FileSourceOptions;
  readonly #manifests = new Map<string, ManifestFile>();
  /** The faults of the last complete scan, which are not reported again. */
  #reportedFaults: ReadonlySet<string> = new Set();
  /** The faults that the current scan has found so far. */
  readonly #foundFaults = new Set<string>();
  /** The latest notifications that a name of the directory appeared or disappeared. */
  readonly #renames = new Map<string, { readonly count: number; readonly atMs: number }>();
  #watcher: FSWatcher | undefined;
  /** The real path that is watched. The configured path may be a link. */
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
      onError: (error) => logger.warn({ path, err: error }, 'Cannot read the manifests, retrying'),
    });
    this.#loop = loop;
    await loop.run(signal, async () => {
      await this.#ensureWatch();
      const { pods, recreated } = await this.#scan();
      if (signal.aborted) return checkMs;
      // The first report without the recreated pods terminates them, and the second one starts them again.
      if (recreated.size > 0) onPods(pods.filter((pod) => !recreated.has(pod)));
      onPods(pods);
      return checkMs;
    });
    this.#settling?.cancel();
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Called by each watcher. Starts a scan shortly after the last notification. */
  #onChange(): void {
    this.#settling?.cancel();
    this.#settling = this.#options.clock.after(SETTLE_MS, () => this.#loop?.wake());
  }

  /**
   * Watches the path. A watcher reports nothing more once its directory is deleted or the path is a link to another one, so it
   * is replaced.
   */
  async #ensureWatch(): Promise<void> {
    try {
      const target = await realpath(this.#options.path);
      if (this.#watcher !== undefined && target === this.#watched) return;
      this.#watcher?.close();
      this.#watched = target;
      const watcher = watch(this.#options.path, { persistent: false }, (event, name) => {
        this.#onChange();
        if (event !== 'rename') return;
        if (name !== null && name !== basename(this.#options.path)) this.#renamed(name);
        else {
          // The watched path itself may be gone. The next scan watches the path again.
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

  #renamed(name: string): void {
    const atMs = this.#options.clock.monotonic();
    const before = this.#renames.get(name);
    const isSoon = before !== undefined && atMs - before.atMs <= RECREATED_WITHIN_MS;
    this.#renames.set(name, { count: isSoon ? before.count + 1 : 1, atMs });
  }

  /** Returns the files that were removed and created again since the last scan. */
  #takeRecreated(files: readonly string[]): ReadonlySet<string> {
    const nowMs = this.#options.clock.monotonic();
    const recreated = new Set<string>();
    for (const [name, { count, atMs }] of this.#renames) {
      const file = join(this.#options.path, name);
      if (count > 1 && this.#manifests.has(file) && files.includes(file)) recreated.add(file);
      // One notification may be the first of two.
      if (count > 1 || nowMs - atMs > RECREATED_WITHIN_MS) this.#renames.delete(name);
    }
    return recreated;
  }

  /**
   * Reads all files, and replaces the ConfigMaps and Secrets. Returns the pods, and those of them whose files were removed
   * and created again.
   */
  async #scan(): Promise<{ readonly pods: readonly Pod[]; readonly recreated: ReadonlySet<Pod> }> {
    this.#foundFaults.clear();
    const files = await this.#files();
    for (const file of this.#manifests.keys()) if (!files.includes(file)) this.#manifests.delete(file);
    const recreatedFiles = this.#takeRecreated(files);
    const recreated = new Set<Pod>();
    const pods: Pod[] = [];
    const origins = new Map<string, string>();
    const objects = new Map<StaticObjectKey, StaticObject & { readonly file: string }>();
    for (const file of files) {
      const read = await this.#read(file);
      for (const object of read?.objects ?? []) {
        const other = objects.get(object.key)?.file;
        if (other === undefined) objects.set(object.key, { ...object, file });
        else this.#reportFault(file, `Ignoring ${object.key} in ${file}, because ${other} has it already`);
      }
      for (const pod of read?.pods ?? []) {
        const key = `${pod.metadata.namespace}/${pod.metadata.name}`;
        const other = origins.get(key);
        if (other !== undefined) {
          this.#reportFault(file, `Ignoring the pod ${key} in ${file}, because ${other} has it already`);
          continue;
        }
        origins.set(key, file);
        pods.push(pod);
        if (recreatedFiles.has(file)) recreated.add(pod);
      }
    }
    const excess = this.#options.statics.replace([...objects.values()]);
    const file = objects.get(excess[0] ?? '')?.file;
    if (file !== undefined) this.#reportFault(file, `Ignoring ${excess.join(', ')}: the folder has too many objects`);
    this.#reportedFaults = new Set(this.#foundFaults);
    return { pods, recreated };
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
        // A file that was removed since the directory was listed has no kind.
        const kind = await stat(file).catch(() => undefined);
        if (kind?.isFile() === true) files.push(file);
        else if (kind?.isDirectory() === true)
          this.#reportFault(file, `${file} is a directory; manifests are read from the folder itself only`);
      }
      return files;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== 'ENOENT') throw error;
      this.#reportFault(path, `${path} does not exist yet; waiting for it`);
      return [];
    }
  }

  /**
   * Returns the content of a file. Of a file that is invalid or cannot be read, returns the last valid content, or `undefined`
   * if there was none. Returns `undefined` if the file is gone.
   */
  async #read(file: string): Promise<ManifestFile | undefined> {
    const last = this.#manifests.get(file);
    try {
      const content = await readRegularFile(file, MAX_MANIFEST_BYTES);
      if (last?.content.equals(content) === true && last.fault === (await objectFault(file, last.objects))) return last;
      const { nodeName, yaml, reader } = this.#options;
      const read = await readManifest(content, {
        source: 'file',
        origin: file,
        nodeName,
        yaml,
        reader,
        withObjects: true,
      });
      for (const warning of read.warnings) this.#options.logger.warn({ file }, warning);
      const fault = await objectFault(file, read.objects);
      const next = { content, pods: read.pods, objects: fault === '' ? read.objects : [], fault };
      this.#manifests.set(file, next);
      if (fault !== '') this.#reportFault(file, fault);
      return next;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      this.#reportFault(file, errorMessage(error));
      return last;
    }
  }

  /** Reports a fault once while it lasts. A file may have several. */
  #reportFault(file: string, message: string): void {
    const fault = `${file}: ${message}`;
    const isReported = this.#reportedFaults.has(fault) || this.#foundFaults.has(fault);
    this.#foundFaults.add(fault);
    if (isReported) return;
    this.#options.logger.error({ file }, message);
    this.#options.onBadManifest(file, message);
  }
}

/**
 * Returns why the objects of a file are not used; empty if they are. Pods get what the file contains, so only root and this
 * user may write to it; a file with a Secret must not be readable for others.
 */
async function objectFault(file: string, objects: readonly StaticObject[]): Promise<string> {
  if (objects.length === 0) return '';
  const { uid, mode } = await stat(file);
  if (uid !== 0 && uid !== process.getuid?.()) return `${file}: its owner must be root: chown root ${file}`;
  if ((mode & 0o022) !== 0) return `${file}: group or others may write to it: chmod go-w ${file}`;
  const hasSecret = objects.some(({ object }) => object.kind === 'Secret');
  return hasSecret && (mode & 0o044) !== 0 ? `${file}: it has a Secret, and others may read it: chmod 600 ${file}` : '';
}
