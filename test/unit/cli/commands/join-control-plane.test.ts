/** Tests `orchlet token create --control-plane` and `orchlet join --control-plane` with a control plane in this process. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { configMaps, secrets } from '../../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../../api/meta/status-error.ts';
import { certificateKeyHash } from '../../../../api/pki/public-key-hash.ts';
import { openBundle, sealBundle } from '../../../../cli/cluster/control-plane-bundle.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { until } from '../../../until.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const PKI = ['ca.crt', 'ca.key', 'front-proxy-ca.crt', 'front-proxy-ca.key', 'sa.key', 'sa.pub'];

describe('a further control plane', () => {
  const directory = temporaryFolder();
  const dataDir = join(directory, 'first');
  const encryption = join(directory, 'encryption.yaml');
  let plane: ControlPlane;
  let line: readonly string[];

  const create = (...more: readonly string[]): Promise<Ran> =>
    orchlet(['token', 'create', '--data-dir', dataDir, '--kubeconfig', join(dataDir, 'admin.kubeconfig'), ...more]);
  const joins = (folder: string, ...changes: readonly string[]): Promise<Ran> =>
    orchlet([...line, '--data-dir', join(directory, folder), ...changes]);

  before(async () => {
    plane = await startControlPlane({ flags: { dataDir, bindAddress: '127.0.0.1', securePort: 0, manifestsDir: [] } });
    writeFileSync(encryption, 'kind: EncryptionConfiguration\n');
    const etcd = ['--etcd-servers', 'https://10.0.0.1:2379', '--etcd-servers', 'https://10.0.0.2:2379'];
    const created = await create('--control-plane', ...etcd, '--encryption-provider-config', encryption);
    assert.equal(created.code, 0, created.stderr);
    assert.match(created.stderr, /^Whoever has this line can read the keys of the cluster, for 2h0m0s\./);
    const [first = '', ...others] = created.stdout.trim().split(' ').slice(1);
    // The published address may not be one of this test's network.
    line = [first, plane.url, ...others.slice(1)];
    await until('cluster-info to be signed', async () => {
      const info = await plane.client.get(configMaps, 'kube-public', 'cluster-info').catch(() => undefined);
      return Object.keys((info?.['data'] ?? {}) as object).some((key) => key.startsWith('jws-kubeconfig-'));
    });
  });
  after(async () => {
    await plane.close();
  });

  it('gets the keys of the cluster, which only its owner reads, and the command that starts it', async () => {
    const { code, stdout, stderr } = await joins('second');
    assert.equal(code, 0, stderr);
    for (const name of PKI)
      assert.deepEqual(readFileSync(join(directory, 'second/pki', name)), readFileSync(join(dataDir, 'pki', name)));
    assert.equal(statSync(join(directory, 'second/pki/ca.key')).mode & 0o077, 0);
    assert.equal(statSync(join(directory, 'second/pki')).mode & 0o077, 0);
    assert.equal(readFileSync(join(directory, 'second/encryption.yaml'), 'utf8'), readFileSync(encryption, 'utf8'));
    const second = join(directory, 'second');
    assert.ok(
      stdout.endsWith(
        `  orchlet controlplane --data-dir ${second} --etcd-servers=https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-prefix=/registry --encryption-provider-config=${second}/encryption.yaml\n`,
      ),
      stdout,
    );
    assert.equal((await joins('second')).code, 0, 'it may be repeated');
  });

  it('reads token and key from a file or from the input, and hides arguments from the list of processes', async () => {
    const secret = (name: string): string => line[line.indexOf(name) + 1] ?? '';
    const lines = `${secret('--token')}\n${secret('--certificate-key')}\n`;
    const path = join(directory, 'token');
    writeFileSync(path, lines);
    const hidden = ['--token', secret('--token'), '--certificate-key', secret('--certificate-key')];
    const words = line.filter((word) => !hidden.includes(word));
    const titles: string[] = [];
    const onHidden = (title: string): void => void titles.push(title);
    const read = await orchlet([...words, '--token-file', path, '--data-dir', join(directory, 'by-file')], {
      onHidden,
    });
    const piped = await orchlet([...words, '--token-file', '-', '--data-dir', join(directory, 'by-input')], {
      input: lines,
      onHidden,
    });
    const given = await orchlet([...line, '--data-dir', join(directory, 'by-flags')], { onHidden });
    assert.deepEqual(titles, ['orchlet join', 'orchlet join', 'orchlet join']);
    for (const [ran, folder] of [
      [read, 'by-file'],
      [piped, 'by-input'],
      [given, 'by-flags'],
    ] as const) {
      assert.equal(ran.code, 0, ran.stderr);
      assert.deepEqual(readFileSync(join(directory, folder, 'pki/ca.key')), readFileSync(join(dataDir, 'pki/ca.key')));
    }
    assert.equal(read.stderr + piped.stderr, '');
    assert.match(given.stderr, /^WARNING: Other users of this host may have seen --certificate-key/);
    const both = await joins('both', '--token-file', path);
    assert.match(both.stderr, /--token-file takes the place of --token and --certificate-key/);
    assert.equal(both.code, 2);
  });

  it('finds only ciphertext in the cluster, which goes with the token', async () => {
    const [stored] = (await plane.client.list(secrets, { namespace: 'kube-system' })).items.filter(({ metadata }) =>
      metadata.name?.startsWith('orchlet-control-plane-'),
    );
    assert.ok(stored);
    const key = readFileSync(join(dataDir, 'pki/ca.key'));
    for (const text of Object.values(stored['data'] as Record<string, string>)) {
      const bytes = Buffer.from(text, 'base64');
      assert.equal(bytes.includes(key.subarray(30, 60)), false);
      assert.equal(bytes.includes('-----BEGIN'), false);
    }
    const owner = stored.metadata.ownerReferences?.[0];
    const token = await plane.client.get(secrets, 'kube-system', owner?.name ?? '');
    const lifeMs =
      Date.parse(Buffer.from((token['data'] as { expiration: string }).expiration, 'base64').toString()) - Date.now();
    assert.ok(lifeMs > 7_000_000 && lifeMs <= 7_200_000, String(lifeMs));
    assert.equal(owner?.uid, token.metadata.uid);
  });

  it('gets nothing with a wrong key, another token, or another CA, and no file is written', async () => {
    const wrong = await joins('wrong', '--certificate-key', 'f'.repeat(64));
    assert.match(wrong.stderr, /the bundle cannot be decrypted \(.*\): the certificate key is wrong/);
    const token = (await create()).stdout.trim();
    await until('another signature', async () => {
      const info = await plane.client.get(configMaps, 'kube-public', 'cluster-info');
      return Object.hasOwn(info['data'] as object, `jws-kubeconfig-${token.split('.')[0]}`);
    });
    const node = await joins('node', '--token', token);
    assert.match(node.stderr, /the token may not join a control plane, or its two hours are over/);
    const other = ['--discovery-token-ca-cert-hash', `sha256:${'0'.repeat(64)}`];
    const withoutPin = line.filter((word) => !word.startsWith('sha256:') && word !== '--discovery-token-ca-cert-hash');
    const pinned = await orchlet([...withoutPin, '--data-dir', join(directory, 'pinned'), ...other]);
    assert.match(pinned.stderr, /which is not the one that was given/);
    for (const folder of ['wrong', 'node', 'pinned']) assert.equal(existsSync(join(directory, folder)), false);
    assert.deepEqual([wrong.code, node.code, pinned.code], [1, 1, 1]);
    assert.ok(line.includes(certificateKeyHash(plane.ca)));
  });

  it('does not replace the CA of another cluster', async () => {
    mkdirSync(join(directory, 'taken/pki'), { recursive: true });
    writeFileSync(join(directory, 'taken/pki/ca.crt'), 'another');
    const { code, stderr } = await joins('taken');
    assert.equal(code, 1);
    assert.match(stderr, /has the CA of another cluster/);
    assert.equal(existsSync(join(directory, 'taken/pki/ca.key')), false);
  });

  it('is no more possible once the token is deleted', async () => {
    const id = line[line.indexOf('--token') + 1]?.split('.')[0] ?? '';
    await plane.client.delete(secrets, 'kube-system', `bootstrap-token-${id}`);
    const bundle = `orchlet-control-plane-${id}`;
    await until('the bundle to be collected', async () => {
      return (await tolerate(plane.client.get(secrets, 'kube-system', bundle), isNotFound)) === undefined;
    });
  });

  it('needs a key, and a first host with the keys', async () => {
    const withoutKey = await orchlet(['join', plane.url, '--control-plane', '--token', 'abcdef.0123456789abcdef']);
    assert.match(withoutKey.stderr, /--control-plane needs --certificate-key/);
    const elsewhere = await create('--control-plane', '--data-dir', directory);
    assert.match(elsewhere.stderr, /pki\/ca.crt is missing: run this on a host with a control plane/);
  });
});

describe('a bundle', () => {
  const files = new Map(
    ['ca.crt', 'ca.key', 'front-proxy-ca.crt', 'front-proxy-ca.key', 'sa.key', 'sa.pub'].map((name) => [
      name,
      Buffer.from(`content of ${name}`),
    ]),
  );

  it('is opened with its key alone, and not after any change', () => {
    const { key, data } = sealBundle(files);
    assert.deepEqual(openBundle(data, key), files);
    assert.throws(() => openBundle(data, sealBundle(files).key), /cannot be decrypted/);
    assert.throws(() => openBundle({ ...data, 'ca.key': data['sa.key'] ?? '' }, key), /cannot be decrypted \(ca.key\)/);
    const bytes = Buffer.from(data['ca.key'] ?? '', 'base64');
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    assert.throws(() => openBundle({ ...data, 'ca.key': bytes.toString('base64') }, key), /cannot be decrypted/);
    for (const text of ['', 'AAAA', data['ca.key']?.slice(0, 24) ?? ''])
      assert.throws(() => openBundle({ ...data, 'ca.key': text }, key), /cannot be decrypted/);
  });

  it('names no file outside of the data directory, and has all files', () => {
    const { key, data } = sealBundle(files);
    assert.throws(() => openBundle({ ...data, '../../etc/passwd': '' }, key), /does not belong in it/);
    const { 'sa.key': _gone, ...rest } = data;
    assert.throws(() => openBundle(rest, key), /cannot be decrypted/);
    const incomplete = sealBundle(new Map([...files].filter(([name]) => name !== 'sa.key')));
    assert.throws(() => openBundle(incomplete.data, incomplete.key), /the bundle has no sa.key/);
  });

  it('is not opened without a file that it may lack, such as the configuration of encryption', () => {
    const all = new Map([...files, ['encryption.yaml', Buffer.from('secret')], ['flags', Buffer.from('--a')]]);
    const { key, data } = sealBundle(all);
    assert.deepEqual(openBundle(data, key), all);
    for (const name of ['encryption.yaml', 'flags']) {
      const { [name]: _gone, ...rest } = data;
      assert.throws(() => openBundle(rest, key), /cannot be decrypted/, name);
    }
  });
});
