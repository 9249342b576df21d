/**
 * Keeps in memory what the manifest files contain. A file counts once it has not changed for a moment, because programs write
 * files in parts. The objects of a file that cannot be read stay, so that a fault of the disk or of an editor removes nothing.
 */
import { sep } from 'node:path';
import type { YamlParser } from '../../../api/codec/yaml-thread.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { buildKustomization } from './kustomize.ts';
import { type ManifestDocument, type ManifestFault, readDocuments } from './manifest-documents.ts';
import { type FolderScan, type ManifestSource, readSource, scanFolder } from './manifest-folder.ts';

/** How long a file must stay the same. */
const SETTLE_MS = 250;

/** The content of a file when it was read last, or the fault that prevented the reading. */
interface SourceState {
  readonly source: ManifestSource;
  readonly documents: readonly ManifestDocument[];
  readonly faults: readonly ManifestFault[];
}

/** What reading needs. `turn` lets other work run between documents. */
interface SourcesOptions {
  readonly folders: readonly string[];
  readonly clock: Clock;
  readonly yaml: Pick<YamlParser, 'first'>;
  readonly turn: () => Promise<void> | undefined;
}

/** Holds the state of all folders between their scans. */
export class ManifestSources {
  readonly #options: SourcesOptions;
  readonly #states = new Map<string, SourceState>();
  readonly #settling = new Map<string, { readonly signature: string; readonly sinceMs: number }>();
  #scans: ReadonlyMap<string, FolderScan> = new Map();
  /** The filesystems of the folders in which this process has seen a manifest. */
  readonly #filled = new Map<string, bigint>();

  constructor(options: SourcesOptions) {
    this.#options = options;
  }

  /** The files that were read, or could not be, in the order of their paths. */
  get states(): readonly SourceState[] {
    return [...this.#states.values()].toSorted((a, b) => (a.source.path < b.source.path ? -1 : 1));
  }

  /** The folders to watch, with the ones below them. */
  get folders(): readonly string[] {
    const below = [...this.#scans.values()].flatMap(({ folders }) => folders);
    return [...new Set([...this.#options.folders, ...below])];
  }

  /** The faults of what could not be read, by path. */
  get unreadable(): ReadonlyMap<string, string> {
    return new Map([...this.#scans.values()].flatMap(({ faults }) => [...faults]));
  }

  /** Whether the objects that the file applied stay, although the file no longer names them. */
  keeps(path: string): boolean {
    const state = this.#states.get(path);
    if (state !== undefined && (state.source.isSkipped || state.faults.length > 0)) return true;
    return this.#settling.has(path) || !this.#isCertain(path);
  }

  /** Reads what has changed. Resolves to the milliseconds until files that are changing must be read again, or `Infinity`. */
  async refresh(signal: AbortSignal): Promise<number> {
    const scans = new Map<string, FolderScan>();
    for (const folder of this.#options.folders) scans.set(folder, await scanFolder(folder));
    this.#scans = scans;
    for (const [folder, { sources, device }] of scans)
      if (sources.length > 0 && !this.#filled.has(folder)) this.#filled.set(folder, device);
    const found = new Map(
      [...scans.values()].flatMap(({ sources }) => sources.map((source) => [source.path, source] as const)),
    );
    for (const path of this.#states.keys()) if (!found.has(path) && this.#isCertain(path)) this.#states.delete(path);
    for (const path of this.#settling.keys()) if (!found.has(path)) this.#settling.delete(path);
    for (const source of found.values()) await this.#take(source, signal);
    return this.#settling.size === 0 ? Infinity : SETTLE_MS;
  }

  async #take(source: ManifestSource, signal: AbortSignal): Promise<void> {
    const { path, signature, isSkipped } = source;
    const former = this.#states.get(path)?.source;
    if (former?.signature === signature && former.isSkipped === isSkipped) {
      this.#settling.delete(path);
      return;
    }
    const nowMs = this.#options.clock.monotonic();
    const settling = this.#settling.get(path);
    if (settling?.signature !== signature) {
      this.#settling.set(path, { signature, sinceMs: nowMs });
      return;
    }
    if (nowMs - settling.sinceMs < SETTLE_MS) return;
    const state = await this.#read(source, signal);
    // The file was written to while it was read.
    if (state === undefined) return;
    this.#states.set(path, state);
    this.#settling.delete(path);
  }

  async #read(source: ManifestSource, signal: AbortSignal): Promise<SourceState | undefined> {
    if (source.isSkipped) return { source, documents: [], faults: [] };
    const { path, isKustomization } = source;
    try {
      const content = isKustomization ? await buildKustomization(path, signal) : await readSource(source);
      if (content === undefined) return undefined;
      const isJson = path.endsWith('.json');
      const { yaml, turn } = this.#options;
      return { source, ...(await readDocuments(content, { isJson, yaml, turn })) };
    } catch (error) {
      signal.throwIfAborted();
      return { source, documents: [], faults: [{ line: 0, message: (error as Error).message }] };
    }
  }

  /**
   * Whether it is certain from the last scan if this file exists. A folder that has been empty since the start may be one whose
   * filesystem is not mounted, or whose content was lost with its host.
   */
  #isCertain(path: string): boolean {
    for (const [folder, { isComplete, device, faults }] of this.#scans) {
      if (!isBelow(path, folder)) continue;
      if (!isComplete || this.#filled.get(folder) !== device) return false;
      return ![...faults.keys()].some((faulty) => faulty === path || isBelow(path, faulty));
    }
    return false;
  }
}

/** Whether a path is the folder or in it, at any depth. Both are normalized. */
export function isBelow(path: string, folder: string): boolean {
  return path.startsWith(folder.endsWith(sep) ? folder : folder + sep) || path === folder;
}
