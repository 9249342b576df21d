/** `orchlet stop` finds the processes of a data directory, stops the pods first on request, and waits. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { SHUTDOWN_STATE_FILE } from '../../../../agent/node/shutdown/node-shutdown.ts';
import { AGENT_PID_FILE } from '../../../../cli/host/agent-process.ts';
import { STORAGE_FILE } from '../../../../controlplane/storage/backup/backup.ts';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

describe('orchlet stop', () => {
  let directory: string;
  let children: ChildProcess[];

  beforeEach(() => {
    directory = temporaryFolder();
    children = [];
  });
  afterEach(() => {
    for (const child of children) child.kill('SIGKILL');
  });

  /** Starts a process with the command's name that runs `program`, and writes its id to a file below the data directory. */
  async function running(pidFile: string, program: string): Promise<ChildProcess> {
    const file = join(directory, pidFile);
    mkdirSync(dirname(file), { recursive: true });
    const child = spawn(
      process.execPath,
      ['-e', `${program};setInterval(() => undefined, 60_000);console.log('ready')`],
      {
        argv0: 'orchlet',
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    children.push(child);
    await new Promise((resolve) => child.stdout?.once('data', resolve));
    writeFileSync(file, `${child.pid}\n`);
    return child;
  }
  const plane = (program = ''): Promise<ChildProcess> => running(`${STORAGE_FILE}.pid`, program);
  const agent = (program = ''): Promise<ChildProcess> => running(join('agent', AGENT_PID_FILE), program);

  it('stops the control plane and the agent of a data directory so that pods run on', async () => {
    const exits = "process.once('SIGQUIT', () => process.exit(0))";
    const [first, second] = [await agent(exits), await plane(exits)];
    const { code, stdout } = await orchlet(['stop', '--data-dir', directory]);
    assert.deepEqual([code, stdout], [0, `process ${first.pid} is stopped\nprocess ${second.pid} is stopped\n`]);
    assert.equal((await orchlet(['stop', '--data-dir', directory])).stdout, 'nothing runs\n');
  });

  it('has the agent end its pods first, and waits for them', async () => {
    const state = join(directory, 'agent', SHUTDOWN_STATE_FILE);
    const ending = `process.once('SIGUSR2', () => require('fs').writeFileSync(${JSON.stringify(state)}, '{"endTime":1}'))`;
    const child = await agent(ending);
    const { code, stdout } = await orchlet(['stop', '--pods', '--data-dir', directory]);
    assert.deepEqual([code, stdout], [0, `the pods have terminated\nprocess ${child.pid} is stopped\n`]);
  });

  it('fails where a process does not end in time, and names it', async () => {
    const child = await plane("process.on('SIGQUIT', () => undefined)");
    const { code, stderr } = await orchlet(['stop', '--data-dir', directory, '--timeout', '300ms']);
    assert.equal(code, 1);
    assert.equal(stderr, `orchlet: process ${child.pid} did not stop within 0.3 s; see its log, or give --timeout\n`);
  });
});
