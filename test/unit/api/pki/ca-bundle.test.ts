import assert from 'node:assert/strict';
import { createPrivateKey, createHash, X509Certificate } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ClusterAuthority } from '../../../../agent/node/certificates/cluster-authority.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { signCaBundle, verifyCaBundle } from '../../../../api/pki/ca-bundle.ts';
import { believedCas } from '../../../../cli/commands/join.ts';
import { ensureAuthority, issue } from '../../../../controlplane/security/pki/authority.ts';
import {
  finishAuthority,
  prepareAuthority,
  readSignedBundle,
  switchAuthority,
} from '../../../../controlplane/security/pki/authority-rotation.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const NOW = Date.UTC(2026, 0, 2);

const keyHash = (pem: string): string =>
  `sha256:${createHash('sha256')
    .update(new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex')}`;

/** Resolves to an agent that trusts `ca`, with its own directory. */
async function follower(ca: string, clientCaFile = '') {
  const directory = temporaryFolder();
  const kubeconfig = join(directory, 'kubeconfig');
  const authority = (trusted: string): ClusterAuthority =>
    new ClusterAuthority({
      server: 'https://127.0.0.1:1',
      ca: trusted,
      kubeconfig,
      credentialsFile: join(directory, 'pair.pem'),
      clientCaFile,
      clock: new FakeClock(),
      logger: silentLogger,
      onChange: () => undefined,
    });
  return { authority: authority(ca), restarted: authority };
}

describe('a signed CA bundle', () => {
  it('is accepted by clients that trust its signer, and by no others', async () => {
    const [one, other] = [temporaryFolder(), temporaryFolder()];
    const ours = await ensureAuthority(one, 'ca', 'kubernetes', NOW);
    const theirs = await ensureAuthority(other, 'ca', 'kubernetes', NOW);
    const both = ours.certificatePem + theirs.certificatePem;
    const signed = signCaBundle({ certificates: both, issuedAtMs: NOW }, ours.privateKey);
    assert.deepEqual(verifyCaBundle(signed, ours.certificatePem), { certificates: both, issuedAtMs: NOW });
    assert.equal(verifyCaBundle(signed, theirs.certificatePem), undefined);
    const forged = signCaBundle({ certificates: both, issuedAtMs: NOW }, theirs.privateKey);
    assert.equal(verifyCaBundle(forged, ours.certificatePem), undefined);
    const [header = '', payload = '', signature = ''] = signed.split('.');
    const changed = Buffer.from(JSON.stringify({ certificates: both, issuedAtMs: NOW + 1 })).toString('base64url');
    const none = Buffer.from('{"alg":"none","typ":"orchlet-ca-bundle"}').toString('base64url');
    for (const text of [
      '',
      signature,
      `${header}.${changed}.${signature}`,
      `${none}.${payload}.`,
      `${header}.${payload}.`,
      `${signed}.${signature}`,
    ])
      assert.equal(verifyCaBundle(text, ours.certificatePem), undefined, text);
  });

  it('contains only CAs: a client certificate in it invalidates the bundle', async () => {
    const ours = await ensureAuthority(temporaryFolder(), 'ca', 'kubernetes', NOW);
    const leaf = await issue({ subject: { commonName: 'x' }, usages: ['client auth'], lifetimeMs: 1e9 }, ours, NOW);
    const certificates = ours.certificatePem + leaf.certificatePem;
    assert.equal(
      verifyCaBundle(signCaBundle({ certificates, issuedAtMs: NOW }, ours.privateKey), ours.certificatePem),
      undefined,
    );
    // A bundle signed with a client's key is invalid, even if its CA is trusted.
    const byClient = signCaBundle(
      { certificates: ours.certificatePem, issuedAtMs: NOW },
      createPrivateKey(leaf.privateKeyPem),
    );
    assert.equal(verifyCaBundle(byClient, ours.certificatePem), undefined);
  });
});

describe('an agent in a CA rotation', () => {
  it('follows each stage, keeps its CAs over restarts, and accepts no earlier bundle', async () => {
    const pki = temporaryFolder();
    const old = (await ensureAuthority(pki, 'ca', 'kubernetes', NOW)).certificatePem;
    const { authority, restarted } = await follower(old);
    const published: string[] = [];
    const stages = [prepareAuthority, switchAuthority, finishAuthority];
    for (const [index, stage] of stages.entries()) {
      // The clock of the host may go backwards.
      await stage(pki, NOW - index);
      const signed = (await readSignedBundle(pki)) ?? '';
      published.push(signed);
      assert.equal(await authority.take(signed), true);
      assert.equal(authority.ca, await readFile(join(pki, 'ca.crt'), 'utf8'));
      // A CA that is still trusted has signed the earlier ones.
      for (const earlier of published) assert.equal(await authority.take(earlier), false);
      assert.equal(authority.ca, await readFile(join(pki, 'ca.crt'), 'utf8'));
    }
    assert.equal(authority.ca.includes(old), false);
    const again = restarted(authority.ca);
    for (const signed of published) assert.equal(await again.take(signed), false);
    // An agent that has only trusted the new CA must not start to trust the old one.
    const { authority: fresh } = await follower(authority.ca);
    for (const signed of published.slice(0, 2)) assert.equal(await fresh.take(signed), false);
  });

  it('accepts no unsigned CA from the ConfigMap, with the real one or alone', async () => {
    const real = await ensureAuthority(temporaryFolder(), 'ca', 'kubernetes', NOW);
    const evil = await ensureAuthority(temporaryFolder(), 'ca', 'kubernetes', NOW);
    const { authority } = await follower(real.certificatePem);
    for (const certificates of [evil.certificatePem, real.certificatePem + evil.certificatePem])
      assert.equal(await authority.take(signCaBundle({ certificates, issuedAtMs: NOW }, evil.privateKey)), false);
    assert.equal(authority.ca, real.certificatePem);
  });

  it('writes its own file of client CAs, and never that of the control plane', async () => {
    const pki = temporaryFolder();
    const old = (await ensureAuthority(pki, 'ca', 'kubernetes', NOW)).certificatePem;
    const own = join(temporaryFolder(), 'client-ca.crt');
    await writeFile(own, old);
    await prepareAuthority(pki, NOW);
    const signed = (await readSignedBundle(pki)) ?? '';
    const both = await readFile(join(pki, 'ca.crt'), 'utf8');
    assert.equal(await (await follower(old, own)).authority.take(signed), true);
    assert.equal(await readFile(own, 'utf8'), both);
    await writeFile(join(pki, 'ca.crt'), old);
    assert.equal(await (await follower(old, join(pki, 'ca.crt'))).authority.take(signed), true);
    assert.equal(await readFile(join(pki, 'ca.crt'), 'utf8'), old);
  });
});

describe('a joining host', () => {
  it('trusts the CA with the given hash and what it signed, not every CA in cluster-info', async () => {
    const pki = temporaryFolder();
    const old = (await ensureAuthority(pki, 'ca', 'kubernetes', NOW)).certificatePem;
    const evil = (await ensureAuthority(temporaryFolder(), 'ca', 'kubernetes', NOW)).certificatePem;
    const hashes = [keyHash(old)];
    const believed = believedCas({ ca: old + evil, signedBundle: '' }, hashes) ?? '';
    assert.equal(believed.trim(), old.trim());
    assert.equal(believedCas({ ca: evil, signedBundle: '' }, hashes), undefined);
    await prepareAuthority(pki, NOW);
    const both = await readFile(join(pki, 'ca.crt'), 'utf8');
    assert.equal(believedCas({ ca: both, signedBundle: (await readSignedBundle(pki)) ?? '' }, hashes), both);
  });
});
