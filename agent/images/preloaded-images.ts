/** Loads the image archives of a folder at start (hosts without a registry), and remembers what came from there: it is never collected. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Runtime } from '../runtime/runtime.ts';

/** The references that stand in the folder's `*.tar`; an archive that cannot be read is told and skipped. */
export async function loadPreloadedImages(
  directory: string,
  runtime: Pick<Runtime, 'loadImages'>,
  logger: Logger,
): Promise<ReadonlySet<string>> {
  const loaded = new Set<string>();
  const names = await readdir(directory).catch(() => []);
  for (const name of names.filter((entry) => entry.endsWith('.tar')).toSorted()) {
    const archive = join(directory, name);
    try {
      for (const reference of await runtime.loadImages(archive)) loaded.add(reference);
      logger.info({ archive }, 'Loaded an image archive');
    } catch (error) {
      logger.error({ error, archive }, 'An image archive could not be loaded');
    }
  }
  return loaded;
}
