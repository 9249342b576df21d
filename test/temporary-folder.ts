/**
 * Creates temporary folders of tests. All of them are removed when the process of the test file exits, also after a failure,
 * which is after the hooks that close what still writes to them. Their names contain the id of the process, so that the next
 * test removes the folders of processes that were killed. So tests leave nothing in the temporary directory.
 */
import { mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDead } from './dead-process.ts';
import { unmountBelow } from './mounts.ts';

const root = realpathSync(tmpdir());
const NAME = /^(?:orchlet-test|orc[a-z]?)-(\d+)-/;
const folders: string[] = [];

process.on('exit', () => folders.forEach(remove));
for (const name of readdirSync(root)) if (isDead(NAME.exec(name)?.[1])) remove(join(root, name));

function remove(folder: string): void {
  unmountBelow(folder);
  // Another test may remove the same folder at the same time.
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
}

/**
 * Creates an empty folder and returns its path, in which no part is a link. `prefix` is the beginning of its name: a short one
 * (`orc` or with one more letter) is for folders that contain sockets, whose paths may have 107 characters.
 */
export function temporaryFolder(prefix = 'orchlet-test'): string {
  const folder = mkdtempSync(join(root, `${prefix}-${process.pid}-`));
  folders.push(folder);
  return folder;
}
