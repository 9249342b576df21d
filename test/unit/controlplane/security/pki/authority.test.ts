/** Tests that errors about keys and certificates of the PKI directory name the file. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ensureAdminKubeconfig } from '../../../../../controlplane/security/pki/admin-kubeconfig.ts';
import { ensureAuthority, ensureCertificate, type Wanted } from '../../../../../controlplane/security/pki/authority.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const NOW = Date.UTC(2026, 5, 1);
const WANTED: Wanted = { subject: { commonName: 'x' }, usages: ['server auth'], lifetimeMs: 86_400_000 };

test('an unreadable key of a CA is an error that names the CA', async () => {
  const directory = temporaryFolder();
  await ensureAuthority(directory, 'ca', 'kubernetes', NOW);
  writeFileSync(join(directory, 'ca.key'), 'no key');
  await assert.rejects(ensureAuthority(directory, 'ca', 'kubernetes', NOW), {
    message: new RegExp(`^the key of ${RegExp.escape(join(directory, 'ca.crt'))} cannot be read: `),
  });
});

test('an unreadable key of the administrator is an error that names the kubeconfig', async () => {
  const directory = temporaryFolder();
  const authority = await ensureAuthority(directory, 'ca', 'kubernetes', NOW);
  const path = join(directory, 'admin.kubeconfig');
  const ensure = () => ensureAdminKubeconfig(path, 'https://127.0.0.1:6443', authority, NOW);
  const { text } = await ensure();
  writeFileSync(path, text.replace(/client-key-data: .*/, 'client-key-data: bm8ga2V5'));
  await assert.rejects(ensure, { message: new RegExp(`^${RegExp.escape(path)} cannot be read: `) });
});

test('an unreadable key of a certificate is an error that names the file', async () => {
  const directory = temporaryFolder();
  const authority = await ensureAuthority(directory, 'ca', 'kubernetes', NOW);
  await ensureCertificate({ directory, name: 'apiserver' }, WANTED, authority, NOW);
  writeFileSync(join(directory, 'apiserver.key'), 'no key');
  await assert.rejects(ensureCertificate({ directory, name: 'apiserver' }, WANTED, authority, NOW), {
    message: new RegExp(`^${RegExp.escape(join(directory, 'apiserver.key'))} cannot be read: `),
  });
});
