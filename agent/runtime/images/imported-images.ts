/**
 * Stores the names of images that were imported from archives (`--images-dir`, `orchlet images import`) in one file of the root
 * directory. They are never collected, because they could not be pulled again.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import type { Runtime } from '../runtime.ts';

const FILE = 'imported-images.json';
const MAX_BYTES = 64 * 1024 * 1024;

/**
 * Returns the stored names; none if the file is missing. Throws if the file cannot be read, because then no image may be
 * collected.
 */
export async function importedImages(rootDirectory: string): Promise<readonly string[]> {
  try {
    const names: unknown = JSON.parse((await readRegularFile(join(rootDirectory, FILE), MAX_BYTES)).toString());
    if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new Error(`${join(rootDirectory, FILE)} cannot be read: ${(error as Error).message}; remove it`, {
      cause: error,
    });
  }
  throw new Error(`${join(rootDirectory, FILE)} is no list of names: remove it`);
}

/** Adds names. Throws if the stored names cannot be read, because they would be lost. */
export async function rememberImported(rootDirectory: string, names: readonly string[]): Promise<void> {
  const stored = await importedImages(rootDirectory);
  const merged = [...new Set([...stored, ...names])].toSorted();
  if (merged.length === stored.length) return;
  await makeFolder(rootDirectory, 0o755);
  await replaceFile(join(rootDirectory, FILE), `${JSON.stringify(merged, null, 2)}\n`, { mode: 0o644 });
}

/**
 * Loads the `*.tar` files of a directory, for hosts without a registry. An archive that cannot be loaded is logged and skipped,
 * and so is a directory that cannot be read. The directory is optional.
 */
export async function loadPreloadedImages(
  directory: string,
  runtime: Pick<Runtime, 'loadImages'>,
  rootDirectory: string,
  logger: Logger,
): Promise<void> {
  const names = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') logger.error({ err: error, directory }, 'Cannot read the folder of image archives');
    return [];
  });
  for (const name of names.filter((entry) => entry.endsWith('.tar')).toSorted()) {
    const archive = join(directory, name);
    try {
      await rememberImported(rootDirectory, await runtime.loadImages(archive));
      logger.info({ archive }, 'Loaded an image archive');
    } catch (error) {
      logger.error({ err: error, archive }, 'Cannot load an image archive');
    }
  }
}
