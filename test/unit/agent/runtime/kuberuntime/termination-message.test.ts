import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { terminationMessage } from '../../../../../agent/runtime/kuberuntime/termination-message.ts';
import type { ContainerStatus } from '../../../../../agent/runtime/runtime.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

function exited(hostPath: string): ContainerStatus {
  return {
    state: 'exited',
    startedAtMs: 1,
    exitCode: 1,
    message: '',
    logPath: '',
    annotations: { 'io.kubernetes.container.terminationMessagePath': '/dev/termination-log' },
    mounts: [{ containerPath: '/dev/termination-log', hostPath }],
  } as unknown as ContainerStatus;
}

describe('the termination message', () => {
  it('is the end of the file, of 4096 bytes at most', async () => {
    const path = join(temporaryFolder(), 'log');
    await writeFile(path, `${'x'.repeat(5000)}end`);
    const message = await terminationMessage(exited(path));
    assert.equal(message.length, 4096);
    assert.match(message, /xend$/);
  });

  it('follows what the runtime reports of the container', async () => {
    const path = join(temporaryFolder(), 'log');
    await writeFile(path, 'disk full');
    const message = 'the task was killed';
    assert.equal(await terminationMessage({ ...exited(path), message }), 'the task was killed: disk full');
    await writeFile(path, '');
    assert.equal(await terminationMessage({ ...exited(path), message }), message);
  });

  it('is not waited for where the container made a FIFO of the file', { timeout: 10_000 }, async () => {
    const path = join(temporaryFolder(), 'fifo');
    execFileSync('mkfifo', [path]);
    // Each blocking open would block one of the four file system threads forever.
    const messages = await Promise.all(Array.from({ length: 8 }, () => terminationMessage(exited(path))));
    for (const message of messages) assert.match(message, /^Error on reading termination log .*is not a regular file$/);
  });

  it('is not taken from where a link leads, nor from a device', async () => {
    const directory = temporaryFolder();
    await writeFile(join(directory, 'secret'), 'of the host');
    await symlink(join(directory, 'secret'), join(directory, 'log'));
    assert.doesNotMatch(await terminationMessage(exited(join(directory, 'log'))), /of the host/);
    assert.match(await terminationMessage(exited('/dev/zero')), /is not a regular file$/);
  });
});
