/**
 * Watches folders for changes. The kernel does not report all of them (a network filesystem, too many watches), so the caller
 * also has to scan the folders every `pollMs`.
 */
import { type FSWatcher, watch } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';

const POLL_MS = 10_000;
const POLL_UNWATCHED_MS = 1_000;

/** Calls `onChange` after any change of the watched folders, often several times for one change. */
export class FolderWatch {
  readonly #onChange: () => void;
  /** The watchers by path. The inode shows whether a folder was replaced by another one of the same name. */
  readonly #watchers = new Map<string, { readonly inode: bigint; readonly watcher: FSWatcher }>();
  #isUnwatched = false;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** How often to scan: the longest time for which a change may stay unnoticed. */
  get pollMs(): number {
    return this.#isUnwatched ? POLL_UNWATCHED_MS : POLL_MS;
  }

  /**
   * Watches these folders and no others. In place of a missing one it watches the next folder above that exists. Returns
   * whether a watch is new, so that a change before it may have been missed.
   */
  async follow(folders: readonly string[]): Promise<boolean> {
    this.#isUnwatched = false;
    let isNew = false;
    const wanted = new Set<string>();
    for (const folder of folders) {
      const found = await nearest(folder);
      wanted.add(found.path);
      if (this.#watchers.get(found.path)?.inode === found.inode) continue;
      this.#close(found.path);
      try {
        const watcher = watch(found.path, { persistent: false }, this.#onChange);
        watcher.on('error', () => this.#close(found.path));
        this.#watchers.set(found.path, { inode: found.inode, watcher });
        isNew = true;
      } catch {
        // The kernel's limit of watches may be reached.
        this.#isUnwatched = true;
      }
    }
    for (const path of this.#watchers.keys()) if (!wanted.has(path)) this.#close(path);
    return isNew;
  }

  close(): void {
    for (const path of this.#watchers.keys()) this.#close(path);
  }

  #close(path: string): void {
    this.#watchers.get(path)?.watcher.close();
    this.#watchers.delete(path);
  }
}

async function nearest(folder: string): Promise<{ readonly path: string; readonly inode: bigint }> {
  for (let path = folder; ; path = dirname(path)) {
    // A folder above may not be readable either.
    const found = await stat(path, { bigint: true }).catch(() => undefined);
    if (found !== undefined || path === dirname(path)) return { path, inode: found?.ino ?? 0n };
  }
}
