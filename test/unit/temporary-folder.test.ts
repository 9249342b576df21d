/** A killed test leaves its temporary folders, and the next one removes them. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../temporary-folder.ts';

const MODULE = join(import.meta.dirname, '../temporary-folder.ts');

/** Other tests that run at the same time do not remove what is here. */
const place = temporaryFolder();

/** Runs a process that makes a folder, prints its path and then ends as the statement says. */
function folderOf(statement: string, prefix = 'orchlet-test'): string {
  const program = `
    import { writeSync } from 'node:fs';
    import { temporaryFolder } from '${MODULE}';
    writeSync(1, temporaryFolder('${prefix}'));
    ${statement}`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module-typescript', '-e', program], {
    encoding: 'utf8',
    env: { ...process.env, TMPDIR: place },
  });
  assert.ok(stdout.includes(`/${prefix}-`), stdout);
  return stdout;
}

test('a process removes its folders when it exits, also after an error', () => {
  assert.equal(existsSync(folderOf('')), false);
  assert.equal(existsSync(folderOf("throw new Error('failed')")), false);
});

test('the folders of a killed process are removed by the next one, and those of running processes are kept', () => {
  const own = join(place, `orchlet-test-${process.pid}-x`);
  mkdirSync(own);
  const left = folderOf("process.kill(process.pid, 'SIGKILL');");
  assert.equal(existsSync(left), true);
  folderOf('');
  assert.equal(existsSync(left), false);
  assert.equal(existsSync(own), true);
});

test('so are those with a short name, which contain sockets', () => {
  const left = folderOf("process.kill(process.pid, 'SIGKILL');", 'orcn');
  assert.equal(existsSync(left), true);
  folderOf('');
  assert.equal(existsSync(left), false);
});
