/**
 * Temporary folders of tests. All of them are removed when the process of the test file exits, which is after the hooks that
 * close what still writes to them. A run of the tests therefore leaves nothing in the temporary directory.
 */
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folders: string[] = [];

process.on('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Creates an empty folder and returns its path, in which no part is a link. */
export function temporaryFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'orchlet-test-')));
  folders.push(folder);
  return folder;
}
