/**
 * Models the disk below a folder. The model knows what a process reads, and the states that a power failure may leave:
 *
 * - of a file, what was written before its last fsync, and any part of what was written after it;
 * - of a folder, the names that it had at its last fsync, with any of the changes since. An fsync of a file does not make its
 * name durable. A rename happens whole or not at all. One between two folders is durable when either was synced.
 *
 * No file system loses as much as this. What survives here survives on each.
 */
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import type { Random } from '../soak/random.ts';
import { Content, type Leaves } from './content.ts';
import type { Change } from './recording.ts';

type Entry =
  | { readonly type: 'file'; readonly content: Content }
  | { readonly type: 'link'; readonly target: string }
  | { readonly type: 'folder'; readonly file: number };

/** Names of folders with what they name, by the number of the folder. */
type Names = Map<number, Map<string, Entry>>;

/** A change of names, which happens whole or not at all. */
interface Renaming {
  readonly removes?: { readonly folder: number; readonly name: string };
  readonly adds?: { readonly folder: number; readonly name: string; readonly entry: Entry };
}

/** The content of a folder: files as buffers, links as texts. */
export interface Tree extends Map<string, Buffer | string | Tree> {}

/** The state of a disk after the operations so far. */
export class Disk {
  readonly #root: string;
  readonly #rootFile: number;
  readonly #entries = new Map<number, Entry>();
  /** What is on the disk, and what the process sees. */
  readonly #durable: Names = new Map();
  readonly #current: Names = new Map();
  /** Changes of names that are not durable, in order. */
  #renamings: Renaming[] = [];

  /** Begins with the folder as it is, all of it durable. */
  constructor(root: string) {
    this.#root = root;
    this.#rootFile = this.#read(root);
  }

  #read(path: string): number {
    const folder = lstatSync(path).ino;
    const names = new Map<string, Entry>();
    for (const name of readdirSync(path)) {
      const [at, found] = [join(path, name), lstatSync(join(path, name))];
      if (found.isDirectory()) names.set(name, { type: 'folder', file: this.#read(at) });
      else if (found.isSymbolicLink()) names.set(name, { type: 'link', target: readlinkSync(at) });
      else {
        const entry: Entry = { type: 'file', content: Content.of(readFileSync(at)) };
        this.#entries.set(found.ino, entry);
        names.set(name, entry);
      }
    }
    this.#durable.set(folder, names);
    this.#current.set(folder, new Map(names));
    return folder;
  }

  /** Applies a recorded change to what the process sees, or makes changes durable if it is an fsync. */
  apply(change: Change): void {
    switch (change.kind) {
      case 'create':
        return this.#add(change.path, { type: 'file', content: new Content() }, change.file);
      case 'folder':
        this.#durable.set(change.file, new Map());
        this.#current.set(change.file, new Map());
        return this.#add(change.path, { type: 'folder', file: change.file });
      case 'symlink':
        return this.#add(change.path, { type: 'link', target: change.target });
      case 'link':
        return this.#rename({ adds: { ...this.#place(change.to), entry: this.#entryAt(change.from) } });
      case 'remove':
        return this.#rename({ removes: this.#place(change.path) });
      case 'rename': {
        const adds = { ...this.#place(change.to), entry: this.#entryAt(change.from) };
        return this.#rename({ removes: this.#place(change.from), adds });
      }
      case 'write':
        return this.#contentOf(change.file)?.edit({ at: change.at, data: change.data });
      case 'truncate':
        return this.#contentOf(change.file)?.edit({ size: change.size });
      case 'sync':
        this.#contentOf(change.file)?.sync();
        return this.#syncNames(change.file);
    }
  }

  #contentOf(file: number): Content | undefined {
    const entry = this.#entries.get(file);
    return entry?.type === 'file' ? entry.content : undefined;
  }

  #add(path: string, entry: Entry, file?: number): void {
    if (file !== undefined) this.#entries.set(file, entry);
    this.#rename({ adds: { ...this.#place(path), entry } });
  }

  #place(path: string): { readonly folder: number; readonly name: string } {
    return { folder: this.#folderAt(dirname(path)), name: basename(path) };
  }

  #folderAt(path: string): number {
    let folder = this.#rootFile;
    for (const name of relative(this.#root, path).split('/')) {
      if (name === '') continue;
      const entry = this.#current.get(folder)?.get(name);
      if (entry?.type !== 'folder') throw new Error(`no record has created the folder ${path}`);
      folder = entry.file;
    }
    return folder;
  }

  #entryAt(path: string): Entry {
    const { folder, name } = this.#place(path);
    const entry = this.#current.get(folder)?.get(name);
    if (entry === undefined) throw new Error(`no record has created ${path}`);
    return entry;
  }

  #rename(renaming: Renaming): void {
    rename(this.#current, renaming);
    this.#renamings.push(renaming);
  }

  #syncNames(folder: number): void {
    if (!this.#current.has(folder)) return;
    this.#renamings = this.#renamings.filter((renaming) => {
      const isSynced = renaming.removes?.folder === folder || renaming.adds?.folder === folder;
      if (isSynced) rename(this.#durable, renaming);
      return !isSynced;
    });
  }

  /** Returns what the process reads. */
  current(): Tree {
    return treeOf(this.#current, this.#rootFile, (content) => content.current());
  }

  /** Returns one of the states that a power failure may leave now. */
  afterPowerFailure(random: Random): Tree {
    const names: Names = new Map([...this.#durable].map(([folder, entries]) => [folder, new Map(entries)]));
    for (const renaming of survivors(this.#renamings, random)) rename(names, renaming);
    const leaves = random.pick<Leaves>(['nothing', 'all', 'beginning', 'sectors']);
    return treeOf(names, this.#rootFile, (content) => content.afterPowerFailure(leaves, random));
  }
}

function rename(names: Names, { removes, adds }: Renaming): void {
  if (removes !== undefined) names.get(removes.folder)?.delete(removes.name);
  if (adds !== undefined) names.get(adds.folder)?.set(adds.name, adds.entry);
}

/**
 * Chooses the renamings that survive a power failure: none, all, those up to one, or any of them. Changes of one name keep
 * their order: after a lost one, later ones are lost.
 */
function survivors(renamings: readonly Renaming[], random: Random): readonly Renaming[] {
  const choice = random.between(0, 3);
  if (choice === 0) return [];
  if (choice === 1) return renamings;
  if (choice === 2) return renamings.slice(0, random.between(0, renamings.length));
  const lost = new Set<string>();
  return renamings.filter((renaming) => {
    const places = [renaming.removes, renaming.adds].flatMap((at) =>
      at === undefined ? [] : `${at.folder}/${at.name}`,
    );
    const survives = random.next() < 0.5 && !places.some((place) => lost.has(place));
    if (!survives) for (const place of places) lost.add(place);
    return survives;
  });
}

function treeOf(names: Names, folder: number, read: (content: Content) => Buffer): Tree {
  const tree: Tree = new Map();
  for (const [name, entry] of names.get(folder) ?? []) {
    if (entry.type === 'folder') tree.set(name, treeOf(names, entry.file, read));
    else tree.set(name, entry.type === 'link' ? entry.target : read(entry.content));
  }
  return tree;
}

/** Returns the folder as a tree. */
export function readTree(path: string): Tree {
  const tree: Tree = new Map();
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const at = join(path, entry.name);
    if (entry.isDirectory()) tree.set(entry.name, readTree(at));
    else tree.set(entry.name, entry.isSymbolicLink() ? readlinkSync(at) : readFileSync(at));
  }
  return tree;
}

/** Creates the folder with the content of the tree. */
export function writeTree(path: string, tree: Tree): void {
  mkdirSync(path, { mode: 0o700 });
  for (const [name, entry] of tree) {
    if (typeof entry === 'string') symlinkSync(entry, join(path, name));
    else if (Buffer.isBuffer(entry)) writeFileSync(join(path, name), entry, { mode: 0o600 });
    else writeTree(join(path, name), entry);
  }
}
