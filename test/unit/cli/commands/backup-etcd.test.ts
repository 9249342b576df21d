import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('a backup of a control plane on etcd is refused without the flags of the etcd', async () => {
  const directory = temporaryFolder();
  const file = join(directory, 'backup.tgz');
  const without = await orchlet(['backup', file, '--data-dir', directory]);
  assert.match(without.stderr, /holds no control plane's data: give its --data-dir/);
  mkdirSync(join(directory, 'pki'));
  const { code, stderr } = await orchlet(['backup', file, '--data-dir', directory]);
  assert.equal(code, 1);
  assert.match(stderr, /has no database: give the --etcd-servers of its control plane/);
});
