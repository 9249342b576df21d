import assert from 'node:assert/strict';
import { unlinkSync, writeFileSync } from 'node:fs';
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { createFileSource } from '../../../../agent/sources/file-source.ts';
import { type PodUpdate, createPodConfig, diff } from '../../../../agent/sources/pod-config.ts';
import type { PodSource } from '../../../../agent/sources/pod-source.ts';
import { StaticObjects } from '../../../../agent/sources/static-objects.ts';
import { type PodReader, readManifest } from '../../../../agent/sources/static-pod.ts';
import { lineOf } from '../../../../api/codec/field-lines.ts';
import { createYamlThread } from '../../../../api/codec/yaml-thread.ts';
import { createSubmittedPods } from '../../../../agent/sources/submitted-source.ts';
import { createUrlSource } from '../../../../agent/sources/url-source.ts';
import { createDialer, type Dialer } from '../../../../api/http/dialer.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FieldError } from '../../../../api/meta/field-error.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const yaml = createYamlThread({ clock: new FakeClock() });
const reader: PodReader = { read: (value) => ({ pod: value as Pod, warnings: [], errors: [] }) };
const manifest = (name: string, image = 'a'): string =>
  `apiVersion: v1\nkind: Pod\nmetadata:\n  name: ${name}\nspec:\n  containers:\n  - name: main\n    image: ${image}\n`;
const shown = (pods: readonly Pod[]): string[] =>
  pods.map((pod) => `${pod.metadata.name} ${pod.spec.containers[0]?.image}`);

async function setUp(t: TestContext) {
  const root = temporaryFolder();
  const clock = new FakeClock();
  const stop = new AbortController();
  const seen: string[][] = [];
  const complaints: string[] = [];
  const statics = new StaticObjects();
  const runs: Promise<void>[] = [];
  const run = (source: PodSource): void =>
    void runs.push(source.run(stop.signal, (pods) => void seen.push(shown(pods))));
  t.after(async () => {
    stop.abort();
    await Promise.all(runs);
  });
  const directory = join(root, 'manifests');
  await mkdir(directory);
  const file = (path = directory): PodSource =>
    createFileSource({
      path,
      nodeName: 'Node',
      checkMs: 20_000,
      clock,
      logger: silentLogger,
      yaml,
      reader,
      onBadManifest: (_file, message) => void complaints.push(message),
      statics,
    });
  /** Waits until the source reports these pods. */
  const until = async (wanted: string[]): Promise<void> => {
    for (;;) {
      if (JSON.stringify(seen.at(-1)) === JSON.stringify(wanted)) return;
      await clock.advance(1000);
    }
  };
  /** Runs one complete scan of the source. */
  const poll = async (): Promise<void> => {
    for (const before = seen.length; seen.length < before + 2;) await clock.advance(1000);
  };
  return { root, directory, clock, seen, complaints, statics, run, file, until, poll };
}

describe('manifests in a folder', () => {
  it('are pods of this node; dot-files and folders are none', async (t) => {
    const { directory, run, file, until } = await setUp(t);
    await writeFile(join(directory, 'b.yaml'), manifest('b'));
    await writeFile(
      join(directory, 'a.json'),
      JSON.stringify({ kind: 'Pod', metadata: { name: 'a' }, spec: { containers: [{ name: 'm', image: 'j' }] } }),
    );
    await writeFile(join(directory, '.hidden.yaml'), manifest('hidden'));
    await mkdir(join(directory, 'folder'));
    run(file());
    await until(['a-node j', 'b-node a']);
  });

  it('are followed: changed, added, removed, swapped', async (t) => {
    const { directory, run, file, until } = await setUp(t);
    run(file());
    await until([]);
    await writeFile(join(directory, 'a'), manifest('a'));
    await until(['a-node a']);
    await writeFile(join(directory, '.a.new'), manifest('a', 'b'));
    await rename(join(directory, '.a.new'), join(directory, 'a'));
    await until(['a-node b']);
    await rm(join(directory, 'a'));
    await until([]);
  });

  it('that are removed and created again at once are gone in between, those that a rename replaces are not', async (t) => {
    const { clock, directory, seen, run, file, until, poll } = await setUp(t);
    const path = join(directory, 'a');
    await writeFile(path, manifest('a'));
    run(file());
    await until(['a-node a']);
    seen.length = 0;
    await writeFile(join(directory, '.a.new'), manifest('a'));
    await rename(join(directory, '.a.new'), path);
    // The notification has arrived once the next file is reported.
    await writeFile(join(directory, 'b'), manifest('b'));
    await until(['a-node a', 'b-node a']);
    assert.ok(
      seen.every((pods) => pods.includes('a-node a')),
      JSON.stringify(seen),
    );
    await poll();
    seen.length = 0;
    unlinkSync(path);
    writeFileSync(path, manifest('a'));
    const isGone = (): boolean => seen.some((pods) => !pods.includes('a-node a'));
    for (let waited = 0; waited < 10_000 && !isGone(); waited += 5) {
      // The kernel's notification comes in real time, and the scan after it in virtual time.
      await new Promise((resolve) => setTimeout(resolve, 5));
      await clock.advance(10);
    }
    assert.ok(isGone(), JSON.stringify(seen));
    assert.deepEqual(seen.at(-1), ['a-node a', 'b-node a']);
    seen.length = 0;
    await poll();
    assert.ok(!isGone(), 'once');
  });

  it('are followed at once by a run that came after another one', async (t) => {
    const { clock, seen, directory, file } = await setUp(t);
    const source = file();
    for (const name of ['a', 'b']) {
      const stop = new AbortController();
      const running = source.run(stop.signal, (pods) => void seen.push(shown(pods)));
      await clock.advance(0);
      while (seen.length === 0) await clock.advance(1);
      seen.length = 0;
      await writeFile(join(directory, name), manifest(name));
      // The rescan runs after 20 s, so earlier changes are detected by the watch.
      for (let ms = 0; ms < 10_000 && seen.length === 0; ms += 100) {
        await new Promise((resolve) => setTimeout(resolve, 2));
        await clock.advance(100);
      }
      assert.match(seen.at(-1)?.join() ?? '', new RegExp(`${name}-node`), `run of ${name}`);
      stop.abort();
      await running;
      seen.length = 0;
    }
  });

  it('keep their last good pod while they are half written or empty', async (t) => {
    const { directory, run, file, until, poll, seen, complaints } = await setUp(t);
    await writeFile(join(directory, 'a'), manifest('a'));
    run(file());
    await until(['a-node a']);
    for (const half of ['', 'apiVersion: v1\nkind: Pod\nmetadata: {', 'kind: ConfigMap\n']) {
      await writeFile(join(directory, 'a'), half);
      await poll();
      assert.deepEqual(seen.at(-1), ['a-node a']);
    }
    assert.equal(complaints.length, 3);
    await writeFile(join(directory, 'a'), manifest('a', 'b'));
    await until(['a-node b']);
  });

  it('with one name run once: the first file has it', async (t) => {
    const { directory, run, file, until, complaints } = await setUp(t);
    await writeFile(join(directory, '1'), manifest('a', 'first'));
    await writeFile(join(directory, '2'), manifest('a', 'second'));
    run(file());
    await until(['a-node first']);
    assert.match(complaints[0] ?? '', /the pod default\/a-node in .*2, because .*1 has it already/);
  });

  it('have each fault reported once while it lasts, also if a file has several', async (t) => {
    const { directory, run, file, until, poll, complaints } = await setUp(t);
    const both = `${manifest('a')}\n---\n${manifest('b')}\n`;
    await writeFile(join(directory, '1'), both);
    await writeFile(join(directory, '2'), both);
    run(file());
    await until(['a-node a', 'b-node a']);
    for (let scan = 0; scan < 3; scan += 1) await poll();
    assert.equal(complaints.length, 2, complaints.join('\n'));
    await rm(join(directory, '2'));
    await poll();
    await writeFile(join(directory, '2'), both);
    await poll();
    assert.equal(complaints.length, 4, complaints.join('\n'));
  });

  it('are found again when the directory is deleted and recreated', async (t) => {
    const { directory, run, file, until } = await setUp(t);
    await writeFile(join(directory, 'a'), manifest('a'));
    run(file());
    await until(['a-node a']);
    await rm(directory, { recursive: true });
    await until([]);
    await mkdir(directory);
    await writeFile(join(directory, 'b'), manifest('b'));
    await until(['b-node a']);
  });

  it('are followed through links that are swapped, as a config map is mounted', async (t) => {
    const { directory, run, file, until } = await setUp(t);
    const publish = async (generation: string, manifests: Readonly<Record<string, string>>): Promise<void> => {
      await mkdir(join(directory, generation));
      for (const [name, text] of Object.entries(manifests)) await writeFile(join(directory, generation, name), text);
      await symlink(generation, join(directory, '..data_tmp'));
      await rename(join(directory, '..data_tmp'), join(directory, '..data'));
    };
    await publish('..1', { 'a.yaml': manifest('a'), 'b.yaml': manifest('b') });
    for (const name of ['a.yaml', 'b.yaml']) await symlink(join('..data', name), join(directory, name));
    run(file());
    await until(['a-node a', 'b-node a']);
    await publish('..2', { 'a.yaml': manifest('a', 'new') });
    // The link of b is dangling until it is removed.
    await until(['a-node new']);
  });

  it('of a folder behind a link are those of the folder that it leads to now', async (t) => {
    const { root, directory, run, file, until } = await setUp(t);
    await writeFile(join(directory, 'a'), manifest('a'));
    const [other, link] = [join(root, 'other'), join(root, 'link')];
    await symlink(directory, link);
    run(file(link));
    await until(['a-node a']);
    await mkdir(other);
    await writeFile(join(other, 'b'), manifest('b'));
    await symlink(other, `${link}.new`);
    await rename(`${link}.new`, link);
    await until(['b-node a']);
    await writeFile(join(other, 'c'), manifest('c'));
    await until(['b-node a', 'c-node a']);
  });

  it('may be one file alone', async (t) => {
    const { directory, run, file, until } = await setUp(t);
    const path = join(directory, 'only.yaml');
    await writeFile(path, `${manifest('a')}---\n${manifest('b')}`);
    run(file(path));
    await until(['a-node a', 'b-node a']);
  });
});

describe('a static pod', () => {
  const read = async (text: string, with_: PodReader = reader): Promise<Pod | undefined> => {
    const options = { source: 'file', origin: 'f', nodeName: 'Node', yaml } as const;
    return (await readManifest(Buffer.from(text), { ...options, reader: with_ })).pods[0];
  };

  it('has a uid of its content and place, and stays on its node', async () => {
    const [one, same, other] = [await read(manifest('a')), await read(manifest('a')), await read(manifest('a', 'b'))];
    assert.equal(one?.metadata.uid, same?.metadata.uid);
    assert.notEqual(one?.metadata.uid, other?.metadata.uid);
    assert.equal(one?.spec.nodeName, 'Node');
    assert.deepEqual(one?.spec.tolerations, [{ operator: 'Exists', effect: 'NoExecute' }]);
    assert.equal(one?.metadata.annotations?.['kubernetes.io/config.source'], 'file');
  });

  it('may stand in a document whose marker has a comment', async () => {
    const text = Buffer.from(`${manifest('a')}\n--- # the other one\n${manifest('b')}\n`);
    const { pods } = await readManifest(text, { source: 'file', origin: 'f', nodeName: 'n', yaml, reader });
    assert.deepEqual(
      pods.map(({ metadata }) => metadata.name),
      ['a-n', 'b-n'],
    );
  });

  it('has the same uid whatever the order of the members of its manifest is', async () => {
    const one = await read(
      '{"kind":"Pod","metadata":{"name":"a","labels":{"x":"1","y":"2"}},"spec":{"containers":[]}}',
    );
    const other = await read(
      '{"spec":{"containers":[]},"metadata":{"labels":{"y":"2","x":"1"},"name":"a"},"kind":"Pod"}',
    );
    assert.equal(one?.metadata.uid, other?.metadata.uid);
  });

  it('tolerates taints that evict once, and not at all where it comes from a URL', async () => {
    const toleration = { operator: 'Exists', effect: 'NoExecute' };
    const text = JSON.stringify({
      kind: 'Pod',
      metadata: { name: 'a' },
      spec: { containers: [], tolerations: [toleration] },
    });
    assert.deepEqual((await read(text))?.spec.tolerations, [toleration]);
    const options = { source: 'http', origin: 'u', nodeName: 'n', yaml, reader } as const;
    const [pod] = (await readManifest(Buffer.from(manifest('a')), options)).pods;
    assert.equal(pod?.spec.tolerations, undefined);
  });

  it('has a uid, name and namespace that are names of directories, and no paths', async () => {
    for (const metadata of [
      { name: 'a', uid: '../../../etc' },
      { name: 'a', uid: '..' },
      { name: 'a', uid: 'a/b' },
      { name: 'a', uid: 'a\0b' },
      { name: 'a', namespace: '..' },
      { name: '../a' },
    ])
      await assert.rejects(read(JSON.stringify({ kind: 'Pod', metadata, spec: { containers: [] } })), {
        name: 'ManifestError',
        message: /metadata\.(uid|name|namespace): .* must consist of/,
      });
  });

  it('with any number of errors is refused at once, with the first of them', async () => {
    const errors = Array.from(
      { length: 20_000 },
      (_, index) => new FieldError('FieldValueInvalid', `spec.containers[${index}].name`, 'x', 'no'),
    );
    const broken: PodReader = { read: (value) => ({ pod: value as Pod, warnings: [], errors }) };
    const text = `kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n${'  - name: x\n'.repeat(20_000)}`;
    const before = process.cpuUsage();
    await assert.rejects(read(text, broken), /; and 19980 more errors$/);
    // Processor time, because other tests of a busy host take their share of the time.
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 10_000_000);
  });

  it('may name nothing that only an API server has', async () => {
    const spec = {
      serviceAccountName: 's',
      containers: [{ name: 'c', envFrom: [{ secretRef: { name: 'x' } }] }],
      volumes: [{ name: 'v', configMap: { name: 'x' } }],
    };
    await assert.rejects(
      read(JSON.stringify({ kind: 'Pod', metadata: { name: 'a' }, spec })),
      /may not use .*serviceAccountName.*config maps.*envFrom/,
    );
    const podCertificate = { signerName: 'example.com/x', keyType: 'ED25519', credentialBundlePath: 'c' };
    const projecting = { ...spec, volumes: [{ name: 'w', projected: { sources: [{ podCertificate }] } }] };
    await assert.rejects(
      read(JSON.stringify({ kind: 'Pod', metadata: { name: 'a' }, spec: projecting })),
      /projected API objects \(volume w\)/,
    );
    const { containers } = spec;
    for (const [more, refusal] of [
      [{ imagePullSecrets: [{ name: 's' }] }, /may not use .*imagePullSecrets/],
      [{ volumes: [{ name: 'd', csi: { driver: 'd.example.com' } }] }, /may not use .*CSI drivers \(volume d\)/],
    ] as const)
      await assert.rejects(
        read(JSON.stringify({ kind: 'Pod', metadata: { name: 'a' }, spec: { containers, ...more } })),
        refusal,
      );
  });

  it('names the line of the error, in the right item of a list', () => {
    const text = Buffer.from(
      'metadata:\n  name: a\nspec:\n  containers:\n  - name: one\n    env:\n    - name: X\n  - name: two\n    image: b\n    ports:\n    - containerPort: 1\n    - containerPort: x\n',
    );
    const lines = text.toString('utf8').split('\n');
    assert.equal(lineOf(lines, 'spec.containers[1].ports[1].containerPort'), 'line 12: ');
    assert.equal(lineOf(lines, 'spec.containers[0].image'), 'line 5: ');
    assert.equal(lineOf(lines, 'metadata.name'), 'line 2: ');
    assert.equal(lineOf(lines, 'nothing'), '');
  });
});

describe('manifests at a URL', () => {
  it('are requested with the headers and the last ETag, and stay while the server fails', async (t) => {
    const { run, until, clock, seen } = await setUp(t);
    const state = { body: manifest('a'), status: 200, requests: 0, tags: [] as (string | undefined)[], token: '' };
    const server = createServer((request, response) => {
      state.requests += 1;
      state.tags.push(request.headers['if-none-match']);
      state.token = String(request.headers['x-token']);
      const etag = `"${state.body.length}"`;
      if (request.headers['if-none-match'] === etag && state.status === 200) response.writeHead(304).end();
      else response.writeHead(state.status, { etag }).end(state.body);
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    t.after(() => server.close().closeAllConnections());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    run(
      createUrlSource({
        url,
        headers: { 'X-Token': 'secret' },
        checkMs: 20_000,
        nodeName: 'n',
        clock,
        logger: silentLogger,
        yaml,
        reader,
      }),
    );
    await until(['a-n a']);
    assert.deepEqual([state.tags[0], state.token], [undefined, 'secret']);
    const asked = async (): Promise<void> => {
      for (const before = state.requests; state.requests < before + 2;) await clock.advance(5000);
    };
    await asked();
    assert.equal(state.tags.at(-1), `"${manifest('a').length}"`);
    assert.equal(seen.length, 1);
    state.status = 500;
    await asked();
    assert.equal(seen.length, 1);
    state.status = 200;
    state.body = JSON.stringify({ kind: 'PodList', items: [] });
    await until([]);
  });
});

describe('redirects of a manifest URL', () => {
  it('are followed on the same origin with the headers, and not to an address of this host on another', async (t) => {
    const { run, until, clock } = await setUp(t);
    const state = { location: '/moved', token: '', other: 0 };
    const other = createServer((_request, response) => {
      state.other += 1;
      response.end(manifest('stranger'));
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    const server = createServer((request, response) => {
      if (request.url === '/moved') {
        state.token = String(request.headers['x-token']);
        response.end(manifest('moved'));
      } else response.writeHead(302, { location: state.location }).end();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    t.after(() => {
      for (const one of [server, other]) one.close().closeAllConnections();
    });
    const failures: string[] = [];
    const logger = { ...silentLogger, error: ({ err }: { err?: unknown }) => void failures.push(String(err)) };
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const common = { headers: { 'X-Token': 'secret' }, checkMs: 1000, nodeName: 'n', clock, yaml, reader };
    run(createUrlSource({ ...common, url, logger }));
    await until(['moved-n a']);
    assert.equal(state.token, 'secret');
    state.location = `http://localhost:${(other.address() as AddressInfo).port}/`;
    while (failures.length === 0) await clock.advance(1000);
    assert.match(failures[0] ?? '', /address not allowed/);
    assert.equal(state.other, 0);
  });

  it('to another host carry neither the headers nor the password of the URL', async (t) => {
    const { run, until, clock } = await setUp(t);
    const asked: (readonly [purpose: string, host: string, token: string, password: string])[] = [];
    const server = createServer(({ url }, response) => {
      if (url === '/pods') response.end(manifest('moved'));
      else
        response.writeHead(302, { location: url === '/' ? 'http://other.example/x' : 'http://one.example/pods' }).end();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    t.after(() => server.close().closeAllConnections());
    const { port } = server.address() as AddressInfo;
    const real = createDialer();
    const dialer: Pick<Dialer, 'request'> = {
      request: (options, onResponse) => {
        const headers = options.headers as Readonly<Record<string, string>>;
        asked.push([options.purpose, options.host, headers['X-Token'] ?? '', String(options.auth ?? '')]);
        return real.request({ ...options, purpose: 'configured', host: '127.0.0.1', port }, onResponse);
      },
    };
    const common = { headers: { 'X-Token': 'secret' }, checkMs: 1000, nodeName: 'n', clock, yaml, reader, dialer };
    run(createUrlSource({ ...common, url: 'http://user:word@one.example/', logger: silentLogger }));
    await until(['moved-n a']);
    assert.deepEqual(asked.slice(0, 3), [
      ['configured', 'one.example', 'secret', 'user:word'],
      ['manifest-redirect', 'other.example', '', ''],
      ['configured', 'one.example', 'secret', ''],
    ]);
  });
});

describe('submitted pods', () => {
  it('survive a restart, are replaced by name, and are removed', async (t) => {
    const { root, clock } = await setUp(t);
    const options = { directory: join(root, 'submitted'), nodeName: 'n', clock, logger: silentLogger, yaml, reader };
    const first = createSubmittedPods(options);
    await first.submit(Buffer.from(manifest('a')));
    const stored = await first.submit(Buffer.from(manifest('a', 'b')));
    const again = createSubmittedPods(options);
    const stop = new AbortController();
    const given = Promise.withResolvers<readonly Pod[]>();
    const running = again.run(stop.signal, given.resolve);
    const pods = await given.promise;
    assert.deepEqual(shown(pods), ['a-n b']);
    assert.equal(pods[0]?.metadata.uid, stored.metadata.uid);
    await again.remove('default', 'a-n');
    assert.deepEqual(again.list(), []);
    await assert.rejects(again.remove('default', '../a'), { code: 404 });
    await assert.rejects(again.submit(Buffer.from(`${manifest('a')}---\n${manifest('b')}`)), { code: 400 });
    stop.abort();
    await running;
  });
});

describe('the mux of sources', () => {
  const pod = (uid: string, more: Partial<Pod['metadata']> = {}, image = 'a'): Pod => ({
    metadata: { name: uid, namespace: 'ns', uid, ...more },
    spec: { containers: [{ name: 'c', image }] },
  });
  const of = (...pods: Pod[]): Map<string, Pod> => new Map(pods.map((each) => [each.metadata.uid, each]));
  const types = (updates: readonly PodUpdate[]): string[] =>
    updates.map(({ type, pods }) => `${type} ${pods.map(({ metadata }) => metadata.uid).join(' ')}`);

  it('reports pods that were removed, added, changed, marked for deletion and reconciled', () => {
    const before = of(pod('gone'), pod('same'), pod('changed'), pod('ends'), pod('reported'));
    const next = [
      pod('late', { creationTimestamp: '2026-01-02T00:00:00Z' }),
      pod('early', { creationTimestamp: '2026-01-01T00:00:00Z' }),
      pod('same', { annotations: { 'kubernetes.io/config.seen': 'later' } }),
      pod('changed', {}, 'b'),
      pod('ends', { deletionTimestamp: '2026-01-01T00:00:00Z' }),
      { ...pod('reported'), status: { phase: 'Failed' } },
    ];
    assert.deepEqual(types(diff('api', before, next)), [
      'remove gone',
      'add early late',
      'update changed',
      'delete ends',
      'reconcile reported',
    ]);
  });

  it('accepts no pod of any source whose uid, or name of a container or volume, would be a path', async () => {
    const seen: string[] = [];
    const stop = new AbortController();
    const pod = (uid: string, spec: object = {}): Pod =>
      ({ metadata: { name: 'a', namespace: 'n', uid }, spec: { containers: [], ...spec } }) as unknown as Pod;
    const path = { name: '../../x' };
    const bad = [
      ...['containers', 'initContainers', 'ephemeralContainers', 'volumes'].map((field) => ({ [field]: [path] })),
      ...[{ containers: 'x' }, { volumes: [null] }, { containers: [{ name: 7 }] }],
    ].map((spec, at) => pod(`bad${at}`, spec));
    const source: PodSource = {
      name: 'api',
      run: async (_signal, onPods) => {
        onPods([pod('../x'), ...bad, pod('good', { containers: [{ name: 'c' }], volumes: [{ name: 'v' }] })]);
        stop.abort();
      },
    };
    const config = createPodConfig({ sources: [source], clock: new FakeClock(), logger: silentLogger });
    await config.run(stop.signal, ({ type, pods }) =>
      seen.push(`${type} ${pods.map((one) => one.metadata.uid).join()}`),
    );
    assert.deepEqual(seen, ['add good']);
  });

  it('annotates a pod with the time at which it was first seen, whatever the pod itself claims', async () => {
    const clock = new FakeClock();
    const first = new Date(clock.now()).toISOString().replace('Z', '000000Z');
    const seen: string[] = [];
    const stop = new AbortController();
    const claimed = { annotations: { 'kubernetes.io/config.seen': 'never' } };
    const source: PodSource = {
      name: 'api',
      run: async (_signal, onPods) => {
        onPods([pod('a', claimed)]);
        await clock.advance(5_000);
        onPods([pod('a', { ...claimed, labels: { changed: 'yes' } })]);
        stop.abort();
      },
    };
    const config = createPodConfig({ sources: [source], clock, logger: silentLogger });
    await config.run(stop.signal, ({ type, pods: [one] }) =>
      seen.push(`${type} ${one?.metadata.annotations?.['kubernetes.io/config.seen']}`),
    );
    assert.deepEqual(seen, [`add ${first}`, `update ${first}`]);
  });

  it('is ready when each source has spoken, and keeps the pods of one that broke', async () => {
    const clock = new FakeClock();
    const updates: string[] = [];
    let speak: (pods: readonly Pod[]) => void = () => undefined;
    const quiet: PodSource = {
      name: 'api',
      run: (signal, onPods) => {
        speak = onPods;
        return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
      },
    };
    const broken: PodSource = {
      name: 'file',
      run: async (_signal, onPods) => {
        onPods([pod('a'), { ...pod('b'), metadata: { name: 'a', namespace: 'ns', uid: 'twin' } }]);
        throw new Error('broken');
      },
    };
    const config = createPodConfig({ sources: [quiet, broken], clock, logger: silentLogger });
    const stop = new AbortController();
    const running = config.run(stop.signal, (update) => updates.push(...types([update])));
    await clock.advance(12_000);
    assert.deepEqual(updates, ['add a']);
    assert.equal(config.allSourcesReady(), false);
    speak([]);
    assert.equal(config.allSourcesReady(), true);
    stop.abort();
    await running;
  });
});

describe('a manifest', () => {
  it('with more content than its size is not read to its end, and holds up no others', async (t) => {
    const { directory, complaints, run, file, until } = await setUp(t);
    await symlink('/proc/self/maps', join(directory, 'a'));
    await writeFile(join(directory, 'b'), manifest('b'));
    run(file());
    await until(['b-node a']);
    assert.match(complaints.join(), /grows while it is read/);
  });
});
