/** Finds and unmounts what tests have mounted below their folders. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Returns the mount points at the directory and below it, the newest first. */
export function mountsBelow(directory: string): readonly string[] {
  const points = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  return points.filter((path) => path === directory || path.startsWith(`${directory}/`)).toReversed();
}

/** Unmounts the directory and everything below it that a killed process has left there, so that it can be removed. */
export function unmountBelow(directory: string): void {
  for (const point of mountsBelow(directory)) spawnSync('umount', ['-l', point]);
}
