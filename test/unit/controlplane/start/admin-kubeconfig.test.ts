/** Tests the kubeconfig of the administrator while a control plane runs longer than the certificate in it is valid. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { keepAlive } from '../../../../api/machinery/clock.ts';
import { parseCertificates } from '../../../../api/pki/certificate.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const YEAR_MS = 365 * 86_400_000;

test('the certificate of the administrator is renewed while the control plane runs, with its other certificates', async () => {
  const alive = keepAlive();
  const clock = new FakeClock();
  const dataDir = temporaryFolder();
  const file = join(dataDir, 'admin.kubeconfig');
  const plane = await startControlPlane({
    clock,
    flags: { dataDir, bindAddress: '127.0.0.1', securePort: 0 },
  });
  const notAfterMs = (): number => {
    const text = readFileSync(file, 'utf8');
    assert.ok(text.includes(`server: ${plane.url}\n`));
    const encoded = /client-certificate-data: (\S+)/.exec(text)?.[1] ?? '';
    return parseCertificates(Buffer.from(encoded, 'base64').toString())[0]?.notAfterMs ?? 0;
  };
  try {
    const first = notAfterMs();
    assert.equal(await plane.checkCertificates(), false);
    assert.equal(notAfterMs(), first, 'a certificate is not renewed early');
    clock.set(0.8 * YEAR_MS);
    assert.equal(await plane.checkCertificates(), true);
    assert.ok(notAfterMs() > first, 'the certificate was not renewed');
    rmSync(file);
    assert.equal(await plane.checkCertificates(), false);
    assert.equal(existsSync(file), false, 'a file that the administrator has removed is not written again');
  } finally {
    await plane.close();
    alive.cancel();
  }
});
