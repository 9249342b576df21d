/** Tests the flags that a joining control plane gets from a bundle. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeBundle } from '../../../../cli/cluster/control-plane-bundle.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('flags name the data directory as it is, with any characters', async () => {
  const dataDirectory = join(temporaryFolder(), 'data$&$$');
  const flags = Buffer.from('--etcd-cafile=DATA_DIR/etcd/ca.crt');
  assert.deepEqual(await writeBundle(dataDirectory, new Map([['flags', flags]])), [
    `--etcd-cafile=${dataDirectory}/etcd/ca.crt`,
  ]);
});
