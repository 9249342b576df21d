/** Tests by which certificate control planes of a cluster recognize each other. */
import assert from 'node:assert/strict';
import { type KeyObject, X509Certificate } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { test } from 'node:test';
import {
  type Authority,
  ensureAuthority,
  issue,
  type Wanted,
} from '../../../../controlplane/security/pki/authority.ts';
import {
  administratorCheck,
  identityCredentials,
  peerCheck,
  readClusterKeys,
} from '../../../../controlplane/standby/identity.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const HOUR_MS = 3_600_000;

test('a control plane is who has a certificate of the front-proxy CA with their name, and nobody else', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  const clock = new FakeClock();
  const ca = await ensureAuthority(directory, 'ca', 'kubernetes', clock.now());
  const frontProxyCa = await ensureAuthority(directory, 'front-proxy-ca', 'front-proxy-ca', clock.now());
  const isPeer = peerCheck(frontProxyCa.certificatePem, clock);
  const isAdministrator = administratorCheck(ca.certificatePem, clock);
  const shown = async (authority: Authority, change: Partial<Wanted> = {}): Promise<boolean[]> => {
    const wanted: Wanted = {
      subject: { commonName: 'orchlet-control-plane', organizations: [] },
      usages: ['client auth'],
      lifetimeMs: HOUR_MS,
      ...change,
    };
    const { certificatePem } = await issue(wanted, authority, clock.now());
    const connection = { remoteAddress: '10.0.0.1', peerCertificate: new X509Certificate(certificatePem) };
    return [isPeer(connection), isAdministrator(connection)];
  };
  const admin = { commonName: 'kubernetes-admin', organizations: ['system:masters'] };
  assert.deepEqual(await shown(frontProxyCa), [true, false]);
  assert.deepEqual(await shown(ca), [false, false], 'a certificate that an administrator has approved');
  assert.deepEqual(await shown(ca, { subject: admin }), [false, true]);
  assert.deepEqual(await shown(frontProxyCa, { subject: admin }), [false, false]);
  assert.deepEqual(await shown(frontProxyCa, { subject: { commonName: 'front-proxy-client' } }), [false, false]);
  assert.deepEqual(await shown(frontProxyCa, { usages: ['server auth'] }), [false, false]);
  assert.deepEqual(await shown(frontProxyCa, { lifetimeMs: -HOUR_MS }), [false, false]);
  assert.equal(isPeer({ remoteAddress: '10.0.0.1', peerCertificate: undefined }), false);
});

test('a data directory without the keys of the cluster is refused with the remedy', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  await assert.rejects(readClusterKeys(directory), /lacks the keys of the cluster: .* 'orchlet join --control-plane'/);
});

test('a certificate of a control plane that could not be issued is tried again at the next request', async (t) => {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  const clock = new FakeClock();
  const { privateKey, ...authority } = await ensureAuthority(
    directory,
    'front-proxy-ca',
    'front-proxy-ca',
    clock.now(),
  );
  const keys: KeyObject[] = [];
  const credentials = identityCredentials(
    {
      ...authority,
      get privateKey() {
        const [key] = keys;
        if (key === undefined) throw new Error('the key cannot be read');
        return key;
      },
    },
    clock,
  );
  await assert.rejects(async () => credentials.current(), /the key cannot be read/);
  keys.push(privateKey);
  const first = await credentials.current();
  assert.match(String(first.certificate), /BEGIN CERTIFICATE/);
  assert.equal((await credentials.current()).certificate, first.certificate);
});
