/** Tests what is begun before the modules of a control plane are loaded. */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { prepareStart } from '../../../../controlplane/start/preparation.ts';
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
