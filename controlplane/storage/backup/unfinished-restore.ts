/**
 * Keeps a control plane from starting on a data directory in which a restore was interrupted. A restore replaces several files,
 * and a kill or a power failure may come between two of them, so a file marks the directory meanwhile. The control plane would
 * take missing data for a new cluster.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PlainError } from '../../../api/component/plain-error.ts';

/** The name of the file below the data directory. */
export const UNFINISHED_RESTORE = 'restore-unfinished';

/** Throws `PlainError` if a restore into the data directory was interrupted. */
export function refuseUnfinishedRestore(directory: string): void {
  if (!existsSync(join(directory, UNFINISHED_RESTORE))) return;
  throw new PlainError(
    `a restore into ${directory} was interrupted: repeat 'orchlet restore' (the data before it is in ${directory}/before-restore-*)`,
  );
}
