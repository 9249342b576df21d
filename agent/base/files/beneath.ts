/**
 * Accesses files in directories that containers, plugins or pods with host paths may write to. A `Directory` is an open
 * descriptor; its operations take the names of its entries and never follow a link, so nothing that is swapped in meanwhile
 * leads the agent elsewhere. Only regular files are read and written, without waiting for a writer or reader of a FIFO.
 *
 * Node.js has no openat(2): `/proc/self/fd/<n>/<name>` resolves in the same way.
 */
import { randomBytes } from 'node:crypto';
import { constants, type Dirent, type Stats } from 'node:fs';
import {
  chmod,
  chown,
  type FileHandle,
  lchown,
  lstat,
  mkdir,
  open,
  opendir,
  readdir,
  readFile,
  readlink,
  rename,
  rmdir,
  symlink,
  unlink,
} from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { quoteText } from '../../../api/meta/quote.ts';

/** Opens a path without its content. Node.js has no name for this flag of Linux. */
export const O_PATH = 0o10000000;
/** The maximum number of directory entries that a scan holds in memory. */
const SCAN_ENTRIES = 1024;
const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

interface NewFile {
  readonly content: Buffer | string;
  /** The permission bits, regardless of the umask. */
  readonly mode: number;
  /** If only one of `uid` and `gid` is given, the other is 0. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** The entry is not a regular file, but a FIFO, a device, a socket, a directory or a link. */
export class IrregularFileError extends Error {
  override readonly name = 'IrregularFileError';
  readonly code = 'EIRREGULAR';
}

/** Returns `undefined` if the error means that the entry does not exist. Throws every other error. */
export function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
  throw error;
}

/** Opens a directory while `work` runs. The path itself is trusted: links in it are followed. */
export async function inDirectory<T>(path: string, work: (directory: Directory) => Promise<T>): Promise<T> {
  const directory = await Directory.open(path);
  try {
    return await work(directory);
  } finally {
    await directory.close();
  }
}

/**
 * An open directory. Whoever opens one closes it. Operations throw the errors of the system calls, such as ENOENT, ELOOP for a
 * link and ENOTDIR.
 */
export class Directory {
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  /** Opens a directory. The path is trusted: links in it are followed. */
  static async open(path: string): Promise<Directory> {
    return new Directory(await open(path, O_PATH | O_DIRECTORY));
  }

  /** Opens the directory at a relative path, of which no part may be a link. */
  static async beneath(root: string, parts: readonly string[]): Promise<Directory> {
    let directory = await Directory.open(root);
    for (const part of parts) {
      const outer = directory;
      try {
        directory = await outer.enter(part);
      } finally {
        await outer.close();
      }
    }
    return directory;
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  stat(): Promise<Stats> {
    return this.#handle.stat();
  }

  /** Changes the mode of the directory itself. */
  async chmod(mode: number): Promise<void> {
    await chmod(this.#self(), mode);
  }

  /** Changes the owner of the directory itself. */
  async chown(uid: number, gid: number): Promise<void> {
    await chown(this.#self(), uid, gid);
  }

  names(): Promise<string[]> {
    return readdir(this.#self());
  }

  entries(): Promise<Dirent[]> {
    return readdir(this.#self(), { withFileTypes: true });
  }

  /** Iterates over the entries, because a container may create more of them than fit into memory. */
  async *scan(): AsyncGenerator<Dirent> {
    for await (const entry of await opendir(this.#self(), { bufferSize: SCAN_ENTRIES })) yield entry;
  }

  /** Returns some of the names; none if the directory is empty. */
  async #someNames(): Promise<string[]> {
    const names: string[] = [];
    for await (const { name } of this.scan()) if (names.push(name) === SCAN_ENTRIES) break;
    return names;
  }

  /** Opens the current parent of this directory, which changes if another process moves it. */
  async outer(): Promise<Directory> {
    return new Directory(await open(`${this.#self()}/..`, O_PATH | O_DIRECTORY));
  }

  /** Opens a subdirectory. Rejects with ENOTDIR or ELOOP if the entry is not a directory. */
  async enter(name: string): Promise<Directory> {
    return new Directory(await open(this.#at(name), O_PATH | O_DIRECTORY | O_NOFOLLOW));
  }

  /** Opens a subdirectory while `work` runs. Rejects like `enter`. */
  async inside<T>(name: string, work: (inner: Directory) => Promise<T>): Promise<T> {
    const inner = await this.enter(name);
    try {
      return await work(inner);
    } finally {
      await inner.close();
    }
  }

  /** Opens a subdirectory, and creates it with exactly this mode if it does not exist. */
  async make(name: string, mode: number): Promise<Directory> {
    const isNew = await mkdir(this.#at(name), { mode }).then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error;
        return false;
      },
    );
    const directory = await this.enter(name);
    try {
      if (isNew) await directory.chmod(mode);
    } catch (error) {
      await directory.close();
      throw error;
    }
    return directory;
  }

  lstat(name: string): Promise<Stats> {
    return lstat(this.#at(name));
  }

  readlink(name: string): Promise<string> {
    return readlink(this.#at(name));
  }

  async symlink(target: string, name: string): Promise<void> {
    await symlink(target, this.#at(name));
  }

  async rename(from: string, to: string): Promise<void> {
    await rename(this.#at(from), this.#at(to));
  }

  async unlink(name: string): Promise<void> {
    await unlink(this.#at(name));
  }

  /** Opens an entry of any kind, or this directory, without its content (`O_PATH`). A link is not followed. */
  pin(name?: string): Promise<FileHandle> {
    return name === undefined ? open(this.#self(), O_PATH) : open(this.#at(name), O_PATH | O_NOFOLLOW);
  }

  /** Sets the owner and group of the entry. Does not follow a link. */
  async lchown(name: string, uid: number, gid: number): Promise<void> {
    await lchown(this.#at(name), uid, gid);
  }

  /** Opens a regular file. Rejects with `IrregularFileError` for any other entry, and never blocks. */
  async openFile(name: string, flags: number = O_RDONLY, mode = 0o600): Promise<FileHandle> {
    const at = this.#at(name);
    let file: FileHandle;
    try {
      file = await open(at, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
    } catch (error) {
      // The entry is a link, a directory, or a FIFO, socket or device without a peer.
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ELOOP' || code === 'ENXIO' || code === 'ENODEV' || code === 'EISDIR') throw irregular(name, error);
      throw error;
    }
    if ((await file.stat()).isFile()) return file;
    await file.close();
    throw irregular(name);
  }

  /** Reads a regular file. Rejects if it is larger than `maxBytes`. */
  async readFile(name: string, maxBytes: number): Promise<Buffer> {
    const file = await this.openFile(name);
    try {
      return await readBounded(file, { name, maxBytes });
    } finally {
      await file.close();
    }
  }

  /** Creates a file. Rejects with EEXIST if the entry exists. */
  async createFile(name: string, file: NewFile): Promise<void> {
    await this.#write(await this.openFile(name, O_WRONLY | O_CREAT | O_EXCL), file);
  }

  /** Replaces the content in place, so that bind mounts of the file show it. Creates the file if it does not exist. */
  async overwriteFile(name: string, file: NewFile): Promise<void> {
    await this.#write(await this.openFile(name, O_WRONLY | O_CREAT), file);
  }

  /** Removes the entry with all that is below it; a missing one is no error. Rejects at a mount, and removes nothing of it. */
  async removeTree(name: string): Promise<void> {
    if (await this.#unlinkUnlessDirectory(name)) return;
    const top = await this.enter(name);
    try {
      await this.#checkSameMount(top, name);
      await top.#clear();
    } finally {
      await top.close();
    }
    await rmdir(this.#at(name));
  }

  /** Empties each directory into this one before it is removed: the depth of a tree costs neither descriptors nor stack. */
  async #clear(): Promise<void> {
    for (let names = await this.#someNames(); names.length > 0; names = await this.#someNames()) {
      for (const name of names) {
        if (await this.#unlinkUnlessDirectory(name)) continue;
        const inner = await this.enter(name);
        try {
          await this.#checkSameMount(inner, name);
          await inner.#emptyInto(this);
        } finally {
          await inner.close();
        }
        await rmdir(this.#at(name));
      }
    }
  }

  async #emptyInto(target: Directory): Promise<void> {
    for (let names = await this.#someNames(); names.length > 0; names = await this.#someNames()) {
      for (const name of names) {
        if (await this.#unlinkUnlessDirectory(name)) continue;
        await rename(this.#at(name), target.#at(`.removed-${randomBytes(12).toString('hex')}`));
      }
    }
  }

  async #checkSameMount(inner: Directory, name: string): Promise<void> {
    // A bind mount of the same file system has the same device, but an id of its own.
    if ((await inner.stat()).dev !== (await this.stat()).dev || (await inner.#mountId()) !== (await this.#mountId()))
      throw new Error(`${quoteText(name)} is a mount: nothing is removed through it`);
  }

  /** Returns the id of the mount that the directory is on. No other mount has it while the descriptor is open. */
  async #mountId(): Promise<string | undefined> {
    const facts = await readFile(`/proc/self/fdinfo/${this.#handle.fd}`, 'utf8');
    return /^mnt_id:\s*(\d+)$/m.exec(facts)?.[1];
  }

  /** Removes the entry unless it is a directory. Resolves to whether the name no longer exists. */
  async #unlinkUnlessDirectory(name: string): Promise<boolean> {
    try {
      await unlink(this.#at(name));
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return true;
      if (code === 'EISDIR') return false;
      throw error;
    }
  }

  async #write(file: FileHandle, { content, mode, uid, gid }: NewFile): Promise<void> {
    try {
      await file.truncate(0);
      await file.writeFile(content);
      if (uid !== undefined || gid !== undefined) await file.chown(uid ?? 0, gid ?? 0);
      await file.chmod(mode);
    } finally {
      await file.close();
    }
  }

  #self(): string {
    return descriptorPath(this.#handle);
  }

  #at(name: string): string {
    if (name === '' || name === '.' || name === '..' || name.includes('/'))
      throw new Error(`${quoteText(name)} is not the name of an entry of a directory`);
    return `${this.#self()}/${name}`;
  }
}

/** Reads an open file to its end. Rejects if it is larger than `maxBytes`, or grows while it is read. */
export async function readBounded(
  file: FileHandle,
  { name, maxBytes }: { readonly name: string; readonly maxBytes: number },
): Promise<Buffer> {
  const buffer = Buffer.alloc(Math.min((await file.stat()).size, maxBytes) + 1);
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await file.read(buffer, length, buffer.length - length, length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
  }
  throw new Error(`${quoteText(name)} has more than ${maxBytes} bytes, or grows while it is read`);
}

/** Returns a path to the very file that the descriptor names. */
export function descriptorPath(handle: FileHandle): string {
  return `/proc/self/fd/${handle.fd}`;
}

function irregular(name: string, cause?: unknown): IrregularFileError {
  return new IrregularFileError(`${quoteText(name)} is not a regular file`, { cause });
}

/** Opens a regular file, whose folder is trusted, for reading. */
export function openRegularFile(path: string): Promise<FileHandle> {
  return inDirectory(dirname(path), (directory) => directory.openFile(basename(path)));
}

/** Removes a tree whose parent directory is trusted. Does nothing if it does not exist. */
export async function removeTree(path: string): Promise<void> {
  await inDirectory(dirname(path), (directory) => directory.removeTree(basename(path))).catch(ifMissing);
}
