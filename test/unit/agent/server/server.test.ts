import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect as connectTcp, createServer } from 'node:net';
import { connect } from 'node:tls';
import { describe, it, type TestContext } from 'node:test';
import type { PodHost } from '../../../../agent/server/pod-host.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { newStatusError } from '../../../../api/meta/status-error.ts';
import { assertLimitsHeaders } from '../../../endless-headers.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { jane, startServerUnderTest } from './server-under-test.ts';

async function setUp(
  t: TestContext,
  broken: { authenticate?: boolean; authorize?: boolean; refusal?: (path: string, method: string) => string } = {},
) {
  const away = (): never => {
    throw newStatusError(403, 'Forbidden', 'the agent may not ask that');
  };
  const host = {
    syncLoopHealth: () => '',
    devicePluginHealth: () => '',
    pods: () => [],
    runningContainer: async () => 'id',
  } as unknown as PodHost;
  const server = await startServerUnderTest({
    host,
    clock: new FakeClock(),
    access: {
      authenticate: async () => (broken.authenticate === true ? away() : jane),
      refusal: async (_user, method, path) =>
        broken.authorize === true ? away() : (broken.refusal?.(path, method) ?? ''),
    },
  });
  t.after(() => server.close());
  /** Resolves to the status line of the response to a raw request. */
  return (target: string, headers = ''): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false });
      socket.once('error', reject);
      socket.once('data', (chunk: Buffer) => {
        resolve(chunk.toString().split('\r\n')[0] ?? '');
        socket.destroy();
      });
      socket.write(`GET ${target} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`);
    });
}

const UPGRADE = 'Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n';

describe("the agent's server", () => {
  // This test is first, because servers of other tests close asynchronously.
  it('gives the ports back that it took when another one is in use', async (t) => {
    const listening = (): number => process.getActiveResourcesInfo().filter((name) => name === 'TCPServerWrap').length;
    const taken = createServer().listen(0, '127.0.0.1');
    t.after(() => taken.close());
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    const before = listening();
    assert.ok(before > 0);
    const start = startServerUnderTest({ host: {} as PodHost, healthPort: port });
    await assert.rejects(start, new RegExp(`port ${port} is in use on 127.0.0.1`));
    await until('the ports are free', () => (listening() <= before ? true : undefined));
  });

  it('survives targets that are none, from anybody', async (t) => {
    const ask = await setUp(t);
    for (const target of ['//', '//:x', '/exec/%zz/p/c?output=1', '/exec/a/%/c?output=1'])
      assert.match(await ask(target, UPGRADE), /^HTTP\/1\.1 4\d\d /, target);
    assert.match(await ask('//'), /^HTTP\/1\.1 4\d\d /);
    assert.match(await ask('/healthz'), / 200 /);
  });

  it('accepts a request line of hundreds of kilobytes, as the command of an exec needs it', async (t) => {
    const ask = await setUp(t);
    assert.match(await ask(`/healthz?command=${'a'.repeat(500_000)}`), / 200 /);
  });

  it('closes connections that send headers without an end, and serves others', async (t) => {
    const host = { syncLoopHealth: () => '', devicePluginHealth: () => '' } as unknown as PodHost;
    const server = await startServerUnderTest({ host, headersBudgetBytes: 500_000 });
    t.after(() => server.close());
    await assertLimitsHeaders(server.port);
  });

  it('holds no more connections than it may, those of its API server longest', async (t) => {
    const host = { syncLoopHealth: () => '', devicePluginHealth: () => '' } as unknown as PodHost;
    const server = await startServerUnderTest({ host, maxConnections: 5 });
    t.after(() => server.close());
    const client = connect({ host: '127.0.0.1', port: server.port, rejectUnauthorized: false });
    t.after(() => client.destroy());
    const askAgain = async (): Promise<string> => {
      client.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
      const [chunk] = (await once(client, 'data')) as [Buffer];
      return chunk.toString().slice(0, 12);
    };
    assert.equal(await askAgain(), 'HTTP/1.1 200');
    const flood = Array.from({ length: 20 }, () => connectTcp(server.port, '127.0.0.1').on('error', () => undefined));
    t.after(() => flood.forEach((socket) => socket.destroy()));
    const closed = flood.map((socket) => socket.resume()).slice(0, 16);
    await Promise.all(closed.map((socket) => socket.destroyed || once(socket, 'close')));
    assert.equal(await askAgain(), 'HTTP/1.1 200');
    assert.equal((await server.ask('GET /healthz')).status, 200);
  });

  it('authorizes the path that it serves, however the path is spelled', async (t) => {
    const ask = await setUp(t, { refusal: (path) => (/^\/metrics(\/|$)/.test(path) ? '' : 'only metrics') });
    assert.match(await ask('/metrics'), / 200 /);
    assert.match(await ask('/%6detrics'), / 200 /);
    assert.match(await ask('/pods'), / 403 /);
    assert.match(await ask('/%70ods'), / 403 /);
    for (const target of [
      '/logs/../metrics/..%2flog/auth.log',
      '/metrics/../pods',
      '/metrics/%2e%2e/pods',
      '/metrics%2f..%2fpods',
      '/metrics\\..\\pods',
      '//metrics/pods',
      '/pods//../metrics',
    ]) {
      assert.match(await ask(target), / 400 /, target);
      assert.match(await ask(target, UPGRADE), / 400 /, `${target} by an upgrade`);
    }
  });

  it('refuses a stream by GET to users who can only read', async (t) => {
    const ask = await setUp(t, { refusal: (_path, method) => (method === 'GET' ? '' : 'only reading is allowed') });
    const webSocket =
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n';
    for (const target of ['/exec/ns/p/c?command=id&output=1', '/attach/ns/p/c?output=1', '/portForward/ns/p?port=80'])
      assert.match(await ask(target, webSocket), / 403 /, target);
  });

  it('refuses a command without streams before the upgrade', async (t) => {
    const ask = await setUp(t);
    assert.match(await ask('/exec/ns/p/c?command=x', UPGRADE), / 400 /);
    assert.match(await ask('/nowhere', UPGRADE), / 404 /);
  });

  it('responds 401 if the client cannot be authenticated, and 500 if it cannot be authorized', async (t) => {
    const [unknown, undecided] = await Promise.all([setUp(t, { authenticate: true }), setUp(t, { authorize: true })]);
    assert.match(await unknown('/pods'), / 401 /);
    assert.match(await undecided('/pods'), / 500 /);
    assert.match(await undecided('/exec/ns/p/c?output=1', UPGRADE), / 500 /);
  });

  it('logs few lines, however many requests it cannot authenticate', async (t) => {
    const lines: object[] = [];
    const away = (): never => {
      throw newStatusError(503, 'ServiceUnavailable', 'the API server is unreachable');
    };
    const server = await startServerUnderTest({
      host: {} as PodHost,
      clock: new FakeClock(),
      logger: { ...silentLogger, error: (fields) => void lines.push(fields) },
      access: { authenticate: async () => away(), refusal: async () => '' },
    });
    t.after(() => server.close());
    for (let at = 0; at < 100; at += 1) assert.equal((await server.ask('GET /pods')).status, 401);
    assert.equal(lines.length, 10);
  });
});
