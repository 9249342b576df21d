/**
 * Requests without credentials can read only health, version and the public information of the cluster. The test sends every
 * method to every path in the tables of the API server and of the agent, at each of their ports and at that of a standby.
 */
import assert from 'node:assert/strict';
import { connect, type ClientHttp2Session } from 'node:http2';
import { rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { PodHost } from '../../agent/server/pod-host.ts';
import { createAccess } from '../../agent/server/access.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { MetricsRegistry } from '../../api/component/metrics.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { ensurePki } from '../../controlplane/security/pki/pki.ts';
import { administratorCheck, peerCheck } from '../../controlplane/standby/identity.ts';
import {
  FENCE_PATH,
  FIRST_PATH,
  LOG_PATH,
  PEER_PREFIX,
  PROMOTE_PATH,
  STANDBY_PATH,
} from '../../controlplane/standby/peer-paths.ts';
import { createStandbyServer } from '../../controlplane/standby/standby-server.ts';
import { FakeClient } from '../fakes/fake-client.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { startServerUnderTest } from '../unit/agent/server/server-under-test.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;
const AT_ONCE = 64;
const ADMIN = { authorization: 'Bearer admin-token' };

/** Paths that everybody may read, by the roles that every cluster has. */
const PUBLIC = /^\/(?:healthz|livez|readyz|version)(?:\/|$)/;
const CLUSTER_INFO = '/api/v1/namespaces/kube-public/configmaps/cluster-info';

const directory = temporaryFolder();
let plane: ControlPlane;
let session: ClientHttp2Session;

before(async () => {
  writeFileSync(join(directory, 'tokens.csv'), 'admin-token,admin,1,"system:masters"\n');
  plane = await startControlPlane({
    memory: true,
    flags: {
      tokenAuthFile: join(directory, 'tokens.csv'),
      controllers: ['-*'],
      scheduler: false,
      // Versions that are off by default as well.
      runtimeConfig: { 'api/all': 'true' },
    },
  });
  session = connect(plane.url, { ca: plane.ca });
});

after(async () => {
  session.destroy();
  await plane.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

function ask(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  over = session,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stream = over.request({ ':method': method, ':path': path, ...headers });
    let status = 0;
    let text = '';
    stream.on('response', (answer) => (status = answer[':status'] ?? 0));
    stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
    stream.on('end', () => resolve({ status, text }));
    stream.on('error', reject);
    stream.end();
  });
}

async function inBatches<T>(items: readonly T[], run: (item: T) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += AT_ONCE) await Promise.all(items.slice(at, at + AT_ONCE).map(run));
}

interface Resources {
  readonly groupVersion: string;
  readonly resources: readonly { readonly name: string; readonly namespaced: boolean }[];
}

async function read<T>(path: string): Promise<T> {
  const { status, text } = await ask('GET', path, ADMIN);
  assert.equal(status, 200, `${path}: ${text}`);
  return JSON.parse(text) as T;
}

/** Returns the paths of a resource or subresource, for one object and for all. */
function pathsOf(prefix: string, { name, namespaced }: Resources['resources'][number]): string[] {
  const [resource = '', ...subresource] = name.split('/');
  const scopes = namespaced ? [`${prefix}/namespaces/default/${resource}`] : [`${prefix}/${resource}`];
  const below = scopes.map((scope) => [scope, 'x', ...subresource].join('/'));
  if (subresource.length > 0) return below.flatMap((path) => [path, `${path}/y`]);
  const collections = namespaced ? [...scopes, `${prefix}/${resource}`] : scopes;
  const watched = collections.map((path) => path.replace(prefix, `${prefix}/watch`));
  return [...collections, ...watched, ...collections.map((path) => `${path}?watch=1&timeoutSeconds=1`), ...below];
}

async function servedPaths(): Promise<readonly string[]> {
  const { paths } = await read<{ readonly paths: readonly string[] }>('/');
  const versions = paths.filter((path) => /^\/(?:api|apis\/[^/]+)\/[^/]+$/.test(path));
  const resources = await Promise.all(
    versions.map(async (prefix) => (await read<Resources>(prefix)).resources.flatMap((one) => pathsOf(prefix, one))),
  );
  const documents = versions.map((prefix) => `/openapi/v3${prefix}`);
  const published = [CLUSTER_INFO, `${CLUSTER_INFO.slice(0, CLUSTER_INFO.lastIndexOf('/'))}/other`];
  return [...new Set(['/', ...paths, ...documents, ...published, ...resources.flat()])];
}

test('nobody without credentials is served by the API server', async (t) => {
  const paths = await servedPaths();
  const requests = paths.flatMap((path) => METHODS.map((method) => ({ method, path })));
  const counts = new Map<number, number>();
  const served: string[] = [];
  await inBatches(requests, async ({ method, path }) => {
    const { status } = await ask(method, path);
    counts.set(status, (counts.get(status) ?? 0) + 1);
    const mayBeRead = PUBLIC.test(path) || path === CLUSTER_INFO;
    // HEAD is authorized as a read, and is not served (405).
    if (status !== 401 && status !== 403 && !(mayBeRead && (method === 'GET' || status === 405)))
      served.push(`${method} ${path}: ${status}`);
  });
  t.diagnostic(`${paths.length} paths, ${requests.length} requests: ${JSON.stringify(Object.fromEntries(counts))}`);
  assert.ok(paths.length > 300, `only ${paths.length} paths were found`);
  assert.deepEqual(served, []);
  assert.equal((await ask('GET', CLUSTER_INFO)).status, 200);
});

test('nobody with a wrong token is served by the API server, not even health', async (t) => {
  const paths = await servedPaths();
  const served: string[] = [];
  await inBatches(paths, async (path) => {
    const { status } = await ask('GET', path, { authorization: 'Bearer wrong' });
    if (status !== 401) served.push(`${path}: ${status}`);
  });
  t.diagnostic(`${paths.length} paths`);
  assert.deepEqual(served, []);
});

const nobody = new Proxy({} as PodHost, {
  get: (_target, name) => () => {
    throw new Error(`${String(name)} was called for a request that is not allowed`);
  },
});

for (const anonymous of ['any', 'health', 'none'] as const) {
  // Health requires the permission to read it, too.
  const refusals = anonymous === 'any' ? [403] : anonymous === 'health' ? [401, 403] : [401];
  test(`nobody without credentials is served by the agent where ${anonymous} may be anonymous`, async (t) => {
    const clock = new FakeClock();
    const client = new FakeClient(clock);
    client.intercept(() => ({ metadata: {}, status: { allowed: false } }) as never);
    const server = await startServerUnderTest({
      host: nobody,
      systemLogs: undefined,
      access: createAccess({
        client,
        clock: systemClock,
        nodeName: 'n',
        hasClientCa: true,
        anonymous,
        tokenWebhook: true,
        tokenTtlMs: 1000,
        authorization: 'Webhook',
        allowedTtlMs: 1000,
        refusedTtlMs: 1000,
      }),
    });
    try {
      const paths = [...new Set(server.routes.map(({ path }) => path.replaceAll(/:\w+/g, 'x').replaceAll('*', 'y')))];
      const served: string[] = [];
      let requests = 0;
      for (const path of paths) {
        for (const method of METHODS) {
          requests += 1;
          const answer = await server.ask(`${method} ${path}`);
          if (!refusals.includes(answer.status)) served.push(`${method} ${path}: ${answer.status}`);
        }
        requests += 1;
        const upgraded = await upgrade(server.port, path);
        if (![...refusals, 404].includes(upgraded)) served.push(`upgrade of ${path}: ${upgraded}`);
      }
      t.diagnostic(`${paths.length} paths, ${requests} requests`);
      assert.ok(paths.length > 20, `only ${paths.length} paths were found`);
      assert.deepEqual(served, []);
    } finally {
      await server.close();
    }
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The host of an agent on which everything but health and the list of pods throws. */
const shown = new Proxy({} as PodHost, {
  get: (_target, name) => () => {
    if (name === 'pods') return [];
    if (name === 'syncLoopHealth' || name === 'devicePluginHealth') return '';
    throw new Error(`${String(name)} was called at a port for everybody`);
  },
});

/** Sends every method, and an upgrade, to the paths at a port without TLS. Returns what is answered with success. */
async function openAt(port: number, paths: readonly string[]): Promise<readonly string[]> {
  const found: string[] = [];
  for (const path of paths) {
    for (const method of METHODS) {
      const status = await statusOf({ port, path, method });
      assert.ok(status < 500, `${method} ${path}: ${status}`);
      if (status < 300) found.push(`${method} ${path}`);
    }
    assert.notEqual(await upgrade(port, path, httpRequest), 101, path);
  }
  return found;
}

const HEALTH = ['', '/ping', '/log', '/syncloop', '/device-plugin'].map((check) => `/healthz${check}`);
const at = (paths: readonly string[], methods: readonly string[]): readonly string[] =>
  paths.flatMap((path) => methods.map((method) => `${method} ${path}`));

test('everybody reads pods and metrics at the read-only port of an agent, health at that of health checks, and no more', async (t) => {
  const [readOnlyPort, healthPort] = [await freePort(), await freePort()];
  const server = await startServerUnderTest({ host: shown, systemLogs: undefined, readOnlyPort, healthPort });
  try {
    const paths = [...new Set(server.routes.map(({ path }) => path.replaceAll(/:\w+/g, 'x').replaceAll('*', 'y')))];
    t.diagnostic(`${paths.length} paths, ${2 * paths.length * (METHODS.length + 1)} requests`);
    const metrics = ['', '/cadvisor', '/resource', '/probes', '/slis'].map((page) => `/metrics${page}`);
    const readable = new Set([
      ...at(['/pods', '/pods/'], ['GET']),
      ...at(['/stats/summary'], ['GET', 'POST']),
      ...at([...metrics, ...HEALTH], METHODS),
    ]);
    assert.deepEqual(
      (await openAt(readOnlyPort, paths)).filter((one) => !readable.has(one)),
      [],
    );
    assert.deepEqual(
      (await openAt(healthPort, paths)).filter((one) => !at(HEALTH, METHODS).includes(one)),
      [],
    );
  } finally {
    await server.close();
  }
});

test('nobody without credentials is served by a standby, except its health', async (t) => {
  const pki = await ensurePki({
    directory: join(directory, 'pki'),
    clock: systemClock,
    logger: silentLogger,
    hosts: ['localhost'],
    addresses: () => ['127.0.0.1'],
    serviceIp: undefined,
  });
  const { apiserver, ca, frontProxyCa } = pki.material();
  const neverServed = (): Promise<void> => Promise.reject(new Error('a stranger was served'));
  const peerPathNames = [LOG_PATH, FENCE_PATH, FIRST_PATH, STANDBY_PATH, PROMOTE_PATH];
  const server = createStandbyServer({
    tls: { cert: apiserver.certificatePem, key: apiserver.privateKeyPem },
    isPeer: peerCheck(frontProxyCa.certificatePem, systemClock),
    isAdministrator: administratorCheck(ca.certificatePem, systemClock),
    routes: peerPathNames.flatMap((path) =>
      (['GET', 'POST'] as const).map((method) => ({ method, path, handle: neverServed })),
    ),
    metrics: new MetricsRegistry(),
    reason: () => 'it only copies',
    clock: systemClock,
    logger: silentLogger,
  });
  const { port } = await server.listen(0, '127.0.0.1');
  const stranger = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  try {
    const paths = [...(await servedPaths()), ...peerPathNames, `${PEER_PREFIX}other`];
    const served: string[] = [];
    await inBatches(at(paths, METHODS), async (line) => {
      const [method = '', path = ''] = line.split(' ');
      const { status } = await ask(method, path, {}, stranger);
      if (status !== 403 && status !== 503) served.push(`${status} ${path}`);
    });
    t.diagnostic(`${paths.length} paths, ${paths.length * METHODS.length} requests`);
    assert.deepEqual([...new Set(served)].toSorted(), ['200 /healthz', '200 /livez']);
  } finally {
    stranger.destroy();
    await server.close();
  }
});

interface Asked {
  readonly port: number;
  readonly path: string;
  readonly method: string;
}

function statusOf(asked: Asked): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest({ host: '127.0.0.1', ...asked, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    })
      .on('error', reject)
      .end();
  });
}

function upgrade(port: number, path: string, request: typeof httpRequest = httpsRequest): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { connection: 'Upgrade', upgrade: 'SPDY/3.1' };
    const options = { host: '127.0.0.1', port, path, method: 'POST', headers, agent: false, rejectUnauthorized: false };
    const sent = request(options, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on('upgrade', (response, socket) => {
      socket.destroy();
      resolve(response.statusCode ?? 0);
    });
    sent.on('error', reject);
    sent.end();
  });
}
