/** Tests the role of a data directory, which decides what may start on its database. */
import assert from 'node:assert/strict';
import { rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { readRole, refuseOtherRole, type Role, roleFile, writeRole } from '../../../../controlplane/standby/role.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

async function directoryOf(t: TestContext): Promise<string> {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  return directory;
}

const STANDBY: Role = { role: 'standby', of: 'https://a:6443', url: 'https://127.0.0.1:6443', completeAtMs: 5 };
const FENCED: Role = { role: 'fenced', by: 'https://b:6443', atMs: 5 };
const PROMOTED: Role = { role: 'promoted', from: 'https://a:6443', revision: 7, atMs: 5, isFenced: false };

test('a directory without a role is that of a first control plane', async (t) => {
  const directory = await directoryOf(t);
  assert.deepEqual(readRole(directory), { role: 'first' });
  refuseOtherRole(directory);
});

test('roles are kept in a file of the owner, beside the database', async (t) => {
  const directory = await directoryOf(t);
  for (const role of [STANDBY, FENCED, PROMOTED]) {
    await writeRole(directory, role);
    assert.deepEqual(readRole(directory), role);
  }
  assert.equal(roleFile(directory), join(directory, 'storage/role.json'));
  assert.equal((await stat(roleFile(directory))).mode & 0o777, 0o600);
});

test('a control plane starts on the data of a first alone, and else names the remedy', async (t) => {
  const directory = await directoryOf(t);
  await writeRole(directory, PROMOTED);
  refuseOtherRole(directory);
  await writeRole(directory, STANDBY);
  assert.throws(
    () => refuseOtherRole(directory),
    /start it with --standby-of https:\/\/a:6443, or .* 'orchlet promote'/,
  );
  await writeRole(directory, FENCED);
  assert.throws(
    () => refuseOtherRole(directory),
    /https:\/\/b:6443 took the place .* start it with --standby-of https:\/\/b:6443/,
  );
});

for (const text of ['', '{', 'null', '{"role":"standby"}', '{"role":"later"}', '{"role":"fenced","by":1,"atMs":2}'])
  test(`a file with ${JSON.stringify(text)} is not taken for a first`, async (t) => {
    const directory = await directoryOf(t);
    await writeRole(directory, FENCED);
    await writeFile(roleFile(directory), text);
    assert.throws(() => readRole(directory), /role\.json cannot be read/);
  });
