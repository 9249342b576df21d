/**
 * Locks of this network namespace. Each is a file below a directory of root, held by a transaction of SQLite: the kernel
 * releases it with the process, and other users cannot take it. Abstract sockets would be open to every local user.
 */
import { mkdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** The directory of the locks, which a reboot empties. Agents of one network namespace must have the same `/run`. */
const LOCKS = '/run/orchlet/locks';
/** The result code of SQLite for a file that another process has locked. */
const SQLITE_BUSY = 5;

/** A held lock. */
export interface NamespaceLock {
  /** Releases the lock. */
  close(): void;
}

/**
 * Takes a lock that all processes in this network namespace share. Resolves to `undefined` if another process has the lock.
 * Rejects with EACCES if the caller may not write below `/run`.
 */
export async function takeNamespaceLock(name: string, locks: string = LOCKS): Promise<NamespaceLock | undefined> {
  const directory = join(locks, await networkNamespace());
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const database = new DatabaseSync(join(directory, name));
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if ((error as { readonly errcode?: unknown }).errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
  return database;
}

/** Returns whether another process has the lock. */
export async function isNamespaceLocked(name: string): Promise<boolean> {
  const lock = await takeNamespaceLock(name);
  lock?.close();
  return lock === undefined;
}

/** Returns the inode of the network namespace of this process. */
export async function networkNamespace(): Promise<string> {
  return /\d+/.exec(await readlink('/proc/self/ns/net'))?.[0] ?? 'host';
}
