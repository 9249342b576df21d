import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { certificatePem, createCertificate } from '../../../../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../../../../api/pki/signing.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { followPair } from '../../../../../controlplane/security/files/followed-pair.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

async function newPair(): Promise<{ readonly cert: string; readonly key: string }> {
  const { privateKey, publicKey } = await generateKey('ecdsa');
  const der = createCertificate(
    { subject: { commonName: 'client' }, publicKey, notBeforeMs: 0, notAfterMs: 1e12 },
    { privateKey },
  );
  return { cert: certificatePem(der), key: privateKeyPem(privateKey) };
}

describe('a client certificate in files', () => {
  it('is read again when it changes, but only together with its key', async (t) => {
    const directory = temporaryFolder();
    t.after(() => rmSync(directory, { recursive: true }));
    const [certificateFile, keyFile] = [join(directory, 'tls.crt'), join(directory, 'tls.key')];
    const write = (pair: Awaited<ReturnType<typeof newPair>>): void => {
      writeFileSync(certificateFile, pair.cert);
      writeFileSync(keyFile, pair.key);
    };
    const [first, second] = [await newPair(), await newPair()];
    write(first);
    const clock = new FakeClock();
    const pair = followPair(certificateFile, keyFile, clock, silentLogger);
    assert.equal(pair().cert, first.cert);
    writeFileSync(certificateFile, second.cert);
    await clock.advance(6_000);
    assert.equal(pair().cert, first.cert, 'the key is still that of the first one');
    write(second);
    await clock.advance(6_000);
    assert.deepEqual(pair(), second);
    rmSync(keyFile);
    execFileSync('mkfifo', [keyFile]);
    await clock.advance(6_000);
    assert.deepEqual(pair(), second, 'a FIFO is not waited for');
  });

  it('with the key of another one is refused at the start', async (t) => {
    const directory = temporaryFolder();
    t.after(() => rmSync(directory, { recursive: true }));
    const [certificateFile, keyFile] = [join(directory, 'tls.crt'), join(directory, 'tls.key')];
    writeFileSync(certificateFile, (await newPair()).cert);
    writeFileSync(keyFile, (await newPair()).key);
    assert.throws(
      () => followPair(certificateFile, keyFile, new FakeClock(), silentLogger),
      /tls\.key is not the key of the certificate/,
    );
  });
});
