import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { verifyCaBundle } from '../../../../api/pki/ca-bundle.ts';
import { ensureAuthority } from '../../../../controlplane/security/pki/authority.ts';
import { readSignedBundle } from '../../../../controlplane/security/pki/authority-rotation.ts';
import { ensurePki } from '../../../../controlplane/security/pki/pki.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { orchlet } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('certs rotate signals no process that merely has the id of a former control plane, and renews the certificates itself', async (t) => {
  const dataDirectory = temporaryFolder();
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

test('certs rotate-ca takes its time from the clock of the command, and refuses a stage out of turn in one line', async () => {
  const dataDirectory = temporaryFolder();
  const directory = join(dataDirectory, 'pki');
  const clock = new FakeClock();
  await mkdir(directory);
  await ensureAuthority(directory, 'ca', 'kubernetes', clock.now());
  const stage = (name: string) =>
    orchlet(['certs', 'rotate-ca', '--stage', name, '--data-dir', dataDirectory], { clock });
  assert.deepEqual(await stage('switch'), {
    code: 1,
    stdout: '',
    stderr: 'orchlet: no CA is prepared; start with --stage prepare\n',
  });
  const { code, stderr } = await stage('prepare');
  assert.equal(code, 0, stderr);
  const trusted = await readFile(join(directory, 'ca.crt'), 'utf8');
  const bundle = verifyCaBundle((await readSignedBundle(directory)) ?? '', trusted);
  assert.equal(bundle?.issuedAtMs, clock.now());
});
