/** Reads the certificates and keys of files that flags name. */
import { readFileSync, statSync } from 'node:fs';

/** The bundles of operating systems have some hundred kilobytes. */
const MAX_BYTES = 16 << 20;

/**
 * Reads a regular file. Throws for anything but a regular file, and for one above 16 MiB. To open a FIFO that has taken the
 * place of the file would stop the program until something writes to it.
 */
export function readPlainFile(path: string): string {
  const found = statSync(path);
  if (!found.isFile()) throw new Error(`${path} is not a regular file`);
  if (found.size > MAX_BYTES) throw new Error(`${path} has more than ${MAX_BYTES} bytes`);
  return readFileSync(path, 'utf8');
}
