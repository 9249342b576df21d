/** Recognizes errors of a full disk. */
import { constants } from 'node:os';

/** Node.js has no name for EDQUOT: the code of such an error is `Unknown system error -122`. */
const QUOTA_EXHAUSTED = -constants.errno.EDQUOT;

/** Whether a call of the file system failed because the disk, or a quota on it, is full. */
export function isDiskFull(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, errno } = error as NodeJS.ErrnoException;
  return code === 'ENOSPC' || code === 'EDQUOT' || errno === QUOTA_EXHAUSTED;
}
