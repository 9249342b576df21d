/** `orchlet reset` removes only directories of orchlet, nothing through links and mounts, and nothing without consent. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { data, logs } from '../../../../cli/reset/files.ts';
import { mounts } from '../../../../cli/reset/mounts.ts';
import { type ResetStep, type ResetTarget, resetTarget } from '../../../../cli/reset/target.ts';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let directory: string;
const at = (...parts: readonly string[]): string => join(directory, ...parts);
function write(path: string, content = 'x'): void {
  mkdirSync(dirname(at(path)), { recursive: true });
  writeFileSync(at(path), content);
}
const target = (): Promise<ResetTarget> =>
  resetTarget({ dataDirectory: at('data'), rootDirectory: at('data/agent'), timeoutMs: 1000, clock: systemClock });

/** Returns the errors. */
async function take(step: ResetStep, of: ResetTarget): Promise<readonly string[]> {
  const failures: string[] = [];
  for (const { remove } of await step.find(of))
    await remove().catch((error: unknown) => failures.push(errorMessage(error)));
  return failures;
}

beforeEach(() => {
  directory = temporaryFolder();
});
afterEach(() => {
  spawnSync('umount', [at('data/agent/pods/u/volumes/v')], { stdio: 'ignore' });
});

describe('orchlet reset', () => {
  it('removes nothing that another user has recorded', { skip: process.getuid?.() !== 0 && 'needs root' }, async () => {
    const record = { nodeName: 'n', dockerEndpoint: '', criEndpoint: '', cgroupRoot: '', cgroupDriver: '' };
    write('data/agent/host-record.json', JSON.stringify({ ...record, podLogsDirectory: at('precious') }));
    write('data/agent/pods/files/x');
    write('precious/files/x');
    assert.deepEqual(
      (await logs.find(await target())).map(({ text }) => text),
      [at('precious/files')],
    );
    for (const path of ['data/agent', 'data/agent/host-record.json']) {
      chownSync(at(path), 65_534, 65_534);
      await assert.rejects(target(), /belongs to another user/);
      chownSync(at(path), 0, 0);
    }
    // That user could put another directory in its place after the check.
    chownSync(at('data'), 65_534, 65_534);
    await assert.rejects(target(), /is controlled by the user 65534: root runs no reset there/);
    chownSync(at('data'), 0, 0);
    await target();
  });

  it('changes nothing without consent where nobody can answer', async () => {
    write('data/storage/orchlet.db');
    const { code, stderr } = await orchlet(['reset', '--purge', '--data-dir', at('data')]);
    assert.equal(code, 2);
    assert.match(stderr, /give --force/);
    assert.ok(existsSync(at('data/storage/orchlet.db')));
  });

  it('prints what it would remove, and keeps it', async () => {
    write('data/storage/orchlet.db');
    const { code, stdout } = await orchlet(['reset', '--purge', '--dry-run', '--data-dir', at('data')]);
    assert.equal(code, 0);
    assert.ok(stdout.includes(`- ${at('data')}, with all that is in it\n`));
    assert.ok(existsSync(at('data/storage/orchlet.db')));
  });

  it('removes a data directory without what its links name', async () => {
    write('data/storage/orchlet.db');
    write('precious/file', 'kept');
    symlinkSync(at('precious'), at('data/link'));
    assert.deepEqual(await take(data, await target()), []);
    assert.ok(!existsSync(at('data')));
    assert.equal(readFileSync(at('precious/file'), 'utf8'), 'kept');
  });

  it('removes no directory that has no mark of orchlet, and reports that', async () => {
    write('data/photos/1.jpg');
    mkdirSync(at('data/agent'));
    const failures = await take(data, await target());
    assert.equal(failures.length, 1);
    assert.match(failures[0] ?? '', /by hand/);
    assert.ok(existsSync(at('data/photos/1.jpg')));
  });

  it('removes logs of its own pods alone', async () => {
    write('data/agent/pods/1234/etc-hosts');
    write('logs/default_mine_1234/c/0.log');
    write('logs/default_other_5678/c/0.log');
    const of = await target();
    assert.deepEqual(await take(logs, { ...of, record: { ...of.record, podLogsDirectory: at('logs') } }), []);
    assert.deepEqual(readdirSync(at('logs')), ['default_other_5678']);
  });

  it('unmounts volumes before directories go, and removes nothing through a mount', async (context) => {
    write('data/storage/orchlet.db');
    write('server/file', 'kept');
    mkdirSync(at('data/agent/pods/u/volumes/v'), { recursive: true });
    const bound = spawnSync('mount', ['--bind', at('server'), at('data/agent/pods/u/volumes/v')]);
    if (bound.status !== 0) return context.skip('mounts cannot be made here');
    const [failure = ''] = await take(data, await target());
    assert.match(failure, /unmount .*volumes\/v first/);
    assert.deepEqual(await take(mounts, await target()), []);
    assert.deepEqual(await take(data, await target()), []);
    assert.ok(!existsSync(at('data')));
    assert.equal(readFileSync(at('server/file'), 'utf8'), 'kept');
  });
});
