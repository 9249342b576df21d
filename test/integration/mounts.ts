import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** What a killed agent left mounted would keep the directory. */
export function unmountBelow(directory: string): void {
  const points = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  for (const point of points.filter((path) => path.startsWith(`${directory}/`)).reverse())
    spawnSync('umount', ['-l', point]);
}
