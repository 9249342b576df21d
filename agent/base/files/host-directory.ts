/** Lists directories of the host that only the agent and the host write. */
import { readdir } from 'node:fs/promises';

/**
 * Returns the names in a directory, or none if it does not exist. Throws if it cannot be read: an empty list would let the
 * caller treat what it contains as unused.
 */
export async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
