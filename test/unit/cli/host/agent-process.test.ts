import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import {
  AGENT_DIRECTORY,
  AGENT_PID_FILE,
  agentDirectory,
  recordAgentDirectory,
  writeAgentPid,
} from '../../../../cli/host/agent-process.ts';
import { SmallDisk } from '../../../small-disk.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('commands find the directory of the agent that runs, and that of the units where none does', async (t) => {
  const directory = temporaryFolder();
  const [record, root] = [join(directory, 'run'), join(directory, 'kubelet')];
  assert.equal(await agentDirectory(record), AGENT_DIRECTORY);
  await recordAgentDirectory(root, record);
  assert.equal(await agentDirectory(record), AGENT_DIRECTORY);
  const agent = spawn('sleep', ['60'], { argv0: 'orchlet', stdio: 'ignore' });
  t.after(() => agent.kill());
  await recordAgentDirectory(directory, record);
  await writeFile(join(directory, AGENT_PID_FILE), `${agent.pid}\n`);
  assert.equal(await agentDirectory(record), directory);
  // Another process has the id of an agent that no longer runs.
  const editor = spawn('sleep', ['60'], { argv0: 'vim', stdio: 'ignore' });
  t.after(() => editor.kill());
  await writeFile(join(directory, AGENT_PID_FILE), `${editor.pid}\n`);
  assert.equal(await agentDirectory(record), AGENT_DIRECTORY);
});

test('an agent on a full disk starts without a file of its process id', async (t) => {
  const disk = new SmallDisk('1m');
  t.after(() => disk.remove());
  if (!disk.isMounted) return t.skip('needs the right to mount');
  disk.fill();
  await writeAgentPid(disk.directory, silentLogger);
  disk.empty();
  await writeAgentPid(disk.directory, silentLogger);
  assert.equal(await readFile(join(disk.directory, AGENT_PID_FILE), 'utf8'), `${process.pid}\n`);
  await assert.rejects(writeAgentPid(join(disk.directory, 'missing'), silentLogger), { code: 'ENOENT' });
});
