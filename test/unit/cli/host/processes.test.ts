/**
 * Commands that stop or query processes recognize them whether orchlet was started from a checkout, a bundle or the executable.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chownSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, describe, it } from 'node:test';
import { isOrchlet, runningProcess, writePid } from '../../../../cli/host/processes.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const directory = temporaryFolder();
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill('SIGKILL');
});

/** Starts a program with this path, which waits. */
async function started(file: string, options: { readonly argv0?: string } = {}): Promise<number> {
  const path = join(directory, file);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, "process.stdout.write('started');setInterval(() => undefined, 60_000);\n");
  const child = spawn(process.execPath, [path], { stdio: ['ignore', 'pipe', 'ignore'], ...options });
  children.push(child);
  await new Promise((resolve) => child.stdout?.once('data', resolve));
  return child.pid ?? 0;
}

describe('a process of orchlet', () => {
  for (const [of, file, argv0] of [
    ['a checkout', 'cli/main.ts', undefined],
    ['an installation or the npm package', 'dist/program/main.js', undefined],
    ['a link to the command', 'bin/orchlet', undefined],
    ['the executable', 'unpacked.js', 'orchlet'],
  ] as const)
    it(`of ${of} is recognized`, async () => {
      const pid = await started(file, argv0 === undefined ? {} : { argv0 });
      assert.equal(await isOrchlet(pid), true);
      const pidFile = join(directory, 'pid');
      writeFileSync(pidFile, `${pid}\n`);
      assert.equal(await runningProcess(pidFile), pid);
      process.kill(pid);
      await until('the process to be gone', async () => (await runningProcess(pidFile)) === undefined);
    });

  it('is no other program with such a file name', async () => {
    assert.equal(await isOrchlet(await started('other/main.js')), false);
    assert.equal(await isOrchlet(await started('cli/main.ts.js')), false);
  });

  it('is not signalled for the file of another user', { skip: process.getuid?.() !== 0 && 'needs root' }, async () => {
    const pid = await started('bin/orchlet');
    const pidFile = join(directory, 'foreign-pid');
    writeFileSync(pidFile, `${pid}\n`);
    assert.equal(await runningProcess(pidFile), pid);
    chownSync(pidFile, 65_534, 65_534);
    assert.equal(await runningProcess(pidFile), undefined);
  });

  it('is not waited for where a FIFO takes the place of its file', async () => {
    const fifo = join(directory, 'fifo');
    assert.equal(spawnSync('mkfifo', [fifo]).status, 0);
    assert.equal(await runningProcess(fifo), undefined);
  });

  it('writes its id to a new file, and nothing to where a link in its place leads', async () => {
    const [link, other] = [join(directory, 'linked-pid'), join(directory, 'not-a-pid')];
    writeFileSync(other, 'kept');
    symlinkSync(other, link);
    await writePid(link);
    assert.deepEqual([readFileSync(other, 'utf8'), readFileSync(link, 'utf8')], ['kept', `${process.pid}\n`]);
  });

  it('is not one whose record is missing or damaged', async () => {
    assert.equal(await runningProcess(join(directory, 'none')), undefined);
    for (const text of ['', 'x', '-1', '0', String(process.pid)]) {
      writeFileSync(join(directory, 'pid'), text);
      assert.equal(await runningProcess(join(directory, 'pid')), undefined, text);
    }
  });
});
