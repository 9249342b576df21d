/** Commands that are clients of a cluster, against a control plane in memory. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { certificateSigningRequests, configMaps } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { createCsr } from '../../../api/pki/certificate-request.ts';
import { generateKey } from '../../../api/pki/signing.ts';
import { commands } from '../../../cli/commands.ts';
import { type ControlPlane, startControlPlane } from '../../../controlplane/main.ts';
import { orchlet, type Ran } from './command-run.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const kubeconfigOf = (server: string, token: string): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'it',
    clusters: [{ name: 'it', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'it', user: { token } }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'it' } }],
  });

describe('commands of a cluster', () => {
  const directory = temporaryFolder();
  const kubeconfig = join(directory, 'admin.kubeconfig');
  let plane: ControlPlane;
  const cluster = (...argv: string[]): Promise<Ran> => orchlet([...argv, '--kubeconfig', kubeconfig]);

  before(async () => {
    plane = await startControlPlane({ memory: true });
    writeFileSync(kubeconfig, plane.kubeconfig);
  });
  after(async () => {
    await plane.close();
  });

  it('finds the kubeconfig of the data directory by itself', async () => {
    const { code, stdout } = await orchlet(['token', 'list', '--data-dir', directory]);
    assert.deepEqual([code, stdout.split('\n')[0]], [0, 'TOKEN   TTL   EXPIRES   USAGES   DESCRIPTION   EXTRA GROUPS']);
  });

  it('creates, lists and deletes bootstrap tokens', async () => {
    const token = 'abcdef.0123456789abcdef';
    const created = await cluster('token', 'create', token, '--ttl', '2h', '--description', 'rack 4');
    assert.deepEqual(created, { code: 0, stdout: `${token}\n`, stderr: '' });
    const { stdout } = await cluster('token', 'list');
    assert.match(stdout, /^abcdef\.0123456789abcdef +(2h0m0s|1h59m5\ds) +\S+Z +authentication,signing +rack 4 /m);
    assert.equal((await cluster('token', 'delete', 'abcdef')).stdout, 'bootstrap token abcdef deleted\n');
    const again = await cluster('token', 'delete', token);
    assert.deepEqual([again.code, again.stderr.includes('there is no bootstrap token abcdef')], [1, true]);
    assert.match((await cluster('token', 'delete', 'x')).stderr, /neither a token nor the id of one/);
  });

  it('prints the command with which a node joins', async () => {
    const { stdout } = await cluster('token', 'create', '--print-join-command', '--ttl', '0');
    assert.match(
      stdout,
      /^orchlet join https:\/\/\S+ --token [a-z0-9]{6}\.[a-z0-9]{16} --discovery-token-ca-cert-hash sha256:[0-9a-f]{64}\n$/,
    );
    assert.match((await cluster('token', 'list')).stdout, /<forever> +<never>/);
  });

  it('prints no command of whoever may edit cluster-info, and no control characters of a description', async () => {
    const info = await plane.client.get(configMaps, 'kube-public', 'cluster-info');
    const data = info['data'] as Record<string, string>;
    const hostile = (data['kubeconfig'] ?? '').replace(/server: \S+/, 'server: https://10.0.0.1:6443;touch$IFS/tmp/x');
    assert.match(hostile, /touch/);
    // A controller signs the kubeconfig for each token meanwhile.
    const { resourceVersion: _old, ...metadata } = info.metadata;
    await plane.client.update(configMaps, { ...info, metadata, data: { ...data, kubeconfig: hostile } });
    const { stdout } = await cluster('token', 'create', '--print-join-command', '--description', 'a\u001b[2Jb');
    assert.match(stdout, /^orchlet join https:\/\/[\w.:]+ --token /);
    assert.match((await cluster('token', 'list')).stdout, / a\\x1b\[2Jb /);
    await plane.client.update(configMaps, { ...info, metadata });
  });

  it('warns who joins without verifying the CA of the cluster', async () => {
    const join = ['join', plane.url, '--token', 'zyxwvu.0123456789abcdef'];
    const unverified = await orchlet([...join, '--discovery-token-unsafe-skip-ca-verification']);
    assert.equal(unverified.code, 1);
    assert.match(unverified.stderr, /^WARNING: The CA of the cluster is not verified: .* as root on this host/m);
    const verified = await orchlet([...join, '--discovery-token-ca-cert-hash', `sha256:${'0'.repeat(64)}`]);
    assert.ok(!verified.stderr.includes('WARNING'));
  });

  it('approves certificate requests by name', async () => {
    assert.equal((await cluster('certs', 'approve')).stdout, 'No request waits for approval\n');
    const keys = await generateKey('ecdsa');
    const pem = createCsr({ subject: { commonName: 'ann', organizations: [] } }, keys);
    await plane.client.create(certificateSigningRequests, '', {
      apiVersion: 'certificates.k8s.io/v1',
      kind: 'CertificateSigningRequest',
      metadata: { name: 'ann' },
      spec: {
        request: Buffer.from(pem).toString('base64'),
        signerName: 'kubernetes.io/kube-apiserver-client',
        usages: ['client auth'],
      },
    } as unknown as KubeObject);
    assert.match((await cluster('certs', 'approve', 'ann')).stdout, /^approved ann of /);
    assert.match((await cluster('certs', 'approve', 'bob')).stderr, /there is no certificate signing request "bob"/);
  });

  it('reports that nothing is encrypted if no provider is configured', async () => {
    const { code, stderr } = await cluster('secrets', 'reencrypt');
    assert.deepEqual([code, stderr.includes('without --encryption-provider-config')], [1, true]);
  });

  it('names the node that --node does not fit', async () => {
    const { code, stderr } = await cluster('agent', 'explain-eviction', '--node', 'bob');
    assert.deepEqual(
      [code, stderr],
      [1, 'orchlet: there is no node "bob": name one of \'kubectl get nodes\' with --node\n'],
    );
  });

  it('names the server and the kubeconfig whose credentials are refused', async () => {
    const file = join(directory, 'stranger.kubeconfig');
    writeFileSync(file, kubeconfigOf(plane.url, 'stranger'));
    const { code, stderr } = await orchlet(['token', 'list', '--kubeconfig', file]);
    assert.equal(code, 1);
    assert.match(stderr, /^orchlet: the API server https:\S+ of \S+stranger\.kubeconfig refuses the credentials .*\n$/);
  });

  it('writes backups only where a file can be', async () => {
    mkdirSync(join(directory, 'storage'));
    writeFileSync(join(directory, 'storage/orchlet.db'), '');
    for (const [file, line] of [
      [join(directory, 'missing/cluster.tgz'), /\/missing is not a directory: create it first/],
      [join(kubeconfig, 'cluster.tgz'), /admin\.kubeconfig is not a directory: create it first/],
      [directory, /is a directory: name a file in it, such as \S+\/cluster\.tgz$/m],
    ] as const) {
      const { code, stderr } = await orchlet(['backup', file, '--data-dir', directory]);
      assert.deepEqual([code, stderr.match(line)?.length], [1, 1], stderr);
    }
  });
});

describe('a server that does not answer is named with the kubeconfig, in one line', async () => {
  const directory = temporaryFolder();
  const kubeconfig = join(directory, 'admin.kubeconfig');
  writeFileSync(kubeconfig, kubeconfigOf('https://127.0.0.1:1', 'nobody'));
  for (const { name, load } of commands) {
    const command = await load();
    if (!('kubeconfig' in command.flags) || !('dataDir' in command.flags)) continue;
    const words = Array.from({ length: command.arguments?.least ?? 0 }, () => 'abcdef');
    it(`orchlet ${name}`, async () => {
      const { code, stdout, stderr } = await orchlet([...name.split(' '), ...words], {
        env: { KUBECONFIG: kubeconfig },
      });
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(
        stderr,
        /^orchlet: cannot connect to the API server https:\/\/127\.0\.0\.1:1 of \S+: .*ECONNREFUSED.*--kubeconfig.*\n$/,
      );
    });
  }
});
