/**
 * Keeps dockerode from loading parts that this project does not use: SSH connections, and BuildKit sessions with their own copy
 * of gRPC (15 MB resident). This module must be imported before dockerode. In a bundle, where packages have no files,
 * `scripts/program-bundle.ts` leaves the same parts out.
 */
import { createRequire, Module } from 'node:module';
import { dirname, join } from 'node:path';

/** The unused files of dockerode and of docker-modem, its HTTP client. */
export const UNUSED = ['dockerode/lib/session.js', 'docker-modem/lib/ssh.js'];

/** Replaces each part that is not loaded. Throws when it is called. */
export function unused(): never {
  throw new Error('this part of dockerode is not loaded: engines are reached at unix:// or tcp://');
}

function leaveOut(): void {
  const require = createRequire(import.meta.url);
  let packages;
  try {
    packages = dirname(require.resolve('dockerode/package.json'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return;
    throw error;
  }
  for (const file of UNUSED) {
    const path = createRequire(join(packages, 'package.json')).resolve(file);
    const part = new Module(path);
    part.exports = unused;
    part.loaded = true;
    require.cache[path] = part;
  }
}

leaveOut();
