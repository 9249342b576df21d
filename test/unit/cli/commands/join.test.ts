/** Tests `orchlet join` and the node of `orchlet up` with a control plane in memory. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseYaml } from '../../../../api/codec/yaml.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { loadKubeconfig, serverAccess } from '../../../../api/client/kubeconfig.ts';
import { configMaps, nodes, secrets } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { certificateKeyHash } from '../../../../api/pki/public-key-hash.ts';
import { admitOwnNode } from '../../../../cli/cluster/own-node.ts';
import { openNode } from '../../../../cli/cluster/stop-own-node.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { until } from '../../../until.ts';
import { orchlet, type Ran } from '../command-run.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const TOKEN = 'abcdef.0123456789abcdef';

describe('a host that joins', () => {
  const directory = temporaryFolder();
  let plane: ControlPlane;
  const joins = (folder: string, ...argv: readonly string[]): Promise<Ran> =>
    orchlet(['join', plane.url, '--config-dir', join(directory, folder), '--start=false', ...argv]);

  before(async () => {
    plane = await startControlPlane({ memory: true });
    const kubeconfig = join(directory, 'admin.kubeconfig');
    writeFileSync(kubeconfig, plane.kubeconfig);
    const created = await orchlet(['token', 'create', TOKEN, '--kubeconfig', kubeconfig]);
    assert.equal(created.code, 0, created.stderr);
    await until('cluster-info to be signed', async () => {
      const info = await plane.client.get(configMaps, 'kube-public', 'cluster-info').catch(() => undefined);
      return Object.hasOwn((info?.['data'] ?? {}) as object, 'jws-kubeconfig-abcdef');
    });
  });
  after(async () => {
    await plane.close();
  });

  it('gets a kubeconfig with the token, the CA and the flags of its agent', async () => {
    const hash = ['--discovery-token-ca-cert-hash', certificateKeyHash(plane.ca)];
    const { code, stdout, stderr } = await joins('right', '--token', TOKEN, '--node-name', 'n7', ...hash);
    assert.deepEqual([code, stderr], [0, '']);
    const written = (name: string): string => join(directory, 'right', name);
    const bootstrap = written('bootstrap.kubeconfig');
    const config = parseYaml(readFileSync(bootstrap, 'utf8')).value as unknown as {
      readonly users: readonly { readonly user: { readonly token: string } }[];
      readonly clusters: readonly { readonly cluster: { readonly server: string } }[];
    };
    assert.deepEqual([config.clusters[0]?.cluster.server, config.users[0]?.user.token], [plane.url, TOKEN]);
    assert.equal(statSync(bootstrap).mode & 0o077, 0, 'nobody else reads the token');
    assert.equal(readFileSync(written('ca.crt'), 'utf8').trim(), plane.ca.trim());
    assert.match(
      readFileSync(written('join.env'), 'utf8'),
      /^ORCHLET_JOIN_FLAGS=.*--read-only-port=0 --hostname-override n7\n$/,
    );
    assert.match(stdout, /^Start the agent with:\n {2}orchlet agent --bootstrap-kubeconfig /m);
  });

  it('asks the next server when one does not answer, and knows all that it was given', async () => {
    const folder = join(directory, 'several');
    const first = ['join', 'https://127.0.0.1:1', '--server', plane.url, '--server', 'https://127.0.0.1:2'];
    const hash = ['--discovery-token-ca-cert-hash', certificateKeyHash(plane.ca)];
    const { code, stderr } = await orchlet([
      ...first,
      '--config-dir',
      folder,
      '--start=false',
      '--token',
      TOKEN,
      ...hash,
    ]);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /could not be read from https:\/\/127\.0\.0\.1:1: .*; trying the next server/);
    const access = await serverAccess(await loadKubeconfig(join(folder, 'bootstrap.kubeconfig')), {
      clock: systemClock,
    });
    assert.deepEqual([access.server, access.otherServers], [plane.url, ['https://127.0.0.1:1', 'https://127.0.0.1:2']]);
    const wrong = await orchlet(['join', plane.url, '--server', 'http://a', '--token', TOKEN, ...hash]);
    assert.match(wrong.stderr, /"http:\/\/a" is not a server of the form https:\/\/HOST:PORT/);
  });

  it('is refused what another CA signed, and gets no file', async () => {
    const other = ['--discovery-token-ca-cert-hash', `sha256:${'0'.repeat(64)}`];
    const { code, stderr } = await joins('other', '--token', TOKEN, ...other);
    assert.equal(code, 1);
    assert.ok(
      stderr.includes(`the CA of the cluster has the hash ${certificateKeyHash(plane.ca)}, which is not the one`),
      stderr,
    );
    assert.equal(existsSync(join(directory, 'other')), false);
  });

  it('is refused with a token whose secret is wrong, or that the cluster does not know', async () => {
    const unsafe = '--discovery-token-unsafe-skip-ca-verification';
    const wrong = await joins('wrong', '--token', 'abcdef.fedcba9876543210', unsafe);
    assert.match(
      wrong.stderr,
      /is not signed with this token: the token is wrong, or another host answers in place of the cluster/,
    );
    const unknown = await joins('unknown', '--token', 'zzzzzz.0123456789abcdef', unsafe);
    assert.match(unknown.stderr, /the cluster does not know the token zzzzzz: it has expired, or may not sign/);
    assert.deepEqual([wrong.code, unknown.code], [1, 1]);
  });

  it('learns that nothing answers', async () => {
    const unsafe = '--discovery-token-unsafe-skip-ca-verification';
    const away = await orchlet(['join', 'https://127.0.0.1:1', '--token', TOKEN, unsafe]);
    assert.equal(away.code, 1);
    assert.match(away.stderr, /the cluster's description could not be read from https:\/\/127\.0\.0\.1:1: /);
  });

  it('as the node of orchlet up gets a token of its own, and another kubeconfig where the server moved', async () => {
    const folder = mkdtempSync(join(directory, 'agent-'));
    const { bootstrapKubeconfig, kubeconfig } = await admitOwnNode(folder, plane);
    const token = /token: (\S+)/.exec(readFileSync(bootstrapKubeconfig, 'utf8'))?.[1] ?? '';
    const secret = await plane.client.get(secrets, 'kube-system', `bootstrap-token-${token.split('.')[0]}`);
    assert.equal(secret['type'], 'bootstrap.kubernetes.io/token');
    writeFileSync(kubeconfig, plane.kubeconfig.replaceAll(String(plane.port), '1'));
    await admitOwnNode(folder, plane);
    assert.equal(existsSync(kubeconfig), false, 'it named another server');
  });

  it('takes pods again after a stop that was interrupted, unless a user had cordoned it', async () => {
    for (const [name, value, cordoned] of [
      ['open', 'open', undefined],
      ['cordoned', 'cordoned', true],
    ] as const) {
      const taints = [
        { key: 'orchlet.local/stopping', value, effect: 'NoSchedule' },
        { key: 'mine', effect: 'NoSchedule' },
      ];
      await plane.client.create(nodes, '', {
        apiVersion: 'v1',
        kind: 'Node',
        metadata: { name },
        spec: { unschedulable: true, taints },
      } as unknown as KubeObject);
      await openNode(plane.client, name);
      await openNode(plane.client, name);
      const { spec } = (await plane.client.get(nodes, '', name)) as unknown as {
        readonly spec: { readonly unschedulable?: boolean; readonly taints: readonly { readonly key: string }[] };
      };
      assert.equal(spec.unschedulable, cordoned, name);
      assert.ok(spec.taints.some(({ key }) => key === 'mine'));
      assert.ok(!spec.taints.some(({ key }) => key === 'orchlet.local/stopping'));
    }
  });
});
