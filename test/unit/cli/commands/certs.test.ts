import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { ensurePki } from '../../../../controlplane/pki/pki.ts';
import { orchlet } from '../command-run.ts';

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
  const { code, stdout } = await orchlet(['certs', 'rotate', '--data-dir', dataDirectory]);
  assert.equal(code, 0);
  assert.match(stdout, /^apiserver +20/m);
  assert.equal(stranger.signalCode, null);
  assert.ok(existsSync(join(dataDirectory, 'pki', 'apiserver.crt')));
});
