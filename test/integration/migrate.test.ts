/**
 * Tests `orchlet migrate` with a real etcd, which holds what a kube-apiserver 1.36.2 has written there: to the database and
 * back, over TLS, encrypted, and what is refused.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createProtobufCodec } from '../../api/codec/protobuf.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { etcdKeys } from '../../controlplane/storage/etcd/keys.ts';
import { copyToEtcd, type EtcdLayout } from '../../controlplane/storage/etcd/transfer.ts';
import { etcdValues } from '../../controlplane/storage/etcd/values.ts';
import { openMemoryStorage } from '../../controlplane/storage/memory.ts';
import { encodeObject } from '../../controlplane/storage/object-bytes.ts';
import { plainValues } from '../../controlplane/storage/value-transformer.ts';
import { connectEtcd, type EtcdClient, EtcdError } from '../../controlplane/storage/etcd/etcd-client.ts';
import { orchlet } from '../unit/cli/command-run.ts';
import { until } from '../until.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { freePort } from './free-port.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const RECORDED = join(import.meta.dirname, '../unit/controlplane/storage/etcd/recorded');
const recorded = readFileSync(join(RECORDED, 'keys.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as { readonly key: string; readonly value: string; readonly lease?: unknown });
const STATE = /^\/registry\/(ranges|masterleases|peerserverleases)\//;
const objects = recorded.filter(({ key }) => !STATE.test(key));
const missing = spawnSync('etcd', ['--version']).error === undefined ? false : 'etcd is not installed';

describe('orchlet migrate', { skip: missing }, () => {
  const directory = temporaryFolder();
  const data = join(directory, 'data');
  let server: ChildProcess;
  let url = '';
  let tls: readonly string[] = [];
  let client: EtcdClient;

  const contents = async (prefix: string): Promise<Map<string, Buffer>> => {
    const found = new Map<string, Buffer>();
    for await (const page of client.pages(prefix)) for (const { key, value } of page) found.set(key, value);
    return found;
  };
  const migrate = (...args: readonly string[]): ReturnType<typeof orchlet> =>
    orchlet(['migrate', '--data-dir', data, '--etcd-servers', url, ...tls, ...args]);

  before(async () => {
    const files = makeCertificates(directory);
    const [port, peers] = [await freePort(), await freePort()];
    url = `https://127.0.0.1:${port}`;
    tls = ['--etcd-cafile', files.ca, '--etcd-certfile', files.cert, '--etcd-keyfile', files.key];
    const peer = `http://127.0.0.1:${peers}`;
    const listen = ['--listen-client-urls', url, '--advertise-client-urls', url, '--listen-peer-urls', peer];
    const cluster = ['--initial-advertise-peer-urls', peer, '--initial-cluster', `default=${peer}`];
    const secure = [
      '--cert-file',
      files.cert,
      '--key-file',
      files.key,
      '--client-cert-auth',
      '--trusted-ca-file',
      files.ca,
    ];
    server = spawn('etcd', ['--data-dir', join(directory, 'etcd'), ...listen, ...cluster, ...secure], {
      stdio: 'ignore',
    });
    const [ca, cert, key] = [readFileSync(files.ca), readFileSync(files.cert), readFileSync(files.key)];
    client = await until('etcd to answer', () =>
      connectEtcd({ servers: [url], tls: { ca, cert, key } }).catch((error: unknown) => {
        if (error instanceof EtcdError) return undefined;
        throw error;
      }),
    );
    const lease = await client.grant(600);
    for (const { key: name, value, lease: isLeased } of recorded)
      await client.create(name, Buffer.from(value, 'base64'), isLeased === undefined ? 0 : lease);
  });

  after(async () => {
    client.close();
    server.kill();
    await once(server, 'exit');
    rmSync(directory, { recursive: true, force: true });
  });

  it('copies a cluster to the database, whose control plane serves it', async () => {
    const revision = await client.revision();
    const { code, stdout, stderr } = await migrate('--from', 'etcd', '--to', 'sqlite');
    assert.equal(code, 0, stderr);
    assert.equal(stdout, `${data} has the ${objects.length} objects of ${url}\n`);
    const served = await ControlPlaneProcess.start(['--controllers=-*', '--scheduler=false'], data);
    try {
      const pod = JSON.parse(
        served.kubectl(['get', 'pod', 'pod1', '-n', 'etcdstoragepathtestnamespace', '-o', 'json']).stdout,
      ) as { readonly metadata: { readonly uid: string; readonly resourceVersion: string } };
      assert.match(lineOf('lists.jsonl', '/api/v1/pods'), new RegExp(`"uid":"${pod.metadata.uid}"`));
      assert.ok(Number(pod.metadata.resourceVersion) <= revision);
      assert.equal(served.kubectl(['get', 'widgets', 'w1', '-o', 'jsonpath={.spec.size}']).stdout, '3');
      assert.equal(served.kubectl(['get', 'events', 'ev1', '-o', 'name']).stdout, 'event/ev1\n');
      const made = served.kubectl(['create', 'configmap', 'new', '-o', 'jsonpath={.metadata.resourceVersion}']).stdout;
      assert.ok(Number(made) > revision + 1_000_000, made);
      const running = await migrate('--from', 'sqlite', '--to', 'etcd');
      assert.equal(running.code, 1);
      assert.match(running.stderr, /the control plane of .* runs \(process \d+\): stop it first/);
    } finally {
      await served.stop();
    }
  });

  it('copies the database to etcd with the bytes of kube-apiserver', async () => {
    const full = await migrate('--from', 'sqlite', '--to', 'etcd');
    assert.equal(full.code, 1);
    assert.match(full.stderr, /has keys below \/registry\/ already, such as \/registry\//);

    const { code, stderr } = await migrate(
      ...['--from', 'sqlite', '--to', 'etcd', '--etcd-prefix', '/moved', '--count-revisions=false'],
    );
    assert.equal(code, 0, stderr);
    // The revisions of the database leapt when it was written.
    assert.match(stderr, /warning: the revisions of etcd are \d{6,} below .* --bump-revision \d+ --mark-compacted/);
    const written = await contents('/moved/');
    let same = 0;
    for (const { key, value } of objects) {
      const now = written.get(key.replace('/registry/', '/moved/'));
      assert.ok(now, `${key} is gone`);
      if (now.equals(Buffer.from(value, 'base64'))) same += 1;
    }
    // The control plane has taken the standard roles, services and priority levels for its own, and renewed some of them.
    assert.ok(same > 200, `${same} of ${objects.length} values are as they were`);
    assert.ok(written.has('/moved/configmaps/default/new'));
  });

  it('leaves etcd with a revision above those that clients have seen', async () => {
    const storage = openMemoryStorage({ clock: systemClock, logger: silentLogger });
    const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace: 'default' } } as KubeObject;
    let { revision } = await storage.create('/core/configmaps/default/a', encodeObject(object));
    const target = (await client.revision()) + 300;
    while (revision < target)
      ({ revision } = await storage.update('/core/configmaps/default/a', encodeObject(object), revision));
    const schema = loadSchema();
    const layout: EtcdLayout = {
      etcd: client,
      prefix: '/counted',
      keys: etcdKeys('/counted'),
      values: etcdValues(schema, createProtobufCodec(schema, { writesZeros: true })),
      transformer: plainValues,
      progress: () => undefined,
    };
    const copied = await copyToEtcd(storage, layout, { countsUp: true });
    assert.equal(copied.objects, 1);
    assert.equal(copied.missingRevisions, 0);
    assert.ok((await client.revision()) >= revision);
    assert.deepEqual([...(await contents('/counted/')).keys()], ['/counted/configmaps/default/a']);
    await storage.close();
  });

  it('encrypts both sides by the configuration, and reads neither without it', async () => {
    const config = join(directory, 'encryption.yaml');
    const secret = Buffer.alloc(32, 7).toString('base64');
    const providers = (name: string): string =>
      `[{${name}: {keys: [{name: key1, secret: ${secret}}]}}, {identity: {}}]`;
    const resources = `[{resources: [secrets], providers: ${providers('aesgcm')}}]`;
    const kind = 'apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n';
    writeFileSync(config, `${kind}resources: ${resources}\n`);
    const encrypted = ['--encryption-provider-config', config];

    const over = await migrate(
      ...['--from', 'sqlite', '--to', 'etcd', '--etcd-prefix', '/sealed', '--count-revisions=false', ...encrypted],
    );
    assert.equal(over.code, 0, over.stderr);
    const key = '/sealed/secrets/etcdstoragepathtestnamespace/secret1';
    assert.match((await contents(key)).get(key)?.toString('latin1') ?? '', /^k8s:enc:aesgcm:v1:key1:/);

    const blind = await migrate('--from', 'etcd', '--to', 'sqlite', '--etcd-prefix', '/sealed');
    assert.equal(blind.code, 1);
    assert.match(blind.stderr, /secret1 (is encrypted|cannot be read).*encryption-provider-config/);
    const back = await migrate('--from', 'etcd', '--to', 'sqlite', '--etcd-prefix', '/sealed', ...encrypted);
    assert.equal(back.code, 0, back.stderr);
    const [kept = ''] = readdirSync(data).filter((name) => name.startsWith('before-restore-'));
    assert.ok(existsSync(join(data, kept, 'storage/orchlet.db')));
    assert.deepEqual(
      readdirSync(data).filter((name) => name.startsWith('migrating-')),
      [],
    );
  });

  it('leaves the database alone where etcd cannot be read', async () => {
    await client.create('/broken/pods/default/a', Buffer.from('k8s\0nonsense'));
    const broken = await migrate('--from', 'etcd', '--to', 'sqlite', '--etcd-prefix', '/broken');
    assert.equal(broken.code, 1);
    assert.match(broken.stderr, /\/broken\/pods\/default\/a cannot be read/);
    const empty = await migrate('--from', 'etcd', '--to', 'sqlite', '--etcd-prefix', '/nothing');
    assert.match(empty.stderr, /has no objects below \/nothing\/: give its --etcd-prefix/);
    const nobody = await orchlet([
      'migrate',
      '--from',
      'sqlite',
      '--to',
      'etcd',
      '--etcd-servers',
      'http://127.0.0.1:1',
    ]);
    assert.equal(nobody.code, 1);
    assert.match(nobody.stderr, /etcd at http:\/\/127\.0\.0\.1:1 failed/);
    assert.equal((await migrate('--from', 'sqlite', '--to', 'sqlite')).code, 2);
  });
});

function lineOf(file: string, path: string): string {
  const lines = readFileSync(join(RECORDED, file), 'utf8').split('\n');
  return lines.find((line) => line.startsWith(`{"path":"${path}"`)) ?? '';
}

function makeCertificates(directory: string): { readonly ca: string; readonly cert: string; readonly key: string } {
  const [ca, caKey, cert, key] = ['ca.crt', 'ca.key', 'etcd.crt', 'etcd.key'].map((name) => join(directory, name)) as [
    string,
    string,
    string,
    string,
  ];
  const openssl = (...args: readonly string[]): void => void execFileSync('openssl', args, { stdio: 'ignore' });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  openssl('req', '-x509', ...newKey, '-keyout', caKey, '-out', ca, '-subj', '/CN=etcd-ca');
  const names = ['-addext', 'subjectAltName=IP:127.0.0.1'];
  openssl(
    'req',
    '-x509',
    ...newKey,
    '-CA',
    ca,
    '-CAkey',
    caKey,
    '-keyout',
    key,
    '-out',
    cert,
    '-subj',
    '/CN=etcd',
    ...names,
  );
  return { ca, cert, key };
}
