/** Tests `orchlet doctor` and the ports that orchlet itself uses. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { AGENT_PID_FILE } from '../../../../cli/host/agent-process.ts';
import type { Finding } from '../../../../cli/doctor/host-checks.ts';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('a port in use is a fault only while orchlet does not run', async () => {
  const directory = temporaryFolder();
  const server = createServer();
  const running = spawn('sh', ['-c', 'sleep 100; exit', '/usr/local/bin/orchlet'], { stdio: 'ignore', detached: true });
  try {
    await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', () => resolve()));
    const port = String((server.address() as AddressInfo).port);
    const found = async (): Promise<Finding | undefined> => {
      const args = ['--network=false', '--data-dir', directory, '--ports', port, '--output', 'json'];
      const { stdout } = await orchlet(['doctor', ...args]);
      return (JSON.parse(stdout) as Finding[]).find(({ name }) => name === `port ${port}`);
    };
    mkdirSync(join(directory, 'agent'));
    assert.deepEqual(await found(), {
      ...{ name: `port ${port}`, verdict: 'warn', text: 'in use, and orchlet does not run' },
      remedy: `see who: ss -ltnp 'sport = :${port}'`,
    });
    writeFileSync(join(directory, 'agent', AGENT_PID_FILE), `${running.pid}\n`);
    assert.deepEqual(await found(), { name: `port ${port}`, verdict: 'ok', text: 'in use, and orchlet runs' });
  } finally {
    server.close();
    process.kill(-Number(running.pid));
    rmSync(directory, { recursive: true, force: true });
  }
});
