/**
 * Tests groups that another server serves, with a real server behind an APIService: it gets requests and upgrades with the
 * user's name, discovery and schemas include its resources, and its end is visible everywhere. Also tests the APIServices of
 * custom resources.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { Agent, createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect } from 'node:tls';
import { apiServices, customResourceDefinitions, services } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { send } from '../hostile/send.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const DAY = 86_400_000;
const TOKEN = 'aggregated-token';
const GROUP = 'echo.example.com';
const PREFIX = `/apis/${GROUP}/v1`;
const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
const directory = temporaryFolder();
const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
let plane: ControlPlane;
let backend: Server;
let caBundle = '';

async function servingIdentity(name: string): Promise<{ ca: string; cert: string; key: string }> {
  const [authority, server] = await Promise.all([generateKey('ecdsa'), generateKey('ecdsa')]);
  const times = { notBeforeMs: Date.now() - DAY, notAfterMs: Date.now() + DAY };
  const root = createCertificate(
    {
      subject: { commonName: 'backends' },
      publicKey: authority.publicKey,
      ...times,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: authority.privateKey },
  );
  const subject = { commonName: name };
  const leaf = createCertificate(
    { subject, publicKey: server.publicKey, ...times, extendedKeyUsages: ['server auth'], names: { dns: [name] } },
    { privateKey: authority.privateKey, certificate: parseCertificate(root) },
  );
  return { ca: certificatePem(root), cert: certificatePem(leaf), key: privateKeyPem(server.privateKey) };
}

const ECHO = 'com.example.Echo';
const DOCUMENTS: Readonly<Record<string, object>> = {
  [PREFIX]: {
    kind: 'APIResourceList',
    groupVersion: `${GROUP}/v1`,
    resources: [{ name: 'echoes', singularName: 'echo', kind: 'Echo', namespaced: false, verbs: ['get', 'list'] }],
  },
  '/openapi/v3': { paths: { [PREFIX.slice(1)]: { serverRelativeURL: `/openapi/v3${PREFIX}?hash=1` } } },
  [`/openapi/v3${PREFIX}`]: { openapi: '3.0.0', components: { schemas: { [ECHO]: { type: 'object' } } } },
  '/openapi/v2': {
    swagger: '2.0',
    paths: {
      [`${PREFIX}/echoes`]: { get: { responses: { 200: { schema: { $ref: `#/definitions/${ECHO}` } } } } },
      '/apis/other.example.com/v1/x': {},
    },
    definitions: { [ECHO]: { type: 'object' }, 'com.example.Unused': { type: 'object' } },
  },
};

before(async () => {
  const identity = await servingIdentity('echo.default.svc');
  caBundle = Buffer.from(identity.ca).toString('base64');
  backend = createServer(identity, (request, response) => {
    const path = new URL(request.url ?? '', 'https://backend').pathname;
    response.setHeader('content-type', 'application/json');
    const user = { user: request.headers['x-remote-user'], authorization: request.headers.authorization ?? '' };
    response.end(JSON.stringify(DOCUMENTS[path] ?? { path, ...user }));
  });
  backend.on('upgrade', (request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    socket.write(`hello ${request.headers['x-remote-user'] as string}\n`);
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => backend.listen(0, '127.0.0.1', resolve));
  writeFileSync(join(directory, 'tokens.csv'), `${TOKEN},ann,1,"system:masters"\n`);
  const flags = {
    tokenAuthFile: join(directory, 'tokens.csv'),
    scheduler: false,
    controllers: ['-*'],
    loopbackTargets: ['service/default/echo'],
  };
  plane = await startControlPlane({ memory: true, flags });
  await plane.client.create(services, 'default', {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'echo', namespace: 'default' },
    spec: { type: 'ExternalName', externalName: 'localhost' },
  } as unknown as KubeObject);
});

after(async () => {
  agent.destroy();
  await plane.close();
  backend.closeAllConnections();
  backend.close();
  rmSync(directory, { recursive: true, force: true });
});

async function get(path: string, accept = 'application/json'): Promise<{ status: number; text: string }> {
  const connection = { origin: plane.url, agent, token: TOKEN };
  return send(connection, { method: 'GET', path, accept });
}

async function json(path: string, accept?: string): Promise<unknown> {
  const { status, text } = await get(path, accept);
  assert.equal(status, 200, `${path}: ${text.slice(0, 300)}`);
  return JSON.parse(text) as unknown;
}

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

async function availability(name: string): Promise<Condition | undefined> {
  const { status } = (await plane.client.get(apiServices, '', name)) as { status?: { conditions?: Condition[] } };
  return status?.conditions?.find(({ type }) => type === 'Available');
}

interface Discovered {
  readonly items: readonly {
    readonly metadata: { readonly name?: string };
    readonly versions: readonly { readonly freshness: string; readonly resources: readonly object[] }[];
  }[];
}

const discovered = async (): Promise<Discovered['items'][number] | undefined> =>
  ((await json('/apis', AGGREGATED)) as Discovered).items.find(({ metadata }) => metadata.name === GROUP);

test('a server behind an APIService is available, is part of discovery, and gets requests with the calling user', async () => {
  await plane.client.create(apiServices, '', {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: `v1.${GROUP}` },
    spec: {
      group: GROUP,
      version: 'v1',
      groupPriorityMinimum: 2000,
      versionPriority: 10,
      caBundle,
      service: { namespace: 'default', name: 'echo', port: (backend.address() as AddressInfo).port },
    },
  } as unknown as KubeObject);
  const condition = await until('the API service', async () => {
    const found = await availability(`v1.${GROUP}`);
    return found?.status === 'True' ? found : undefined;
  });
  assert.equal(condition.reason, 'Passed');
  assert.equal(condition.message, 'all checks passed');

  assert.deepEqual(await json(`${PREFIX}/echoes/a`), { path: `${PREFIX}/echoes/a`, user: 'ann', authorization: '' });
  await until('the group in discovery', async () =>
    (await discovered())?.versions[0]?.freshness === 'Current' ? true : undefined,
  );
  const groups = (await json('/apis')) as { groups: { name: string; preferredVersion: object }[] };
  assert.deepEqual(groups.groups.find(({ name }) => name === GROUP)?.preferredVersion, {
    groupVersion: `${GROUP}/v1`,
    version: 'v1',
  });
  const index = (await json('/openapi/v3')) as { paths: Record<string, { serverRelativeURL: string }> };
  assert.equal(index.paths[PREFIX.slice(1)]?.serverRelativeURL, `/openapi/v3${PREFIX}?hash=1`);
  assert.deepEqual(await json(`/openapi/v3${PREFIX}?hash=1`), DOCUMENTS[`/openapi/v3${PREFIX}`]);
  const document = (await json('/openapi/v2')) as { paths: object; definitions: object };
  assert.ok(`${PREFIX}/echoes` in document.paths && '/api/v1/pods' in document.paths);
  assert.ok(!('/apis/other.example.com/v1/x' in document.paths), 'what it does not serve here is left out');
  assert.ok(ECHO in document.definitions && !('com.example.Unused' in document.definitions));
});

test('an upgraded connection reaches the server behind an APIService in both directions', async () => {
  const { port } = new URL(plane.url);
  const key = randomBytes(16).toString('base64');
  const text = await new Promise<string>((resolve, reject) => {
    const socket = connect({
      host: '127.0.0.1',
      port: Number(port),
      rejectUnauthorized: false,
      ALPNProtocols: ['http/1.1'],
    });
    let received = '';
    socket.on('secureConnect', () => {
      const lines = [
        `GET ${PREFIX}/echoes/a/exec HTTP/1.1`,
        'Host: x',
        `Authorization: Bearer ${TOKEN}`,
        'X-Remote-User: somebody-else',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        `Sec-WebSocket-Key: ${key}`,
      ];
      socket.write(`${lines.join('\r\n')}\r\n\r\nping\n`);
    });
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString();
      if (!received.includes('ping\n')) return;
      socket.destroy();
      resolve(received);
    });
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after: ${received}`)));
  });
  assert.match(text, /^HTTP\/1\.1 101 /);
  assert.match(text, /hello ann\nping\n$/);
});

test('an unreachable server is reported as unavailable, and its resources as stale', async () => {
  backend.closeAllConnections();
  await new Promise((resolve) => backend.close(resolve));
  // A change of the service takes effect without delay.
  await plane.client.patch(services, 'default', 'echo', {
    type: 'merge',
    body: { metadata: { labels: { touched: 'yes' } } },
  });
  const condition = await until('the condition', async () => {
    const found = await availability(`v1.${GROUP}`);
    return found?.status === 'False' ? found : undefined;
  });
  assert.equal(condition.reason, 'FailedDiscoveryCheck');
  assert.match(condition.message, new RegExp(`^failing or missing response from https://.*${PREFIX}: `));
  const gone = await until('the refusal', async () => {
    const answer = await get(`${PREFIX}/echoes`);
    return answer.status === 503 ? answer : undefined;
  });
  assert.equal(gone.text, 'service unavailable\n');
  const metrics = (await get('/metrics', 'text/plain')).text;
  assert.ok(metrics.includes(`aggregator_unavailable_apiservice{name="v1.${GROUP}"} 1`));
  assert.ok(metrics.includes('aggregator_unavailable_apiservice{name="v1.apps"} 0'));
  const shown = await until('stale discovery', async () => {
    const found = await discovered();
    return found?.versions[0]?.freshness === 'Stale' ? found : undefined;
  });
  assert.equal(shown.versions[0]?.resources.length, 1, 'what was known last');
  const { groups } = (await json('/apis')) as { groups: { name: string }[] };
  assert.ok(
    groups.some(({ name }) => name === GROUP),
    'the group stays as long as its APIService does',
  );
  await plane.client.delete(apiServices, '', `v1.${GROUP}`);
  await until('the end of the group', async () => ((await discovered()) === undefined ? true : undefined));
});

test('versions of custom resources have APIServices, which are restored if they are deleted and removed with the versions', async () => {
  const schema = { openAPIV3Schema: { type: 'object' } };
  await plane.client.create(customResourceDefinitions, '', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'things.auto.example.com' },
    spec: {
      group: 'auto.example.com',
      scope: 'Cluster',
      names: { plural: 'things', kind: 'Thing' },
      versions: [
        { name: 'v1', served: true, storage: true, schema },
        { name: 'v2', served: false, storage: false, schema },
      ],
    },
  } as unknown as KubeObject);
  const name = 'v1.auto.example.com';
  const found = async (): Promise<KubeObject | undefined> => {
    try {
      return await plane.client.get(apiServices, '', name);
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  };
  const made = await until('the API service', found);
  assert.deepEqual(made['spec'], {
    group: 'auto.example.com',
    version: 'v1',
    groupPriorityMinimum: 1000,
    versionPriority: 100,
  });
  assert.deepEqual(made.metadata.labels, { 'kube-aggregator.kubernetes.io/automanaged': 'true' });
  assert.equal((await availability(name))?.reason, 'Local');
  await plane.client.delete(apiServices, '', name);
  await until('the replaced object', async () => {
    const next = await found();
    return next !== undefined && next.metadata.uid !== made.metadata.uid ? true : undefined;
  });
  await assert.rejects(plane.client.get(apiServices, '', 'v2.auto.example.com'), isNotFound);
  await plane.client.delete(customResourceDefinitions, '', 'things.auto.example.com');
  await until('the deletion of the object', async () => ((await found()) === undefined ? true : undefined));
});
