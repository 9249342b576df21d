/**
 * Tests several control planes on one etcd: what their clients see, what they give out, and an etcd that a kube-apiserver
 * filled.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import type { JsonObject, KubeObject } from '../../api/meta/object.ts';
import { etcdMissing, EtcdProcess } from '../etcd-process.ts';
import { soakEtcd } from '../soak/etcd/run.ts';
import { SoakServer } from '../soak/etcd/servers.ts';
import { until } from '../until.ts';

const NAMESPACE = '/api/v1/namespaces/default';
const QUIET = ['--controllers=-*', '--scheduler=false'];

const service = (name: string, nodePort?: number): object => ({
  metadata: { name },
  spec: { type: 'NodePort', ports: [{ port: 80, ...(nodePort === undefined ? {} : { nodePort }) }] },
});

interface Service {
  readonly metadata?: { readonly name?: string };
  readonly spec: { readonly clusterIP: string; readonly ports: readonly { readonly nodePort: number }[] };
}

describe('two control planes on one etcd', { skip: etcdMissing, timeout: 300_000 }, () => {
  let etcd: EtcdProcess;
  let one: SoakServer;
  let other: SoakServer;

  before(async () => {
    etcd = await EtcdProcess.start();
    const like = await SoakServer.start({ etcd: [etcd.url], more: [...QUIET, '--etcd-prefix', '/keys'] });
    // Both servers start at the same time, on an empty etcd.
    [one, other] = await Promise.all([
      SoakServer.start({ etcd: [etcd.url], more: QUIET, like }),
      SoakServer.start({ etcd: [etcd.url], more: QUIET, like }),
    ]);
    await like.remove();
  });
  after(async () => {
    await one.remove();
    await other.remove();
    await etcd.remove();
  });

  const both = (at: number): SoakServer => (at % 2 === 0 ? one : other);

  it('show each other what they wrote, and accept what the other has just made possible', async () => {
    for (let i = 0; i < 10; i += 1) {
      const [writer, reader] = [both(i), both(i + 1)];
      const namespace = { metadata: { name: `n${i}` } };
      assert.equal((await writer.api.call('POST', '/api/v1/namespaces', namespace)).status, 201);
      const made = await reader.api.call('POST', `/api/v1/namespaces/n${i}/configmaps`, { metadata: { name: 'a' } });
      assert.equal(made.status, 201, JSON.stringify(made.body));
      const list = await writer.api.call('GET', `/api/v1/namespaces/n${i}/configmaps`);
      assert.deepEqual(
        list.body.items?.map(({ metadata }) => metadata?.name),
        ['a'],
      );
    }
  });

  it('serve a definition that was created at the other one', async () => {
    const definition = {
      metadata: { name: 'widgets.example.com' },
      spec: {
        group: 'example.com',
        scope: 'Namespaced',
        names: { plural: 'widgets', singular: 'widget', kind: 'Widget', listKind: 'WidgetList' },
        versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
      },
    };
    const path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
    assert.equal((await one.api.call('POST', path, definition)).status, 201);
    const widgets = '/apis/example.com/v1/namespaces/default/widgets';
    await until('the definition at both', async () => {
      const answers = await Promise.all([one, other].map((server) => server.api.call('GET', widgets)));
      return answers.every(({ status }) => status === 200);
    });
    const widget = { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'w' } };
    assert.equal((await other.api.call('POST', widgets, widget)).status, 201);
    assert.equal((await one.api.call('GET', `${widgets}/w`)).status, 200);
  });

  it('give no address and no node port twice', async () => {
    const made = await Promise.all(
      Array.from({ length: 40 }, (_, i) => both(i).api.call('POST', `${NAMESPACE}/services`, service(`s${i}`))),
    );
    assert.deepEqual([...new Set(made.map(({ status }) => status))], [201]);
    const contested = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        both(i).api.call('POST', `${NAMESPACE}/services`, service(`c${i}`, 30_001 + (i >> 1))),
      ),
    );
    for (let i = 0; i < 20; i += 2)
      assert.deepEqual(
        contested
          .slice(i, i + 2)
          .map(({ status }) => status)
          .sort(),
        [201, 422],
        `pair ${i}`,
      );
    const { items = [] } = (await one.api.call('GET', `${NAMESPACE}/services`)).body;
    const services = (items as unknown as Service[]).filter(({ metadata }) => metadata?.name !== 'kubernetes');
    assert.equal(services.length, 50);
    assert.equal(new Set(services.map(({ spec }) => spec.clusterIP)).size, 50);
    assert.equal(new Set(services.map(({ spec }) => spec.ports[0]?.nodePort)).size, 50);
    const deletions = await Promise.all(
      services.map(({ metadata }, i) => both(i).api.call('DELETE', `${NAMESPACE}/services/${metadata?.name ?? ''}`)),
    );
    assert.deepEqual([...new Set(deletions.map(({ status }) => status))], [200]);
    const again = await other.api.call('POST', `${NAMESPACE}/services`, service('again', 30_001));
    assert.equal(again.status, 201, 'a port that the other one freed is free');
  });

  it('keep a quota together', async () => {
    const quota = { metadata: { name: 'q' }, spec: { hard: { 'count/secrets': '10' } } };
    assert.equal((await one.api.call('POST', `${NAMESPACE}/resourcequotas`, quota)).status, 201);
    const status = { ...quota, status: { hard: quota.spec.hard, used: { 'count/secrets': '0' } } };
    assert.equal((await one.api.call('PUT', `${NAMESPACE}/resourcequotas/q/status`, status)).status, 200);
    await other.api.call('GET', `${NAMESPACE}/resourcequotas`);
    const made = await Promise.all(
      Array.from({ length: 30 }, (_, i) =>
        both(i).api.call('POST', `${NAMESPACE}/secrets`, { metadata: { name: `q${i}` } }),
      ),
    );
    const accepted = made.filter((answer) => answer.status === 201).length;
    assert.equal(accepted, 10, JSON.stringify(made.find((answer) => ![201, 403].includes(answer.status))));
    await one.api.call('DELETE', `${NAMESPACE}/resourcequotas/q`);
  });

  it('let a watch go on at the other one, at the revision that it had', async () => {
    const path = `${NAMESPACE}/configmaps`;
    const first = await one.api.call('POST', path, { metadata: { name: 'w1' } });
    await one.api.call('POST', path, { metadata: { name: 'w2' } });
    await other.api.call('DELETE', `${path}/w1`);
    const seen: string[] = [];
    const from = first.body.metadata?.resourceVersion ?? '';
    const { watch, over } = other.api.watch(`${path}?watch=1&resourceVersion=${from}`, ({ type, object }) => {
      seen.push(`${type} ${object.metadata?.name ?? ''}`);
    });
    await until('the events', () => seen.length === 2);
    watch.close();
    await over;
    assert.deepEqual(seen, ['ADDED w2', 'DELETED w1']);
  });

  it('go on when one is killed and when etcd restarts, without a restart of their own', async () => {
    const { starts } = other;
    one.kill('SIGKILL');
    assert.equal(
      (await other.api.call('POST', `${NAMESPACE}/configmaps`, { metadata: { name: 'alone' } })).status,
      201,
    );
    await one.ready();
    assert.equal((await one.api.call('GET', `${NAMESPACE}/configmaps/alone`)).status, 200);
    await etcd.stop('SIGKILL');
    const down = await other.api.call('GET', `${NAMESPACE}/configmaps`);
    assert.equal(down.status, 503, JSON.stringify(down.body));
    const stale = await other.api.call('GET', `${NAMESPACE}/configmaps?resourceVersion=0`);
    assert.equal(stale.status, 200);
    assert.equal((await other.api.call('GET', '/livez')).status, 500);
    await etcd.launch();
    await Promise.all([one.ready(), other.ready()]);
    assert.equal((await one.api.call('POST', `${NAMESPACE}/configmaps`, { metadata: { name: 'after' } })).status, 201);
    assert.equal((await other.api.call('GET', `${NAMESPACE}/configmaps/after`)).status, 200);
    assert.equal(other.starts, starts);
    assert.deepEqual([...one.crashes, ...other.crashes], []);
  });
});

test(
  'nothing that was acknowledged is lost over all servers, and no watch has a gap, whatever fails',
  { skip: etcdMissing, timeout: 240_000 },
  async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const { violations, counts } = await soakEtcd({ seconds: 25, seed, servers: 2, members: 1 });
    const replay = `replay with: npm run soak -- --etcd --minutes 0.5 --servers 2 --members 1 --seed ${seed}`;
    assert.deepEqual(violations, [], replay);
    assert.ok((counts.get('writes done') ?? 0) > 50, JSON.stringify([...counts]));
  },
);

/** What a running server computes or brings to its own state when it starts. */
const RUNNING = [
  /^\/api\/v1\/componentstatuses\//,
  /\/configmaps\/extension-apiserver-authentication$/,
  /\/(endpoints|endpointslices)\/kubernetes$/,
  /\/leases\/apiserver-/,
  // These components need more permissions here.
  /\/system:(controller:(attachdetach|expand|namespace|resource-claim)-controller|kube-scheduler)$/,
  /\/system:controller:(persistent-volume-binder|pod-garbage-collector|cloud-provider)$/,
  // Type checking of policies sets their status, which the recorded server did not run.
  /\/validatingadmissionpolicies\/vap1$/,
];

const RECORDED = join(import.meta.dirname, '../unit/controlplane/storage/etcd/recorded');
const lines = <T>(name: string): T[] =>
  readFileSync(join(RECORDED, name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

test(
  'a control plane on the etcd of a kube-apiserver serves its objects as that one did',
  { skip: etcdMissing, timeout: 240_000 },
  async () => {
    const etcd = await EtcdProcess.start();
    const client = await etcd.connect();
    for (const { key, value } of lines<{ key: string; value: string }>('keys.jsonl')) {
      // The recorded server stopped long ago, and its lease has ended.
      if (key.startsWith('/registry/masterleases/')) continue;
      const put = { key: Buffer.from(key), value: Buffer.from(value, 'base64') };
      await client.run((rpc, options) => rpc.call('put', put, options));
    }
    client.close();
    const server = await SoakServer.start({ etcd: [etcd.url], more: QUIET });
    try {
      const differing: string[] = [];
      let compared = 0;
      for (const { path, answer } of lines<{ path: string; answer: { items?: KubeObject[] } }>('lists.jsonl')) {
        const { status, body } = await server.api.call('GET', path);
        if (status === 404) continue;
        const served = new Map((body.items ?? []).map((item) => [item.metadata?.uid, comparable(item)]));
        for (const item of answer.items ?? []) {
          if (RUNNING.some((pattern) => pattern.test(`${path}/${item.metadata.name ?? ''}`))) continue;
          compared += 1;
          const ours = served.get(item.metadata.uid);
          if (JSON.stringify(ours) !== JSON.stringify(comparable(item)))
            differing.push(`${path} ${item.metadata.namespace ?? ''}/${item.metadata.name ?? ''}`);
        }
      }
      assert.ok(compared > 240, String(compared));
      assert.deepEqual(differing, []);
    } finally {
      await server.remove();
      await etcd.remove();
    }
  },
);

function comparable(item: object): unknown {
  const { metadata, ...others } = item as { metadata: JsonObject };
  const { resourceVersion: _dropped, ...kept } = metadata;
  return sorted({ ...others, metadata: kept });
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sorted(member)]),
  );
}
