/**
 * Keeps dockerode from loading what nobody asks of it here: engines over SSH, and BuildKit's sessions with a gRPC of their own,
 * 15 MB resident. Imported before it; in a bundle, where packages have no files, `scripts/build-binary` does the same.
 */
import { createRequire, Module } from 'node:module';
import { dirname, join } from 'node:path';

/** Files of dockerode, and of the package that it makes its requests with. */
export const UNUSED = ['dockerode/lib/session.js', 'docker-modem/lib/ssh.js'];

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
