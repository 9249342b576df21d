/** Unmounts what tests have mounted below their folders. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Unmounts the directory and everything below it that a killed process has left there, so that it can be removed. */
export function unmountBelow(directory: string): void {
  const points = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  for (const point of points.filter((path) => path === directory || path.startsWith(`${directory}/`)).reverse())
    spawnSync('umount', ['-l', point]);
}
