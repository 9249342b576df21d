/** Tests checks of the certificates that are asked for at once, by the hour and by a new address of the host. */
import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { parseCertificates } from '../../../../../api/pki/certificate.ts';
import { ensurePki } from '../../../../../controlplane/security/pki/pki.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

test('checks at once issue one certificate, whose key is the one in the folder', async () => {
  const directory = temporaryFolder();
  let address = '192.0.2.1';
  const pki = await ensurePki({
    directory,
    clock: new FakeClock(),
    logger: silentLogger,
    hosts: [],
    addresses: () => [address],
    serviceIp: undefined,
  });
  address = '192.0.2.2';
  assert.deepEqual(await Promise.all([pki.check(), pki.check(), pki.check()]), [true, false, false]);
  const [certificate] = parseCertificates(readFileSync(join(directory, 'apiserver.crt'), 'utf8'));
  assert.ok(certificate?.publicKey.equals(createPublicKey(readFileSync(join(directory, 'apiserver.key'), 'utf8'))));
});
