/** Tests objects whose addresses lead to this host: the API server responds with an error instead of connecting. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { apiServices, nodes, pods, services } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { hostAddresses } from '../../controlplane/start/host-address.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const directory = temporaryFolder();
const sockets = new Set<Socket>();
let plane: ControlPlane;
let victim: Server;
let victimPort: number;
let connections = 0;

before(async () => {
  victim = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
  });
  await new Promise<void>((resolve) => victim.listen(0, '127.0.0.1', resolve));
  victimPort = (victim.address() as AddressInfo).port;
  const tokens = join(directory, 'tokens.csv');
  writeFileSync(tokens, 'root-token,root,1,"system:masters"\n');
  plane = await startControlPlane({
    memory: true,
    flags: {
      bindAddress: '0.0.0.0',
      tokenAuthFile: tokens,
      controllers: ['-*'],
      scheduler: false,
      disableAdmissionPlugins: ['ServiceAccount'],
      loopbackTargets: ['node/declared'],
    },
  });
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'default' },
    spec: { nodeName: 'n', containers: [{ name: 'c', image: 'i', ports: [{ containerPort: victimPort }] }] },
  } as unknown as KubeObject;
  await plane.client.create(pods as never, 'default', pod);
  for (const name of ['n', 'declared'])
    await plane.client.create(nodes as never, '', { apiVersion: 'v1', kind: 'Node', metadata: { name } } as never);
});

after(async () => {
  await plane.close();
  for (const socket of sockets) socket.destroy();
  victim.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

function call(path: string, options: { readonly method?: string; readonly upgrade?: boolean } = {}): Promise<Answer> {
  const { hostname, port } = new URL(plane.url);
  const headers = {
    authorization: 'Bearer root-token',
    ...(options.upgrade === true
      ? { connection: 'Upgrade', upgrade: 'SPDY/3.1', 'x-stream-protocol-version': 'v4.channel.k8s.io' }
      : {}),
  };
  return new Promise((resolve, reject) => {
    const sent = request(
      { hostname, port, path, method: options.method ?? 'GET', headers, ca: plane.ca, agent: false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }));
        response.on('error', reject);
      },
    );
    sent.setTimeout(20_000, () => sent.destroy(new Error(`no answer to ${path}`)));
    sent.on('error', reject);
    sent.end();
  });
}

/** Sets the address as a node could do in its own status. */
async function pointNode(name: string, address: string, port: number, type = 'InternalIP'): Promise<void> {
  const patch = {
    status: { addresses: [{ type, address }], daemonEndpoints: { kubeletEndpoint: { Port: port } } },
  };
  // A strategic merge patch would merge the list of addresses by type.
  await plane.client.patch(nodes, '', name, { type: 'merge', body: patch, subresource: 'status' });
}

const NODE_PATHS: readonly (readonly [
  path: string,
  options?: { readonly method?: string; readonly upgrade?: boolean },
])[] = [
  ['/api/v1/nodes/n/proxy/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', { method: 'POST' }],
  ['/api/v1/nodes/n/proxy/api/v1/secrets'],
  ['/api/v1/nodes/n/proxy/exec/ns/p/c', { method: 'POST', upgrade: true }],
  ['/api/v1/namespaces/default/pods/p/log'],
  ['/api/v1/namespaces/default/pods/p/log?insecureSkipTLSVerifyBackend=true'],
  ['/api/v1/namespaces/default/pods/p/exec?command=id', { method: 'POST', upgrade: true }],
  ['/api/v1/namespaces/default/pods/p/attach', { method: 'POST', upgrade: true }],
  ['/api/v1/namespaces/default/pods/p/portforward', { method: 'POST', upgrade: true }],
];

async function refused(paths: typeof NODE_PATHS): Promise<void> {
  const earlier = connections;
  for (const [path, options] of paths) {
    const { status, text } = await call(path, options);
    assert.equal(status, 400, `${path}: ${text}`);
    assert.match(text, /address not allowed/, path);
  }
  assert.equal(connections, earlier);
}

for (const [type, address] of [
  ['InternalIP', '127.0.0.1'],
  ['InternalIP', '::1'],
  ['InternalIP', '::ffff:127.0.0.1'],
  ['InternalIP', '169.254.169.254'],
  ['Hostname', 'localhost'],
] as const) {
  test(`a node whose ${type} is ${address} is called by nothing`, async () => {
    await pointNode('n', address, victimPort, type);
    await refused([...NODE_PATHS, [`/api/v1/nodes/n:${victimPort + 1}/proxy/`]]);
    const usage = await call('/apis/metrics.k8s.io/v1beta1/nodes/n');
    assert.equal(usage.status, 404, usage.text);
  });
}

test('a node that names the API server itself is called by nothing, at any address of the host', async (t) => {
  const addresses = hostAddresses();
  if (!addresses.some((address) => !/^(?:127\.|::1$)/.test(address)))
    t.diagnostic('this host has loopback addresses alone, which are refused as such');
  assert.ok(addresses.length > 0);
  for (const address of addresses) {
    await pointNode('n', address, plane.port);
    await refused(NODE_PATHS);
  }
});

test('a node that is declared to be on loopback is called there, but never at the API server', async () => {
  await pointNode('declared', '127.0.0.1', victimPort);
  const earlier = connections;
  const answer = call('/api/v1/nodes/declared/proxy/healthz');
  await until('a connection', () => (connections > earlier ? true : undefined));
  for (const socket of sockets) socket.destroy();
  assert.equal((await answer).status, 503);
  await pointNode('declared', '127.0.0.1', plane.port);
  const { status, text } = await call('/api/v1/nodes/declared/proxy/api/v1/secrets');
  assert.deepEqual([status, /address not allowed/.test(text)], [400, true], text);
});

for (const address of ['127.0.0.1', '::1', '169.254.169.254', '0.0.0.0']) {
  test(`a pod whose address is ${address} is not proxied to`, async () => {
    await plane.client.patch(pods, 'default', 'p', {
      type: 'merge',
      body: { status: { podIP: address, podIPs: [{ ip: address }] } },
      subresource: 'status',
    });
    await refused([
      ['/api/v1/namespaces/default/pods/p/proxy/x'],
      [`/api/v1/namespaces/default/pods/http:p:${victimPort}/proxy/x`, { method: 'POST' }],
      [`/api/v1/namespaces/default/pods/https:p:${victimPort}/proxy/x`],
      [`/api/v1/namespaces/default/pods/p:${victimPort}/proxy/x`, { upgrade: true }],
    ]);
  });
}

test('an APIService whose service is another name for this host is not available, and nothing is sent there', async () => {
  const earlier = connections;
  await plane.client.create(services as never, 'default', {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'out', namespace: 'default' },
    spec: { type: 'ExternalName', externalName: 'localhost' },
  } as never);
  await plane.client.create(apiServices as never, '', {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: 'v1.out.example.com' },
    spec: {
      group: 'out.example.com',
      version: 'v1',
      service: { namespace: 'default', name: 'out', port: victimPort },
      insecureSkipTLSVerify: true,
      groupPriorityMinimum: 1000,
      versionPriority: 15,
    },
  } as never);
  interface Conditions {
    readonly conditions?: readonly { readonly type: string; readonly status: string; readonly message: string }[];
  }
  const condition = await until('a condition', async () => {
    const service = await plane.client.get(apiServices, '', 'v1.out.example.com');
    const found = (service as { status?: Conditions }).status?.conditions?.find(({ type }) => type === 'Available');
    return found?.message.includes('address not allowed') === true ? found : undefined;
  });
  assert.equal(condition.status, 'False');
  assert.equal((await call('/apis/out.example.com/v1/things')).status, 503);
  assert.equal(connections, earlier);
});
