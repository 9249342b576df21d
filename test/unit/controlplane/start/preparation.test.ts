/** Tests what is begun before the modules of a control plane are loaded. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { prepareStart, sqliteOptions } from '../../../../controlplane/start/preparation.ts';
import { openingOptions } from '../../../../controlplane/storage/sqlite/storage-thread.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

for (const [name, words, hasKey, wanted] of [
  ['a first start with SQLite begins a thread and a key', [], false, ['thread', 'key']],
  ['a later start with SQLite begins a thread', [], true, ['thread']],
  ['a start in memory begins a key, although the data directory has one', ['--storage-backend=memory'], true, ['key']],
  ['a first start on etcd begins a key', ['--etcd-servers=http://127.0.0.1:1'], false, ['key']],
  ['a standby begins nothing', ['--standby-of=https://10.0.0.1:6443'], false, []],
] as const)
  test(name, async (t) => {
    const directory = temporaryFolder();
    t.after(() => rmSync(directory, { recursive: true }));
    mkdirSync(join(directory, 'pki'));
    if (hasKey) writeFileSync(join(directory, 'pki/sa.key'), 'a key');
    const { values } = parseFlags(controlPlaneFlags, [`--data-dir=${directory}`, ...words]);
    const { storageThread, serviceAccountKey } = prepareStart(values);
    const begun = [
      ...(storageThread === undefined ? [] : ['thread']),
      ...((await serviceAccountKey)?.privateKey.asymmetricKeyType === 'rsa' ? ['key'] : []),
    ];
    await storageThread?.close();
    assert.deepEqual(begun, wanted);
  });

for (const [name, files, isOpened] of [
  ['the database of a new data directory is opened at once', [], true],
  ['the database of an existing one is opened at once', ['storage/orchlet.db-wal', 'storage/orchlet.db.pid'], true],
  ['no database is opened beside a role', ['storage/role.json'], false],
  ['no database is opened beside the list of standbys that may be promoted', ['storage/standbys.json'], false],
  ['no database is opened after an interrupted restore', ['restore-unfinished'], false],
] as const)
  test(name, async (t) => {
    const directory = temporaryFolder();
    t.after(() => rmSync(directory, { recursive: true }));
    for (const file of files) {
      mkdirSync(dirname(join(directory, file)), { recursive: true });
      writeFileSync(join(directory, file), '');
    }
    const { values } = parseFlags(controlPlaneFlags, [`--data-dir=${directory}`]);
    const { storageThread } = prepareStart(values);
    await storageThread?.close();
    assert.equal(existsSync(join(directory, 'storage/orchlet.db')), isOpened);
  });

test('what is opened at once is what the storage opens', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rmSync(directory, { recursive: true }));
  const { values } = parseFlags(controlPlaneFlags, [`--data-dir=${directory}`]);
  const { storageThread } = prepareStart(values);
  const { directory: storage, ...options } = sqliteOptions(directory);
  const loaded = await storageThread?.open(openingOptions(storage, options));
  assert.deepEqual(loaded?.chunks, []);
  await storageThread?.close();
});
