/** Tests certificates that must be issued while the disk is full. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { parseCertificates } from '../../../../../api/pki/certificate.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { ensurePki, type Pki } from '../../../../../controlplane/security/pki/pki.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { SmallDisk } from '../../../../small-disk.ts';

let disk: SmallDisk;
beforeEach(() => {
  disk = new SmallDisk('2m');
});
afterEach(() => disk.remove());

const file = (name: string): string => join(disk.directory, name);
async function open(address: string, port: number): Promise<Pki> {
  const pki = await ensurePki({
    directory: file('pki'),
    clock: new FakeClock(),
    logger: silentLogger,
    hosts: [],
    addresses: () => [address],
    serviceIp: undefined,
  });
  await pki.keepAdminKubeconfig({ path: file('admin.kubeconfig'), server: `https://127.0.0.1:${port}` });
  return pki;
}
const addressesOf = (pem: string): readonly string[] => parseCertificates(pem)[0]?.names.ip ?? [];

describe('a host whose addresses changed while its disk is full', () => {
  it('starts with a certificate in memory, and writes one when there is room', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    await open('192.0.2.1', 6443);
    disk.fill();
    const pki = await open('192.0.2.2', 6444);
    assert.ok(addressesOf(pki.material().apiserver.certificatePem).includes('192.0.2.2'));
    const kept = readFileSync(file('pki/apiserver.crt'), 'utf8');
    assert.ok(addressesOf(kept).includes('192.0.2.1'), 'the old certificate stays');
    assert.match(readFileSync(file('admin.kubeconfig'), 'utf8'), /:6443\n/);
    disk.empty();
    assert.equal(await pki.check(), true);
    assert.ok(addressesOf(readFileSync(file('pki/apiserver.crt'), 'utf8')).includes('192.0.2.2'));
    assert.match(readFileSync(file('admin.kubeconfig'), 'utf8'), /:6444\n/);
    assert.equal(await pki.check(), false);
  });

  it('does not start with a CA that is nowhere on the disk', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    disk.fill();
    await assert.rejects(open('192.0.2.1', 6443), { code: 'ENOSPC' });
  });
});
