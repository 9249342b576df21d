/** Distinguishes what killed tests have left from what running tests use, by the process id in its name. */

/** Whether this is the id of a process that no longer runs. False without an id. */
export function isDead(pid: string | undefined): boolean {
  if (pid === undefined) return false;
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
