/** Tests clients of several API servers: they change over when one dies, with requests repeated and watches resumed. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createSecureServer, type Http2Session, type ServerHttp2Stream } from 'node:http2';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { before, test, type TestContext } from 'node:test';
import { Worker } from 'node:worker_threads';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { HttpClient } from '../../../../api/client/http-client.ts';
import { HttpTransport } from '../../../../api/client/http-transport.ts';
import { Informers } from '../../../../api/client/informer.ts';
import { configMaps, pods } from '../../../../api/client/resources.ts';
import { ServerList } from '../../../../api/client/server-list.ts';
import { ensureAuthority, issue } from '../../../../controlplane/security/pki/authority.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let pem: { readonly ca: string; readonly cert: string; readonly key: string };
/** A certificate and key like `pem`, but as the signer of kubelets' serving certificates issues them. */
let ofNode: Pick<typeof pem, 'cert' | 'key'>;
let directory: string;

before(async () => {
  directory = temporaryFolder();
  const authority = await ensureAuthority(directory, 'ca', 'ca', Date.now());
  const names = { ip: ['127.0.0.1'] };
  const wanted = { subject: { commonName: 'server' }, usages: ['server auth'], lifetimeMs: 3_600_000, names } as const;
  const made = await issue(wanted, authority, Date.now());
  pem = { ca: authority.certificatePem, cert: made.certificatePem, key: made.privateKeyPem };
  const subject = { commonName: 'system:node:evil', organizations: ['system:nodes'] };
  const node = await issue({ ...wanted, subject }, authority, Date.now());
  ofNode = { cert: node.certificatePem, key: node.privateKeyPem };
});

interface Server {
  readonly url: string;
  readonly requests: string[];
  /** The streams of open watches. */
  readonly watches: Set<ServerHttp2Stream>;
  /** All sessions that clients have opened, also those that are closed. */
  readonly sessions: Set<Http2Session>;
  /** The status of answers. */
  status: number;
  /** No packet passes any more, as if the host had lost its power. */
  freeze(): void;
  kill(): Promise<void>;
}

/** Resolves to a small API server behind a connection that can be cut without a word. */
async function startServer(t: TestContext, name: string, { cert, key } = pem as typeof ofNode): Promise<Server> {
  const watches = new Set<ServerHttp2Stream>();
  const requests: string[] = [];
  const state = { status: 200 };
  const sessions = new Set<Http2Session>();
  const server = createSecureServer({ cert, key });
  server.on('session', (session) => sessions.add(session));
  server.on('stream', (stream: ServerHttp2Stream, headers) => {
    const path = String(headers[':path']);
    requests.push(`${String(headers[':method'])} ${path}`);
    stream.on('error', () => undefined);
    stream.respond({ ':status': state.status, 'content-type': 'application/json' });
    if (state.status !== 200) {
      stream.end(JSON.stringify({ kind: 'Status', status: 'Failure', code: state.status, message: 'no storage' }));
      return;
    }
    if (path.includes('watch=true')) {
      watches.add(stream);
      stream.on('close', () => watches.delete(stream));
      const metadata = { resourceVersion: '7', annotations: { 'k8s.io/initial-events-end': 'true' } };
      stream.write(`${JSON.stringify({ type: 'BOOKMARK', object: { kind: 'Pod', apiVersion: 'v1', metadata } })}\n`);
      return;
    }
    const list = { kind: 'PodList', apiVersion: 'v1', metadata: { resourceVersion: '7' }, items: [] };
    const object = { kind: 'ConfigMap', apiVersion: 'v1', metadata: { name, resourceVersion: '7' } };
    stream.end(JSON.stringify(/\/pods(\?|$)/.test(path) ? list : object));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sockets = new Set<Socket>();
  const { port } = server.address() as AddressInfo;
  let isFrozen = false;
  const front = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    if (isFrozen) return;
    const behind = connect(port, '127.0.0.1');
    sockets.add(behind);
    behind.on('error', () => undefined);
    socket.pipe(behind).pipe(socket);
  });
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const kill = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    for (const session of sessions) session.destroy();
    await Promise.all([front, server].map((one) => new Promise((resolve) => one.close(resolve))));
  };
  t.after(kill);
  return {
    url: `https://127.0.0.1:${(front.address() as AddressInfo).port}`,
    requests,
    watches,
    sessions,
    get status() {
      return state.status;
    },
    set status(status) {
      state.status = status;
    },
    freeze() {
      isFrozen = true;
      for (const socket of sockets) socket.unpipe().pause();
    },
    kill,
  };
}

function clientOf(t: TestContext, servers: readonly Server[], options: { readonly timeoutMs?: number } = {}) {
  const list = new ServerList(
    servers.map(({ url }) => url),
    systemClock,
  );
  const client = new HttpClient({ server: list.current, servers: list, ca: pem.ca, clock: systemClock, ...options });
  t.after(() => client.close());
  return { list, client };
}

const openSessions = ({ sessions }: Server): number => [...sessions].filter((session) => !session.closed).length;

const nameFrom = async (client: HttpClient): Promise<string | undefined> =>
  (await client.get(configMaps, 'default', 'x')).metadata.name;

test('requests go to the next server when the first refuses connections', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  const { client, list } = clientOf(t, [first, second]);
  assert.equal(await nameFrom(client), 'first');
  await first.kill();
  assert.equal(await nameFrom(client), 'second');
  assert.equal(list.current, second.url);
});

test('a node that is listed as a server gets no request, though the CA of the cluster signed its certificate', async (t) => {
  const [evil, second] = [await startServer(t, 'evil', ofNode), await startServer(t, 'second')];
  const { client, list } = clientOf(t, [evil, second]);
  assert.equal(await nameFrom(client), 'second');
  await second.kill();
  await assert.rejects(nameFrom(client));
  const older = new HttpClient({ server: evil.url, ca: pem.ca, clock: systemClock, http2: false });
  t.after(() => older.close());
  await assert.rejects(nameFrom(older), /has the certificate of a node/);
  assert.deepEqual(evil.requests, []);
  assert.ok(list.all.includes(evil.url));
});

test('all servers are tried', async (t) => {
  const servers = await Promise.all(['a', 'b', 'c', 'd'].map((name) => startServer(t, name)));
  const { client } = clientOf(t, servers);
  await Promise.all(servers.slice(0, 3).map((server) => server.kill()));
  assert.equal(await nameFrom(client), 'd');
});

test('watches are resumed at the next server when the first one is killed, without a pause', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  const { client } = clientOf(t, [first, second]);
  const informers = new Informers({ client, clock: systemClock, logger: silentLogger, watchList: false });
  t.after(() => informers.close());
  const cache = informers.for(pods);
  await cache.synced();
  await until('the watch', () => first.watches.size === 1);
  await first.kill();
  await until('the resumed watch', () => second.watches.size === 1);
  assert.deepEqual(
    second.requests.filter((path) => path.startsWith('GET')).map((path) => path.includes('resourceVersion=7')),
    [true],
    'it is resumed from its revision, without another list',
  );
});

test('a server that no longer answers is left by its open watch and by requests of other clients', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  const { client, list } = clientOf(t, [first, second]);
  const other = new HttpClient({ server: list.current, servers: list, ca: pem.ca, clock: systemClock });
  t.after(() => other.close());
  const informers = new Informers({ client, clock: systemClock, logger: silentLogger, watchList: false });
  t.after(() => informers.close());
  await informers.for(pods).synced();
  await until('the watch', () => first.watches.size === 1);
  assert.equal(await nameFrom(other), 'first');
  first.freeze();
  assert.equal(await nameFrom(other), 'second', 'a request that waits is repeated');
  await until('the resumed watch', () => second.watches.size === 1);
});

/** Resolves to a server in a thread of its own, which answers while this thread is blocked. */
async function startServerThread(t: TestContext): Promise<string> {
  const code = `
    const { createSecureServer } = require('node:http2');
    const { parentPort, workerData } = require('node:worker_threads');
    const server = createSecureServer(workerData);
    server.on('stream', (stream) => {
      stream.on('error', () => undefined);
      stream.respond({ ':status': 200, 'content-type': 'application/json' });
      stream.write('{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}\\n');
    });
    server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
  `;
  const worker = new Worker(code, { eval: true, workerData: { cert: pem.cert, key: pem.key } });
  t.after(() => worker.terminate());
  const [port] = (await once(worker, 'message')) as [number];
  return `https://127.0.0.1:${port}`;
}

test('a server whose answer to a ping waits in the socket, because this process was frozen, is kept', async (t) => {
  const [url, other] = [await startServerThread(t), await startServer(t, 'other')];
  const list = new ServerList([url, other.url], systemClock);
  let freezes = 0;
  const clock = {
    ...systemClock,
    after(delayMs: number, callback: () => void) {
      const timer = systemClock.after(delayMs, callback);
      // The limit of a ping. The ping itself is sent in this turn of the event loop.
      if (delayMs === 1200 && freezes++ === 0)
        setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1300));
      return timer;
    },
  };
  const client = new HttpClient({ server: url, servers: list, ca: pem.ca, clock });
  t.after(() => client.close());
  const stop = new AbortController();
  const watching = (async () => {
    for await (const event of client.watch(pods, { signal: stop.signal })) assert.equal(event.type, 'BOOKMARK');
  })();
  await until('pings after the freeze', () => freezes > 1 || list.current !== url);
  assert.equal(list.current, url);
  stop.abort(new Error('the test ends'));
  await watching;
});

test('a server that does not answer at the start is given up for the next one', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  first.freeze();
  const { client } = clientOf(t, [first, second]);
  assert.equal(await nameFrom(client), 'second');
});

test('a server that cannot serve is left, but not in circles', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  const { client, list } = clientOf(t, [first, second]);
  first.status = 503;
  await assert.rejects(nameFrom(client), /no storage/);
  assert.equal(await nameFrom(client), 'second');
  second.status = 503;
  await assert.rejects(nameFrom(client), /no storage/);
  assert.equal(list.current, second.url, 'it stays for some seconds');
});

test('a write whose outcome is unknown is not repeated', async (t) => {
  const [first, second] = [await startServer(t, 'first'), await startServer(t, 'second')];
  const { client } = clientOf(t, [first, second]);
  assert.equal(await nameFrom(client), 'first');
  first.freeze();
  const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'x', namespace: 'default' } };
  await assert.rejects(client.create(configMaps, 'default', object));
  assert.deepEqual(second.requests, []);
  assert.equal(await nameFrom(client), 'second');
});

/** Returns a transport and the beginning of its first request, which opens a connection. */
function beginRequest(t: TestContext, { url }: Server) {
  const transport = new HttpTransport({ server: url, ca: pem.ca, clock: systemClock });
  t.after(() => transport.close());
  return { transport, response: transport.request({ method: 'GET', path: '/x', headers: {} }) };
}

test('a connection that is renewed while it opens is closed, and the request that waits for it uses another one', async (t) => {
  const server = await startServer(t, 'first');
  const { transport, response } = beginRequest(t, server);
  transport.renewConnections();
  (await response).body.resume();
  await until('the second session alone', () => server.sessions.size === 2 && openSessions(server) === 1);
});

test('a request whose client is closed while the connection opens is refused', async (t) => {
  const server = await startServer(t, 'first');
  const { transport, response } = beginRequest(t, server);
  transport.close();
  await assert.rejects(response, /the client is closed/);
  await until('no session', () => openSessions(server) === 0);
  assert.deepEqual(server.requests, []);
});

test('a list of servers moves on once for each failure', () => {
  const clock = new FakeClock();
  const list = new ServerList(['a', 'b', 'a', 'c'], clock);
  const moves: string[] = [];
  const unfollow = list.onMove(() => moves.push(list.current));
  list.failed('a');
  list.failed('a');
  assert.deepEqual(moves, ['b'], 'the second report came from a request that began earlier');
  list.replace(['a', 'd']);
  assert.equal(list.current, 'b', 'a server that works is not left');
  list.failed('b');
  list.failed('a');
  assert.deepEqual(moves, ['b', 'a', 'd']);
  unfollow();
  list.replace(['d']);
  list.failed('d');
  assert.equal(list.current, 'd', 'there is no other');
});
