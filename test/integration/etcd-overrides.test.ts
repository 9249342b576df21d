/** Tests a control plane whose events are in an etcd of their own (`--etcd-servers-overrides`). */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { etcdMissing, EtcdProcess } from '../etcd-process.ts';
import { SoakServer } from '../soak/etcd/servers.ts';
import { until } from '../until.ts';

const EVENTS = '/api/v1/namespaces/default/events';
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

const event = (name: string): object => ({
  metadata: { name },
  involvedObject: { kind: 'Pod', namespace: 'default', name: 'p' },
  reason: 'Tested',
});

describe('events in an etcd of their own', { skip: etcdMissing, timeout: 240_000 }, () => {
  let main: EtcdProcess;
  let other: EtcdProcess;
  let server: SoakServer;

  before(async () => {
    [main, other] = await Promise.all([EtcdProcess.start(), EtcdProcess.start()]);
    // An event that a server without the flag has stored.
    await put(main, '/registry/events/default/old', { kind: 'Event', apiVersion: 'v1', ...event('old') });
    await put(other, '/registry/configmaps/default/foreign', {
      kind: 'ConfigMap',
      apiVersion: 'v1',
      metadata: { name: 'foreign', namespace: 'default' },
    });
    server = await SoakServer.start({
      etcd: [main.url],
      more: ['--controllers=-*', '--scheduler=false', `--etcd-servers-overrides=/events#${other.url}`],
    });
  });
  after(async () => {
    await server.remove();
    await main.remove();
    await other.remove();
  });

  it('are stored there and nowhere else, and both groups of events show them', async () => {
    for (const name of ['a', 'b']) assert.equal((await server.api.call('POST', EVENTS, event(name))).status, 201);
    assert.equal((await server.api.call('POST', CONFIG_MAPS, { metadata: { name: 'c' } })).status, 201);
    assert.deepEqual(await keysOf(main, '/registry/events/'), ['/registry/events/default/old']);
    const elsewhere = await keysOf(other, '/registry/');
    assert.deepEqual(
      elsewhere.filter((key) => key.includes('/default/')),
      ['/registry/configmaps/default/foreign', '/registry/events/default/a', '/registry/events/default/b'],
    );
    assert.deepEqual(await names(server, EVENTS), ['a', 'b']);
    assert.deepEqual(await names(server, '/apis/events.k8s.io/v1/namespaces/default/events'), ['a', 'b']);
    assert.ok(!(await names(server, CONFIG_MAPS)).includes('foreign'));
  });

  it('have revisions of their own, from which watches and conditional writes go on', async () => {
    for (let i = 0; i < 30; i += 1)
      assert.equal((await server.api.call('POST', CONFIG_MAPS, { metadata: { name: `n${i}` } })).status, 201);
    const made = await server.api.call('POST', EVENTS, event('w1'));
    const from = made.body.metadata?.resourceVersion ?? '';
    const seen: string[] = [];
    const { watch, over } = server.api.watch(`${EVENTS}?watch=1&resourceVersion=${from}`, ({ type, object }) => {
      seen.push(`${type} ${object.metadata?.name ?? ''}`);
    });
    const { metadata: _dropped, ...rest } = made.body as { metadata: object };
    const changed = { ...rest, metadata: made.body.metadata, message: 'again' };
    assert.equal((await server.api.call('PUT', `${EVENTS}/w1`, changed)).status, 200);
    assert.equal((await server.api.call('PUT', `${EVENTS}/w1`, changed)).status, 409);
    assert.equal((await server.api.call('DELETE', `${EVENTS}/w1`)).status, 200);
    await until('the events', () => seen.length === 2);
    watch.close();
    await over;
    assert.deepEqual(seen, ['MODIFIED w1', 'DELETED w1']);
    const { body } = await server.api.call('GET', EVENTS);
    const { body: maps } = await server.api.call('GET', CONFIG_MAPS);
    const revisionOf = (list: object): number =>
      Number((list as { metadata: { resourceVersion: string } }).metadata.resourceVersion);
    assert.ok(revisionOf(body) < revisionOf(maps), 'a revision of the etcd with few writes');
  });

  it('fail alone while their etcd does not answer, and are there again with it', async () => {
    await other.stop();
    const failing = Promise.all([
      server.api.call('GET', EVENTS),
      server.api.call('POST', EVENTS, event('c')),
      server.api.call('GET', '/livez/etcd-override-0'),
      server.api.call('GET', '/readyz/etcd-override-readiness-0'),
      server.api.call('GET', '/readyz'),
    ]);
    assert.equal((await server.api.call('POST', CONFIG_MAPS, { metadata: { name: 'd' } })).status, 201);
    assert.ok((await names(server, CONFIG_MAPS)).includes('d'));
    assert.equal((await server.api.call('GET', '/readyz/etcd-readiness')).status, 200);
    assert.deepEqual(
      (await failing).map(({ status }) => status),
      [503, 503, 500, 500, 500],
    );
    await other.launch();
    await server.ready();
    assert.deepEqual(await names(server, EVENTS), ['a', 'b']);
    assert.equal((await server.api.call('POST', EVENTS, event('c'))).status, 201);
    server.kill('SIGKILL');
    await server.ready();
    assert.deepEqual(await names(server, EVENTS), ['a', 'b', 'c']);
  });
});

async function names(server: SoakServer, path: string): Promise<string[]> {
  const { body, status } = await server.api.call('GET', path);
  assert.equal(status, 200, JSON.stringify(body));
  return (body.items ?? []).map(({ metadata }) => metadata?.name ?? '');
}

async function put(etcd: EtcdProcess, key: string, value: object): Promise<void> {
  const client = await etcd.connect();
  const request = { key: Buffer.from(key), value: Buffer.from(JSON.stringify(value)) };
  await client.run((rpc, options) => rpc.call('put', request, options));
  client.close();
}

async function keysOf(etcd: EtcdProcess, prefix: string): Promise<string[]> {
  const client = await etcd.connect();
  const request = { key: Buffer.from(prefix), rangeEnd: Buffer.from(`${prefix.slice(0, -1)}0`) };
  const { kvs } = await client.run((rpc, options) => rpc.call('range', request, options));
  client.close();
  return kvs.map(({ key }) => key.toString());
}
