/** Tests a file of CA certificates that changes, vanishes and breaks while the server runs. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { certificatePem, createCertificate } from '../../../../../api/pki/certificate.ts';
import { generateKey } from '../../../../../api/pki/signing.ts';
import { fileCaBundle } from '../../../../../controlplane/security/files/ca-bundle.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

function fileOf(t: TestContext): string {
  const directory = temporaryFolder();
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'ca.crt');
}

async function ca(commonName: string): Promise<string> {
  const keys = await generateKey('ecdsa');
  const window = { notBeforeMs: Date.UTC(2026, 0, 1), notAfterMs: Date.UTC(2027, 0, 1) };
  const template = { subject: { commonName }, publicKey: keys.publicKey, ...window };
  return certificatePem(createCertificate(template, { privateKey: keys.privateKey }));
}

test('a changed bundle is used a few seconds later, and the previous one while the file is missing or invalid', async (t) => {
  const path = fileOf(t);
  const clock = new FakeClock();
  const [first, second] = [await ca('first'), await ca('second')];
  writeFileSync(path, first);
  const bundle = fileCaBundle(path, clock, silentLogger);
  const before = bundle.certificates();
  assert.equal(before.length, 1);
  writeFileSync(path, first + second);
  assert.equal(bundle.pem(), first);
  await clock.advance(5_000);
  assert.equal(bundle.pem(), first + second);
  assert.equal(bundle.certificates().length, 2);
  for (const broken of ['', 'no certificate', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n']) {
    writeFileSync(path, broken);
    await clock.advance(5_000);
    assert.equal(bundle.certificates().length, 2, JSON.stringify(broken));
  }
  rmSync(path);
  await clock.advance(5_000);
  assert.equal(bundle.pem(), first + second);
  writeFileSync(path, second);
  await clock.advance(5_000);
  assert.equal(bundle.pem(), second);
});

test('a file that is written again without a change keeps the certificates, so that verified peers stay cached', async (t) => {
  const path = fileOf(t);
  const clock = new FakeClock();
  const pem = await ca('one');
  writeFileSync(path, pem);
  const bundle = fileCaBundle(path, clock, silentLogger);
  const before = bundle.certificates();
  rmSync(path);
  writeFileSync(path, pem);
  await clock.advance(5_000);
  assert.equal(bundle.certificates(), before);
});

test('a server does not start with a bundle without certificates', (t) => {
  const path = fileOf(t);
  assert.throws(() => fileCaBundle(path, new FakeClock(), silentLogger), { code: 'ENOENT' });
  writeFileSync(path, '\n');
  assert.throws(() => fileCaBundle(path, new FakeClock(), silentLogger), /holds no certificate/);
});

test('a FIFO or a file of terabytes in the place of a bundle does not stop the server, and the previous one stays', async (t) => {
  const path = fileOf(t);
  const clock = new FakeClock();
  const pem = await ca('one');
  writeFileSync(path, pem);
  const bundle = fileCaBundle(path, clock, silentLogger);
  truncateSync(path, 2 ** 40);
  await clock.advance(5_000);
  assert.equal(bundle.pem(), pem);
  rmSync(path);
  execFileSync('mkfifo', [path]);
  await clock.advance(5_000);
  assert.equal(bundle.pem(), pem);
});
