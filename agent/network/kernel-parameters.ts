/** Sets kernel parameters that the rules of services and network policies need. */
import { readFile, writeFile } from 'node:fs/promises';
import type { Logger } from '../../api/component/logger.ts';

/**
 * Sets each parameter to 1. `parameters` maps names to files. A parameter that cannot be set is logged with `message`. Resolves
 * to whether all are set.
 */
export async function setKernelParameters(
  parameters: Readonly<Record<string, string>>,
  logger: Logger,
  message: string,
): Promise<boolean> {
  let areSet = true;
  for (const [name, path] of Object.entries(parameters)) {
    try {
      if ((await readFile(path, 'utf8')).trim() !== '1') await writeFile(path, '1');
    } catch (error) {
      areSet = false;
      logger.warn({ parameter: name, err: error instanceof Error ? error.message : error }, message);
    }
  }
  return areSet;
}
