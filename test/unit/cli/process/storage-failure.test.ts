/** The log says why a process exits that can no longer use its storage. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { logStorageFailure } from '../../../../cli/process/storage-failure.ts';
import { FencedError } from '../../../../controlplane/standby/role.ts';

function linesOf(error: Error): { readonly fields: object; readonly message: string }[] {
  const lines: { readonly fields: object; readonly message: string }[] = [];
  logStorageFailure({ ...silentLogger, error: (fields, message) => lines.push({ fields, message }) }, error);
  return lines;
}

test('a failure of the storage is logged with its error', () => {
  const error = new Error('the disk is gone');
  const message = 'The storage cannot be relied on any more, so the process exits to be restarted';
  assert.deepEqual(linesOf(error), [{ fields: { err: error }, message }]);
});

test('a control plane whose place another one has taken logs the other one and the remedy, and no failure', () => {
  const successor = 'https://10.0.0.2:6443';
  const message = 'Another control plane has taken the place of this one, so the process exits';
  const remedy = `start it with --standby-of ${successor} to make it the standby`;
  assert.deepEqual(linesOf(new FencedError('fenced', successor)), [{ fields: { successor, remedy }, message }]);
});
