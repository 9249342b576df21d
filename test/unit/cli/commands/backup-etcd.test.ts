import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { orchlet } from '../command-run.ts';

test('a backup of a control plane on etcd is refused with what to use instead', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-backup-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, 'backup.tgz');
  const without = await orchlet(['backup', file, '--data-dir', directory]);
  assert.match(without.stderr, /holds no control plane's data: give its --data-dir/);
  mkdirSync(join(directory, 'pki'));
  const { code, stderr } = await orchlet(['backup', file, '--data-dir', directory]);
  assert.equal(code, 1);
  assert.match(stderr, /has no database: a control plane on etcd is saved with etcdctl snapshot save/);
});
