/** Tests how the parts of the control plane are closed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { closeAll } from '../../../../controlplane/start/close-all.ts';

test('every part is closed, the last opened first, also when one throws or rejects', async () => {
  const closed: string[] = [];
  const failures: unknown[] = [];
  const logger = { ...silentLogger, error: (fields: object) => void failures.push(fields) };
  const opened = [
    () => void closed.push('storage'),
    () => {
      closed.push('registry');
      throw new Error('a bug');
    },
    async () => {
      closed.push('server');
      await Promise.reject(new Error('the port is gone'));
    },
  ];
  await closeAll(opened, logger);
  assert.deepEqual(closed, ['server', 'registry', 'storage']);
  assert.equal(failures.length, 2);
  await closeAll(opened, logger);
  assert.equal(closed.length, 3, 'a second close closes nothing twice');
});
