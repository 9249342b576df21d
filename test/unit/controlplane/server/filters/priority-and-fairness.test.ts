/**
 * Tests API priority and fairness through the port of the server: how much one user can take from others, and the response
 * headers.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { ClientHttp2Stream } from 'node:http2';
import { test } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { createDialer } from '../../../../../api/http/dialer.ts';
import type { Aggregator } from '../../../../../controlplane/registry/aggregation/aggregator.ts';
import { passAggregated } from '../../../../../controlplane/server/connect/aggregated.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { installFlowControlDumps } from '../../../../../controlplane/server/flowcontrol/flow-control-dumps.ts';
import { PathHandlers } from '../../../../../controlplane/server/path-handlers.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { Entry } from '../../../../../controlplane/model/rest.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { fakeFairness, type FakeFairness } from '../../../../fakes/fake-fairness.ts';
import { selfSigned, startFakeServer, type FakeServer } from '../../../../fakes/fake-server.ts';
import { until } from '../../../../until.ts';

const MAPS = '/api/v1/namespaces/n/configmaps';
const LEASES = '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases';
const JSON_TYPE = { 'content-type': 'application/json' };
const alice = { authorization: 'Bearer alice' };
const bob = { authorization: 'Bearer bob' };
const node = { authorization: 'Bearer system:node:n1 system:nodes' };
const object = (name: string): string => JSON.stringify({ metadata: { name } });

const reached = (check: () => boolean): Promise<boolean> => until('the expected state', check, 10_000);

class SlowResource extends FakeResource {
  gate = Promise.withResolvers<void>();
  waiting = 0;

  override async list(...args: Parameters<FakeResource['list']>): Promise<Awaited<ReturnType<FakeResource['list']>>> {
    this.waiting += 1;
    await this.gate.promise;
    return await super.list(...args);
  }

  /** Objects of the name `held` wait as for a webhook. */
  override async create(...args: Parameters<FakeResource['create']>): Promise<Entry> {
    if ((args[3].value as KubeObject).metadata.name === 'held') {
      this.waiting += 1;
      await this.gate.promise;
    }
    return await super.create(...args);
  }
}

interface Running {
  readonly fake: FakeServer;
  readonly fairness: FakeFairness;
  readonly slow: SlowResource;
}

async function withFairness(fairness: FakeFairness, run: (running: Running) => Promise<void>): Promise<void> {
  const slow = new SlowResource(fakeInfo('configmaps', 'ConfigMap'));
  const others = [
    new FakeResource({ ...fakeInfo('nodes', 'Node'), namespaced: false }),
    new FakeResource({ ...fakeInfo('leases', 'Lease'), group: 'coordination.k8s.io' }),
  ];
  const paths = new PathHandlers();
  installFlowControlDumps(paths, fairness.control);
  const fake = await startFakeServer(new FakeCatalog([slow, ...others]), { fairness, paths });
  try {
    await run({ fake, fairness, slow });
  } finally {
    slow.gate.resolve();
    await fake.close();
  }
}

const levelOf = ({ control }: FakeFairness, name: string) => {
  const level = control.levels.get(name);
  assert.ok(level);
  return level;
};

function begin(fake: FakeServer, headers: Record<string, string>, part: string | Buffer): ClientHttp2Stream {
  const stream = fake.session.request({ ':method': 'POST', ':path': MAPS, ...JSON_TYPE, ...headers });
  stream.on('error', () => undefined);
  stream.write(part);
  return stream;
}

test('200 bodies that never end take no seats: other users, node leases and node status are answered at once', async () => {
  await withFairness(fakeFairness(systemClock, { totalSeats: 20 }), async ({ fake, fairness }) => {
    const { intake, set } = levelOf(fairness, 'global-default');
    for (let at = 0; at < 200; at++) begin(fake, alice, '{"metadata":').resume();
    await reached(() => intake.amount > 200 * 16 * 1024);
    assert.equal(set.seatsInUse + set.seatsWaiting, 0);
    assert.equal((await fake.request('POST', MAPS, { ...JSON_TYPE, ...bob }, object('b'))).status, 201);
    assert.equal((await fake.request('POST', MAPS, { ...JSON_TYPE, ...alice }, object('a'))).status, 201);
    assert.equal((await fake.request('POST', LEASES, { ...JSON_TYPE, ...node }, object('n1'))).status, 201);
    assert.equal((await fake.request('POST', '/api/v1/nodes', { ...JSON_TYPE, ...node }, object('n1'))).status, 201);
    assert.equal((await fake.request('GET', '/api/v1/nodes/n1', node)).status, 200);
  });
});

test('a body that is complete is handled, and leaves nothing behind', async () => {
  await withFairness(fakeFairness(systemClock), async ({ fake, fairness }) => {
    const stream = begin(fake, alice, '{"metadata":');
    const { intake, set } = levelOf(fairness, 'global-default');
    await reached(() => intake.amount > 16 * 1024);
    const answered = once(stream, 'response') as Promise<[Record<string, unknown>]>;
    stream.end('{"name":"a"}}');
    const [headers] = await answered;
    assert.equal(headers[':status'], 201);
    stream.resume();
    await reached(() => set.executing === 0);
    assert.equal(intake.amount, 0);
    const gone = begin(fake, alice, '{');
    await reached(() => intake.amount > 0);
    gone.close();
    await reached(() => intake.amount === 0);
  });
});

test('bodies above the budget of a level are refused for the user with the most: memory is bounded, others are served', async () => {
  const intakeBytes = 1024 * 1024;
  await withFairness(fakeFairness(systemClock, { intakeBytes }), async ({ fake, fairness }) => {
    const { intake } = levelOf(fairness, 'global-default');
    const part = Buffer.alloc(100_000, ' ');
    const statuses: unknown[] = [];
    for (let at = 0; at < 20; at++) {
      const stream = begin(fake, alice, part);
      stream.on('response', (headers) => statuses.push(headers[':status']));
      stream.resume();
    }
    await reached(() => statuses.length >= 20 - Math.floor(intakeBytes / part.length));
    assert.ok(intake.amount <= intakeBytes, `${intake.amount} bytes are held`);
    const body = Buffer.concat([part, part, part, Buffer.from(object('b'))]);
    assert.equal((await fake.request('POST', MAPS, { ...JSON_TYPE, ...bob }, body)).status, 201);
    assert.deepEqual(new Set(statuses), new Set([429]));
    assert.match(fairness.registry.text(), /rejected_requests_total\{[^}]*reason="body-intake"\} \d+\n/);
  });
});

test('answers name the flow schema and the priority level', async () => {
  await withFairness(fakeFairness(systemClock), async ({ fake }) => {
    const refused = await fake.request('GET', '/nothing', alice);
    for (const { headers } of [refused, await fake.request1('POST', MAPS, { ...JSON_TYPE, ...alice }, object('a'))]) {
      assert.equal(headers['x-kubernetes-pf-flowschema-uid'], 'uid-of-global-default');
      assert.equal(headers['x-kubernetes-pf-prioritylevel-uid'], 'uid-of-global-default');
    }
  });
});

test('requests over the seats of their level wait in queues; other levels are served, dumps and metrics show them', async () => {
  await withFairness(fakeFairness(systemClock, { totalSeats: 25 }), async ({ fake, fairness, slow }) => {
    const { set, bounds } = levelOf(fairness, 'global-default');
    const lists = Array.from({ length: bounds.nominal + 3 }, () => fake.request('GET', MAPS, alice));
    await reached(() => set.waiting === 3);
    assert.equal(slow.waiting, bounds.nominal);
    assert.equal((await fake.request('POST', LEASES, { ...JSON_TYPE, ...node }, object('n2'))).status, 201);
    const root = { authorization: 'Bearer root system:masters' };
    const dump = (name: string) => fake.request('GET', `/debug/api_priority_and_fairness/${name}`, root);
    const levels = (await dump('dump_priority_levels')).text;
    assert.match(
      levels,
      / ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n/,
    );
    const counts = `3, +${bounds.nominal}, +${bounds.nominal}, +0, +0, +0`;
    assert.match(levels, new RegExp(`^global-default, +\\d+, +false, +false, +${counts}$`, 'm'));
    const names = levels
      .split('\n')
      .slice(1, -1)
      .map((line) => line.split(',')[0]);
    assert.deepEqual(names, names.toSorted());
    assert.match(levels, /^exempt, +0, +false, +false, +0, +1, +\d+, +0, +0, +0$/m);
    const queues = (await dump('dump_queues')).text;
    assert.match(queues, /^PriorityLevelName, Index, +PendingRequests, ExecutingRequests, SeatsInUse/);
    assert.doesNotMatch(queues, /^exempt/m);
    const requests = await dump('dump_requests?includeRequestDetails=1');
    assert.match(
      requests.text,
      /^global-default, +global-default, .* 0001-01-01T00:00:00Z, +alice, +list, +\/api\/v1\/namespaces\/n\/configmaps/m,
    );
    const executing = requests.text.match(
      /^global-default, +global-default, +\d+, +-1, .*, +\d{4}-\d\d-\S+Z, +alice, /gm,
    );
    assert.equal(executing?.length, bounds.nominal);
    assert.match(requests.text, /^exempt, +\S+ +-1, +-1, /m);
    assert.equal((await dump('dump_others')).status, 404);
    const text = fairness.registry.text();
    assert.match(
      text,
      /apiserver_flowcontrol_current_inqueue_requests\{flow_schema="global-default",priority_level="global-default"\} 3\n/,
    );
    assert.match(text, /apiserver_current_inqueue_requests\{request_kind="readOnly"\} 3\n/);
    slow.gate.resolve();
    for (const answer of await Promise.all(lists)) assert.equal(answer.status, 200);
    assert.deepEqual([set.executing, set.seatsInUse, set.waiting], [0, 0, 0]);
  });
});

test('a request that waited too long gets a 429 with kube-apiserver’s message; the request of a disconnected client leaves the queue', async () => {
  const clock = new FakeClock();
  await withFairness(fakeFairness(clock, { totalSeats: 1 }), async ({ fake, fairness, slow }) => {
    const { set } = levelOf(fairness, 'global-default');
    const first = fake.request('GET', MAPS, alice);
    await reached(() => slow.waiting === 1);
    const second = fake.request('GET', MAPS, alice);
    await reached(() => set.waiting === 1);
    const gone = fake.session.request({ ':path': MAPS, ...alice });
    gone.on('error', () => undefined);
    await reached(() => set.waiting === 2);
    gone.close();
    await reached(() => set.waiting === 1);
    await clock.advance(15_000);
    const refused = await second;
    assert.equal(refused.status, 429);
    assert.equal(refused.text, 'Too many requests, please try again later.\n');
    assert.equal(refused.headers['retry-after'], '1');
    assert.match(fairness.registry.text(), /rejected_requests_total\{[^}]*reason="time-out"\} 1\n/);
    slow.gate.resolve();
    assert.equal((await first).status, 200);
  });
});

test('watches hold seats only until they have begun', async () => {
  await withFairness(fakeFairness(systemClock, { totalSeats: 1 }), async ({ fake, fairness, slow }) => {
    for (let at = 1; at <= 5; at++) {
      const watch = fake.session.request({ ':path': `${MAPS}?watch=1`, ...alice });
      watch.on('error', () => undefined);
      await reached(() => slow.watchers === at);
    }
    await reached(() => levelOf(fairness, 'global-default').set.seatsInUse === 0);
  });
});

test('writes to an aggregated API take seats while the other server answers', async () => {
  const gate = Promise.withResolvers<void>();
  const backend = createServer(await selfSigned(), (request, response) => {
    request.resume();
    gate.promise.then(() => response.end('{}'), assert.fail);
  });
  await once(backend.listen(0, '127.0.0.1'), 'listening');
  const { port } = backend.address() as AddressInfo;
  const service = 'service/ns/other';
  const aggregated = passAggregated(
    {
      find: (group) => (group === 'example.com' ? {} : undefined) as ReturnType<Aggregator['find']>,
      isAvailable: () => true,
      target: () => ({
        host: '127.0.0.1',
        port,
        service,
        serverName: 'other.ns.svc',
        tls: { cert: '', key: '', servername: 'other.ns.svc', rejectUnauthorized: false },
      }),
    },
    {
      clock: systemClock,
      stripped: strippedHeaders({ names: [], prefixes: [] }),
      dialer: createDialer({ loopbackTargets: new Set([service]) }),
    },
  );
  const fairness = fakeFairness(systemClock);
  const fake = await startFakeServer(new FakeCatalog([]), { fairness, aggregated });
  try {
    const path = '/apis/example.com/v1/namespaces/n/things';
    const answers = Array.from({ length: 3 }, () =>
      fake.request('POST', path, { ...JSON_TYPE, ...alice }, object('a')),
    );
    const { set, intake } = levelOf(fairness, 'global-default');
    await reached(() => set.executing === 3);
    assert.equal(intake.amount, 0);
    gate.resolve();
    for (const { status } of await Promise.all(answers)) assert.equal(status, 200);
    await reached(() => set.executing === 0);
  } finally {
    gate.resolve();
    await fake.close();
    backend.close();
  }
});

test('a list of many objects takes more seats, up to its share of the level', async () => {
  await withFairness(fakeFairness(systemClock, { objects: 1000 }), async ({ fake, fairness, slow }) => {
    const { set } = levelOf(fairness, 'global-default');
    const widths: number[] = [];
    for (const query of ['', '?limit=20', '?fieldSelector=metadata.name%3Da']) {
      const before = set.seatsInUse;
      void fake.request('GET', `${MAPS}${query}`, alice).catch(() => undefined);
      await reached(() => slow.waiting === widths.length + 1);
      widths.push(set.seatsInUse - before);
    }
    assert.deepEqual(widths, [8, 2, 1]);
  });
});

test('writes of large objects that wait for a webhook take more seats, so that few of them are in memory; small ones go on', async () => {
  await withFairness(fakeFairness(systemClock), async ({ fake, fairness, slow }) => {
    const { set, bounds } = levelOf(fairness, 'global-default');
    const large = JSON.stringify({ metadata: { name: 'held' }, data: { a: 'x'.repeat(900_000) } });
    for (let at = 0; at < 10; at += 1)
      void fake.request1('POST', MAPS, { ...JSON_TYPE, ...alice }, large).catch(() => undefined);
    await reached(() => slow.waiting > 0 && set.executing + set.waiting === 10);
    assert.ok(slow.waiting * 8 <= bounds.nominal, `${slow.waiting} are executed with ${bounds.nominal} seats`);
    assert.equal((await fake.request('POST', MAPS, { ...JSON_TYPE, ...bob }, object('b'))).status, 201);
  });
});
