import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Unmounts everything that a killed agent has left below the directory, so that it can be removed. */
export function unmountBelow(directory: string): void {
  const points = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  for (const point of points.filter((path) => path.startsWith(`${directory}/`)).reverse())
    spawnSync('umount', ['-l', point]);
}
