import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { PullRecords } from '../../../../../agent/runtime/images/pull-records.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

it('an image whose unreadable record was removed has no record that cannot be read', async () => {
  const root = temporaryFolder();
  const folder = join(root, 'image_manager', 'pulled');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, `sha256-${createHash('sha256').update('sha256:a').digest('hex')}`), '{');
  const records = new PullRecords(root, silentLogger);
  await records.load();
  assert.equal(records.isBroken('sha256:a'), true);
  await records.remove('sha256:a');
  assert.equal(records.isBroken('sha256:a'), false);
});
