import assert from 'node:assert/strict';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { CoreEventRecorder } from '../../../../api/machinery/event-recorder.ts';
import { execCredentials } from '../../../../api/machinery/exec-plugin.ts';
import { HttpClient } from '../../../../api/machinery/http-client.ts';
import { loadKubeconfig, newKubeconfig, serverAccess, writeKubeconfig } from '../../../../api/machinery/kubeconfig.ts';
import { events, pods } from '../../../../api/machinery/resources.ts';
import { runWorkers, WorkQueue } from '../../../../api/machinery/work-queue.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('work queue: a key is handled by one worker at a time, and again when it was added meanwhile', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  const stop = new AbortController();
  const handled: string[] = [];
  let inFlight = 0;
  const done = runWorkers({
    queue,
    workers: 3,
    signal: stop.signal,
    onError: () => undefined,
    reconcile: async (key) => {
      assert.equal(++inFlight, 1);
      handled.push(key);
      await clock.sleep(100);
      inFlight--;
    },
  });
  queue.add('a');
  queue.add('a');
  await clock.advance(50);
  queue.add('a');
  queue.add('a');
  await clock.advance(500);
  assert.deepEqual(handled, ['a', 'a']);
  stop.abort();
  await done;
});

test('work queue: failures come back later and later, and a success forgets them', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock, baseDelayMs: 10, maxDelayMs: 40 });
  const stop = new AbortController();
  const times: number[] = [];
  const done = runWorkers({
    queue,
    workers: 1,
    signal: stop.signal,
    onError: () => undefined,
    reconcile: () => {
      times.push(clock.monotonic());
      return times.length <= 4 ? Promise.reject(new Error('no')) : Promise.resolve();
    },
  });
  queue.add('a');
  await clock.advance(1000);
  assert.deepEqual(times, [0, 10, 30, 70, 110]);
  assert.equal(queue.failures('a'), 0);
  assert.equal(queue.idle, true);
  stop.abort();
  await done;
});

test('work queue: of several delays of a key the shortest counts', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  queue.addAfter('a', 100);
  queue.addAfter('a', 50);
  queue.addAfter('a', 70);
  await clock.advance(50);
  assert.equal(await queue.next(), 'a');
  queue.done('a');
  await clock.advance(100);
  assert.equal(queue.length, 0);
});

test('events: a repeated event is a count on the first; many similar ones are combined', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new CoreEventRecorder({ client, clock, logger: silentLogger, component: 'test' });
  const about = { kind: 'Pod', namespace: 'shop', name: 'p', uid: 'u' };
  for (let at = 0; at < 3; at++) recorder.event(about, 'Warning', 'BackOff', 'again');
  await recorder.flush();
  assert.deepEqual(
    client.peekAll(events).map(({ count }) => count),
    [3],
  );
  for (let at = 0; at < 15; at++) recorder.event(about, 'Warning', 'Failed', `reason ${at}`);
  await recorder.flush();
  const failed = client.peekAll(events).filter(({ reason }) => reason === 'Failed');
  assert.equal(failed.length, 10);
  assert.equal(failed.at(-1)?.message, '(combined from similar events): reason 14');
});

test('events: an object that causes too many is throttled', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new CoreEventRecorder({ client, clock, logger: silentLogger, component: 'test' });
  for (let at = 0; at < 100; at++) recorder.event({ kind: 'Pod', name: 'p' }, 'Normal', `Reason${at}`, 'm');
  await recorder.flush();
  assert.equal(client.peekAll(events).length, 25);
  // Warnings do not hide what else happens to it.
  recorder.event({ kind: 'Pod', name: 'p' }, 'Warning', 'Failed', 'm');
  await recorder.flush();
  assert.equal(client.peekAll(events).length, 26);
});

test('metrics: text of counters, gauges and histograms with labels', () => {
  const registry = new MetricsRegistry();
  registry
    .counter({ name: 'c_total', help: 'C.', labels: ['code'] })
    .with('2"0')
    .inc(2);
  const histogram = registry.histogram({ name: 'h', help: 'H.', buckets: [1, 2] }).with();
  for (const value of [0.5, 1.5, 9]) histogram.observe(value);
  assert.equal(
    registry.text(),
    '# HELP c_total C.\n# TYPE c_total counter\nc_total{code="2\\"0"} 2\n' +
      '# HELP h H.\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="2"} 2\nh_bucket{le="+Inf"} 3\nh_sum 11\nh_count 3\n',
  );
});

test('kubeconfig: what is written is readable by its owner only, and read back; errors name the file and the remedy', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'deep', 'config');
  const pem = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n';
  await writeKubeconfig(
    path,
    newKubeconfig({ cluster: 'c', server: 'https://h:1', ca: pem, user: 'u', credentials: { token: 't' } }),
  );
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const access = await serverAccess(await loadKubeconfig(path), { clock: systemClock });
  assert.equal(access.server, 'https://h:1');
  assert.equal(access.ca, pem);
  assert.deepEqual(await access.credentials.current(), { authorization: 'Bearer t' });
  const other = join(directory, 'other');
  await writeFile(other, 'current-context: x\ncontexts:\n- name: x\n  context: {cluster: c, user: nobody}\n');
  const merged = await loadKubeconfig(undefined, { KUBECONFIG: `${other}:${join(directory, 'missing')}:${path}` });
  await assert.rejects(serverAccess(merged, { clock: systemClock }), /has no user "nobody", which context "x" names/);
  await assert.rejects(
    loadKubeconfig(join(directory, 'none')),
    /none does not exist; name another with --kubeconfig or KUBECONFIG/,
  );
  assert.match(await readFile(path, 'utf8'), /^apiVersion: v1/);
});

test('exec plugin: gets the cluster, runs once until the server refuses, and its errors are reported', async () => {
  const script = `const i=JSON.parse(process.env.KUBERNETES_EXEC_INFO);console.log(JSON.stringify({kind:'ExecCredential',apiVersion:i.apiVersion,status:{token:i.spec.cluster.server+process.pid}}))`;
  const config = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: process.execPath,
    args: ['-e', script],
    interactiveMode: 'Never',
    provideClusterInfo: true,
  };
  const cluster = { server: 'https://h' };
  const credentials = execCredentials({ config, cluster, clock: systemClock });
  const first = await credentials.current();
  assert.match(first.authorization ?? '', /^Bearer https:\/\/h\d+$/);
  assert.deepEqual(await credentials.current(), first);
  assert.equal(credentials.refused?.(), true);
  assert.notDeepEqual(await credentials.current(), first);
  const missing = execCredentials({
    config: { ...config, command: 'no-such-plugin', installHint: 'get it' },
    cluster,
    clock: systemClock,
  });
  await assert.rejects(missing.current(), /executable no-such-plugin not found[\s\S]*get it/);
  assert.throws(
    () => execCredentials({ config: { ...config, interactiveMode: 'Always' }, cluster, clock: systemClock }),
    /interactive/,
  );
});

test('http client: answers become objects and Status errors, 429 is tried again, watches are parsed across chunks', async () => {
  let busy = 1;
  const server = createServer((request, response) => {
    const url = request.url ?? '';
    if (url.includes('watch=true')) {
      response.write('{"type":"ADDED","object":{"metadata":{"na');
      setImmediate(() =>
        response.end(
          'me":"a"}}}\n{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n',
        ),
      );
    } else if (url.endsWith('/pods/busy') && busy-- > 0) response.writeHead(429, { 'retry-after': '0' }).end('{}');
    else if (url.endsWith('/pods/busy')) response.end('{"metadata":{"name":"busy"}}');
    else
      response
        .writeHead(404)
        .end('{"kind":"Status","code":404,"reason":"NotFound","message":"pods \\"x\\" not found"}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new HttpClient({
    server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    clock: systemClock,
  });
  try {
    assert.equal((await client.get(pods, 'n', 'busy')).metadata.name, 'busy');
    await assert.rejects(client.get(pods, 'n', 'x'), { message: 'pods "x" not found' });
    const seen: string[] = [];
    await assert.rejects(async () => {
      for await (const event of client.watch(pods)) seen.push(`${event.type} ${event.object.metadata.name}`);
    }, /too old/);
    assert.deepEqual(seen, ['ADDED a']);
  } finally {
    client.close();
    server.close();
  }
});
