import assert from 'node:assert/strict';
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ClusterAuthority } from '../../../../../agent/node/certificates/cluster-authority.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { ensureAuthority } from '../../../../../controlplane/security/pki/authority.ts';
import { prepareAuthority, readSignedBundle } from '../../../../../controlplane/security/pki/authority-rotation.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const NOW = Date.UTC(2026, 0, 2);

describe('a new CA bundle', () => {
  it('reaches both files when the agent is interrupted between them', async () => {
    const directory = temporaryFolder();
    const pki = join(directory, 'pki');
    const [kubeconfig, clientCaFile] = [join(directory, 'kubeconfig'), join(directory, 'client-ca.crt')];
    const old = (await ensureAuthority(pki, 'ca', 'kubernetes', NOW)).certificatePem;
    await prepareAuthority(pki, NOW);
    const signed = (await readSignedBundle(pki)) ?? '';
    const both = await readFile(join(pki, 'ca.crt'), 'utf8');
    await writeFile(clientCaFile, old);
    const take = (): Promise<boolean> =>
      new ClusterAuthority({
        server: 'https://127.0.0.1:1',
        ca: old,
        kubeconfig,
        credentialsFile: join(directory, 'pair.pem'),
        clientCaFile,
        clock: new FakeClock(),
        logger: silentLogger,
        onChange: () => undefined,
      }).take(signed);
    // The kubeconfig determines what the next agent trusts, and is written last. A directory with its name makes the write
    // fail.
    await mkdir(kubeconfig);
    await assert.rejects(take());
    assert.equal(await readFile(clientCaFile, 'utf8'), both);
    await rmdir(kubeconfig);
    assert.equal(await take(), true);
    assert.equal(await readFile(clientCaFile, 'utf8'), both);
    assert.ok((await readFile(kubeconfig, 'utf8')).includes(Buffer.from(both).toString('base64')));
  });
});
