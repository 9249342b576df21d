/** Finds the installed versions of kubectl. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Returns every installed kubectl, oldest first. */
export function kubectls(): { readonly version: string; readonly path: string }[] {
  const found = new Map<string, string>();
  for (const directory of (process.env['PATH'] ?? '').split(':').filter((part) => existsSync(part))) {
    for (const name of readdirSync(directory)) {
      if (!/^kubectl(\.1\.\d+)?$/.test(name)) continue;
      const path = join(directory, name);
      const asked = spawnSync(path, ['version', '--client', '-o', 'json'], { encoding: 'utf8' });
      const version = /"gitVersion":\s*"v1\.(\d+)/.exec(asked.stdout ?? '')?.[1];
      if (version !== undefined && !found.has(version)) found.set(version, path);
    }
  }
  // Some distributions install further versions beside the one on PATH.
  const beside = '/usr/lib/google-cloud-sdk/bin';
  for (const name of existsSync(beside) ? readdirSync(beside) : []) {
    const version = /^kubectl\.1\.(\d+)$/.exec(name)?.[1];
    if (version !== undefined && !found.has(version)) found.set(version, join(beside, name));
  }
  return [...found]
    .sort(([left], [right]) => Number(left) - Number(right))
    .map(([version, path]) => ({ version: `1.${version}`, path }));
}

export interface KubectlResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
