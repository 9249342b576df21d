/**
 * Tests backups of a control plane on etcd: one archive of a running cluster, restored to another etcd, to the same one after
 * its keys were lost, and to a database; scheduled backups, and an etcd that the control plane runs itself.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { connectEtcd } from '../../controlplane/storage/etcd/etcd-client.ts';
import { etcdMissing, EtcdProcess } from '../etcd-process.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { orchlet } from '../unit/cli/command-run.ts';
import { until } from '../until.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { freePort } from './free-port.ts';

const QUIET = ['--controllers=-*', '--scheduler=false'];
const DEFINITION = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`;

describe('orchlet backup of a control plane on etcd', { skip: etcdMissing, timeout: 300_000 }, () => {
  const directory = temporaryFolder();
  const archive = join(directory, 'cluster.tgz');
  const encryption = join(directory, 'encryption.yaml');
  const encrypted = ['--encryption-provider-config', encryption];
  let etcd: EtcdProcess;
  let plane: ControlPlaneProcess;
  let uid = '';

  const uidOf = (served: ControlPlaneProcess): string =>
    served.kubectl(['get', 'configmap', 'kept', '-o', 'jsonpath={.metadata.uid}']).stdout;

  before(async () => {
    const secret = Buffer.alloc(32, 7).toString('base64');
    const providers = `[{aesgcm: {keys: [{name: key1, secret: ${secret}}]}}, {identity: {}}]`;
    const kind = 'apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n';
    writeFileSync(encryption, `${kind}resources: [{resources: [secrets], providers: ${providers}}]\n`);
    etcd = await EtcdProcess.start();
    plane = await ControlPlaneProcess.start([...QUIET, '--etcd-servers', etcd.url, ...encrypted]);
    plane.kubectl(['create', 'configmap', 'kept', '--from-literal', 'a=b']);
    plane.kubectl(['create', 'secret', 'generic', 'hidden', '--from-literal', 'word=swordfish']);
    assert.equal(plane.kubectl(['apply', '-f', '-'], { input: DEFINITION }).code, 0);
    plane.kubectl(['wait', '--for=condition=Established', 'crd/widgets.example.com']);
    const widget = 'apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w1}\nspec: {size: 3}\n';
    assert.equal(plane.kubectl(['apply', '-f', '-'], { input: widget }).code, 0);
    uid = uidOf(plane);
    assert.match(uid, /^[0-9a-f-]{36}$/);
  });
  after(async () => {
    await plane.stop();
    await etcd.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  const assertRestored = (served: ControlPlaneProcess): void => {
    assert.equal(uidOf(served), uid);
    const word = served.kubectl(['get', 'secret', 'hidden', '-o', 'jsonpath={.data.word}']).stdout;
    assert.equal(Buffer.from(word, 'base64').toString(), 'swordfish');
    assert.equal(served.kubectl(['get', 'widgets', 'w1', '-o', 'jsonpath={.spec.size}']).stdout, '3');
    const made = served.kubectl(['create', 'configmap', 'new']);
    assert.equal(made.code, 0, made.stderr);
  };

  it('writes one archive while the control plane runs, and names what it lacks', async () => {
    const without = await orchlet(['backup', archive, '--data-dir', plane.directory]);
    assert.equal(without.code, 1);
    assert.match(without.stderr, /has no database: give the --etcd-servers of its control plane/);
    const locked = await orchlet(['backup', archive, '--data-dir', plane.directory, '--etcd-servers', etcd.url]);
    assert.equal(locked.code, 1);
    assert.match(locked.stderr, /secrets\/default\/hidden/);
    const wrong = ['--etcd-servers', etcd.url, '--etcd-prefix', '/other'];
    const empty = await orchlet(['backup', archive, '--data-dir', plane.directory, ...wrong]);
    assert.match(empty.stderr, /has no objects below \/other\/: give its --etcd-prefix/);
    const done = await orchlet([
      ...['backup', archive, '--data-dir', plane.directory, '--etcd-servers', etcd.url, ...encrypted],
    ]);
    assert.equal(done.code, 0, done.stderr);
    assert.match(done.stdout, /holds the control plane of .*: \d+ objects at revision \d+\n$/);
    // The kubeconfig in the archive names this one.
    await plane.stop();
  });

  it('is restored to another etcd, with larger revisions and the same keys', async () => {
    const other = await EtcdProcess.start();
    const data = join(directory, 'other');
    mkdirSync(data);
    try {
      const restored = await orchlet([
        ...[
          'restore',
          archive,
          '--data-dir',
          data,
          '--etcd-servers',
          other.url,
          '--count-revisions=false',
          ...encrypted,
        ],
      ]);
      assert.equal(restored.code, 0, restored.stderr);
      assert.match(restored.stderr, /warning: the revisions of etcd are \d{6,} below/);
      const again = ['restore', archive, '--data-dir', data, '--etcd-servers', other.url, ...encrypted];
      assert.match((await orchlet(again)).stderr, /has keys below \/registry\/ already/);
      const served = await ControlPlaneProcess.start([...QUIET, '--etcd-servers', other.url, ...encrypted], data);
      try {
        assertRestored(served);
      } finally {
        await served.stop();
      }
    } finally {
      await other.remove();
    }
  });

  it('is restored to a database', async () => {
    const data = join(directory, 'database');
    const restored = await orchlet(['restore', archive, '--data-dir', data]);
    assert.equal(restored.code, 0, restored.stderr);
    const served = await ControlPlaneProcess.start([...QUIET, ...encrypted], data);
    try {
      assertRestored(served);
    } finally {
      await served.stop();
    }
  });

  it('is restored to the same etcd, whose revision clients have seen already', async () => {
    const client = await connectEtcd({ servers: [etcd.url], tls: {} });
    await client.deleteBelow('/registry/');
    const before = await client.revision();
    const args = ['restore', archive, '--data-dir', plane.directory, '--etcd-servers', etcd.url, ...encrypted];
    const restored = await orchlet(args);
    assert.equal(restored.code, 0, restored.stderr);
    assert.equal(restored.stderr, '');
    const written = (await client.revision()) - before;
    assert.ok(written < 1000, `${written} writes were made`);
    client.close();
    await plane.launch();
    assertRestored(plane);
  });

  it('is written by the schedule, also of an etcd that the control plane runs', async () => {
    const backups = join(directory, 'backups');
    const [clients, peers] = [await freePort(), await freePort()];
    const served = await ControlPlaneProcess.start([
      ...[...QUIET, '--etcd=embedded', '--etcd-client-port', String(clients), '--etcd-peer-port', String(peers)],
      ...['--backup-schedule', '* * * * * *', '--backup-dir', backups],
    ]);
    try {
      served.kubectl(['create', 'configmap', 'kept']);
      const name = await until('a backup', () => readdirSync(backups).find((file) => file.endsWith('.tgz')));
      assert.match(name, /^orchlet-\d{8}T\d{6}Z\.tgz$/);
      const file = join(directory, 'own.tgz');
      const done = await orchlet(['backup', file, '--data-dir', served.directory]);
      assert.equal(done.code, 0, done.stderr);
    } finally {
      await served.stop();
    }
  });
});
