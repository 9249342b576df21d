/** Tests credentials from files that are replaced while a client uses them. */
import assert from 'node:assert/strict';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  certificateFileCredentials,
  combinedCredentials,
  fixedCredentials,
  tokenFileCredentials,
} from '../../../../api/client/client-credentials.ts';
import { certificatePem, createCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../api/pki/signing.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

async function pair(): Promise<{ readonly certificate: string; readonly key: string }> {
  const keys = await generateKey('ecdsa');
  const template = {
    subject: { commonName: 'client' },
    publicKey: keys.publicKey,
    notBeforeMs: Date.UTC(2026, 0, 1),
    notAfterMs: Date.UTC(2027, 0, 1),
  };
  const certificate = certificatePem(createCertificate(template, { privateKey: keys.privateKey }));
  return { certificate, key: privateKeyPem(keys.privateKey) };
}

/** Replaces both files of a pair, as programs that rotate certificates do. */
function write(paths: { readonly certificate: string; readonly key: string }, next: typeof paths): void {
  for (const part of ['certificate', 'key'] as const) {
    writeFileSync(`${paths[part]}.new`, next[part]);
    renameSync(`${paths[part]}.new`, paths[part]);
  }
}

test('a token file is read again after a minute, and its last token is used while the file is missing', async () => {
  const path = join(temporaryFolder(), 'token');
  const clock = new FakeClock();
  writeFileSync(path, 'first\n');
  const credentials = tokenFileCredentials(path, clock);
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer first' });
  writeFileSync(path, 'second\n');
  await clock.advance(59_000);
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer first' });
  await clock.advance(1_000);
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer second' });
  rmSync(path);
  await clock.advance(60_000);
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer second' });
});

test('a refused token is read again at once, and a retry is useless if it was read just before', async () => {
  const path = join(temporaryFolder(), 'token');
  const clock = new FakeClock();
  writeFileSync(path, 'first');
  const credentials = tokenFileCredentials(path, clock);
  await credentials.current();
  await clock.advance(2_000);
  writeFileSync(path, 'second');
  assert.equal(credentials.refused?.(), true);
  assert.deepEqual(await credentials.current(), { authorization: 'Bearer second' });
  assert.equal(credentials.refused?.(), false);
});

test('a token file that was never readable is an error', async () => {
  const credentials = tokenFileCredentials(join(temporaryFolder(), 'token'), new FakeClock());
  await assert.rejects(credentials.current(), { code: 'ENOENT' });
});

test('a rotated certificate is used with its key, and the previous pair while the files are missing or do not match', async () => {
  const directory = temporaryFolder();
  const paths = { certificate: join(directory, 'tls.crt'), key: join(directory, 'tls.key') };
  const clock = new FakeClock();
  const [first, second] = [await pair(), await pair()];
  write(paths, first);
  const credentials = certificateFileCredentials(paths, clock);
  assert.deepEqual(await credentials.current(), first);
  rmSync(paths.certificate);
  await clock.advance(1_000);
  assert.deepEqual(await credentials.current(), first);
  writeFileSync(paths.certificate, second.certificate);
  await clock.advance(1_000);
  assert.deepEqual(await credentials.current(), first);
  writeFileSync(paths.key, second.key);
  await clock.advance(1_000);
  assert.deepEqual(await credentials.current(), second);
  writeFileSync(paths.certificate, 'no certificate');
  await clock.advance(1_000);
  assert.deepEqual(await credentials.current(), second);
});

test('certificate files that are missing at the first request are an error, and are found later', async () => {
  const directory = temporaryFolder();
  const paths = { certificate: join(directory, 'tls.crt'), key: join(directory, 'tls.key') };
  const clock = new FakeClock();
  const credentials = certificateFileCredentials(paths, clock);
  await assert.rejects(credentials.current(), { code: 'ENOENT' });
  const first = await pair();
  write(paths, first);
  assert.deepEqual(await credentials.current(), first);
});

test('the first of combined credentials have precedence', async () => {
  const token = fixedCredentials({ authorization: 'Bearer a' });
  const both = fixedCredentials({ authorization: 'Bearer b', certificate: 'c', key: 'k' });
  const combined = combinedCredentials(token, both);
  assert.deepEqual(await combined.current(), { authorization: 'Bearer a', certificate: 'c', key: 'k' });
  assert.equal(combined.refused?.(), false);
});
