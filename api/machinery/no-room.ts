/** Recognizes errors of a full disk. What can go on without the file that could not be written, does. */

/** Whether a call of the file system failed because the disk, or a quota on it, is full. */
export function foundNoRoom(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
