import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { certsRotate } from '../../../../cli/commands/certs.ts';
import { ensurePki } from '../../../../controlplane/pki/pki.ts';

test('certs rotate signals no process that merely has the id of a former control plane, and renews the certificates itself', async (t) => {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'certs-rotate-'));
  t.after(() => rm(dataDirectory, { recursive: true, force: true }));
  await ensurePki({
    directory: join(dataDirectory, 'pki'),
    clock: systemClock,
    logger: silentLogger,
    hosts: ['localhost'],
    addresses: () => [],
    serviceIp: '10.96.0.1',
  });
  const stranger = spawn('sleep', ['60'], { argv0: 'less', stdio: 'ignore' });
  t.after(() => stranger.kill());
  await mkdir(join(dataDirectory, 'storage'));
  await writeFile(join(dataDirectory, 'storage', 'orchlet.db.pid'), `${stranger.pid}\n`);
  const write = t.mock.method(process.stdout, 'write', () => true);
  const values = { dataDir: dataDirectory };
  const parsed = { values, given: new Set(['dataDir']), arguments: [], warnings: [] };
  const code = await certsRotate.run(parsed as unknown as Parameters<typeof certsRotate.run>[0]);
  write.mock.restore();
  assert.equal(code, 0);
  assert.equal(stranger.signalCode, null);
  assert.ok(existsSync(join(dataDirectory, 'pki', 'apiserver.crt')));
});
