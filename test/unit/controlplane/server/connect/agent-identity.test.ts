/** Tests which servers the control plane takes for the agent of a node: for logs, for streams and for its own requests. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { after, before, beforeEach, describe, it } from 'node:test';
import { createDialer } from '../../../../../api/http/dialer.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { certificatePem, createCertificate, parseCertificate } from '../../../../../api/pki/certificate.ts';
import { certificateKeyHash } from '../../../../../api/pki/public-key-hash.ts';
import { generateKey, privateKeyPem } from '../../../../../api/pki/signing.ts';
import type { AgentOrigin, Rest } from '../../../../../controlplane/model/rest.ts';
import { type AgentCredentials, requestAgent } from '../../../../../controlplane/model/agent-request.ts';
import { agentOrigin } from '../../../../../controlplane/registry/kinds/core/connections.ts';
import { createConnector } from '../../../../../controlplane/server/connect/connector.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { FakeCatalog, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { type FakeServer, startFakeServer } from '../../../../fakes/fake-server.ts';
import { until } from '../../../../until.ts';

const HOST = '127.0.0.1';
const NODE = 'node/n1';

interface Pair {
  readonly cert: string;
  readonly key: string;
}

async function signedPair(ips: readonly string[], issuer?: Awaited<ReturnType<typeof newCa>>): Promise<Pair> {
  const keys = await generateKey('ecdsa');
  const nowMs = Date.now();
  const der = createCertificate(
    {
      subject: { commonName: 'system:node:n1' },
      publicKey: keys.publicKey,
      notBeforeMs: nowMs - 60_000,
      notAfterMs: nowMs + 3_600_000,
      names: { dns: [], ip: [...ips] },
      keyUsages: ['digital signature'],
      extendedKeyUsages: ['server auth'],
    },
    issuer?.issuer ?? { privateKey: keys.privateKey },
  );
  return { cert: certificatePem(der), key: privateKeyPem(keys.privateKey) };
}

async function newCa() {
  const keys = await generateKey('ecdsa');
  const nowMs = Date.now();
  const subject = { commonName: 'nodes' };
  const der = createCertificate(
    {
      subject,
      publicKey: keys.publicKey,
      notBeforeMs: nowMs - 60_000,
      notAfterMs: nowMs + 3_600_000,
      basicConstraints: { isCa: true },
      keyUsages: ['cert sign'],
    },
    { privateKey: keys.privateKey },
  );
  return { pem: certificatePem(der), issuer: { privateKey: keys.privateKey, certificate: parseCertificate(der) } };
}

/** The requests that reached a server. */
let received: string[] = [];
let agent: Server;
let pair: Pair;
let credentials: AgentCredentials;
let origin: AgentOrigin;
let anyCertificate = false;
let api: FakeServer;
const dialer = createDialer({ loopbackTargets: new Set([NODE]) });

const row = (name: string): Rest => ({
  info: fakeInfo('pods', 'Pod'),
  subresource: { name, group: '', version: 'v1', kind: 'Pod', verbs: ['get', 'create'] },
  connect: async () => ({
    origin,
    target: `/${name}`,
    purpose: 'kubelet' as const,
    name: NODE,
    plain: name === 'log',
    anyCertificate,
  }),
});

before(async () => {
  pair = await signedPair([]);
  agent = createServer(pair, (request, response) => {
    received.push(`${request.method} ${request.url}`);
    response.end('{"ok":true}');
  }).listen(0, HOST);
  agent.on('upgrade', (request, socket) => {
    received.push(`${request.method} ${request.url}`);
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n');
  });
  await once(agent, 'listening');
  const connector = createConnector({
    dialer,
    stripped: strippedHeaders({ names: [], prefixes: [] }),
    agentCredentials: () => credentials,
    clock: systemClock,
    logger: silentLogger,
  });
  api = await startFakeServer(new FakeCatalog([row('exec'), row('log')]), { connector });
});
after(async () => {
  await api.close();
  agent.close().closeAllConnections();
});
beforeEach(async () => {
  received = [];
  anyCertificate = false;
  credentials = await signedPair([]);
  origin = { secure: true, host: HOST, port: (agent.address() as AddressInfo).port };
  agent.setSecureContext(pair);
});

async function answerTo(path: string, ...headers: readonly string[]): Promise<string> {
  const socket = connectTls({ port: api.port, host: HOST, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('error', () => socket.destroy());
  const head = [`GET ${path} HTTP/1.1`, 'Host: api', 'Authorization: Bearer ann', ...headers, '', ''];
  socket.write(head.join('\r\n'));
  await until('the answer', () => /^HTTP\/1\.1 \d+ /.test(text));
  socket.destroy();
  return text.slice(9, 12);
}

const POD = '/api/v1/namespaces/ns/pods/p';
/** Resolves to the code of each kind of connection to the agent. */
async function answers(): Promise<{ log: string; exec: string; own: string }> {
  const log = await answerTo(`${POD}/log`);
  const exec = await answerTo(`${POD}/exec`, 'Connection: Upgrade', 'Upgrade: SPDY/3.1');
  const own = await requestAgent(
    { dialer, credentials: () => credentials },
    { node: 'n1', origin, method: 'GET', path: '/stats', timeoutMs: 5_000, largestBytes: 100 },
  ).then(
    () => '200',
    (error: unknown) => String(error),
  );
  return { log, exec, own };
}
const SERVED = { log: '200', exec: '101', own: '200' };

async function refusedUnseen(why: RegExp): Promise<void> {
  const { log, exec, own } = await answers();
  assert.deepEqual([log, exec], ['503', '500']);
  assert.match(own, why);
  assert.deepEqual(received, [], 'nothing of a request reaches another server');
}

describe('the server at the address of a node', () => {
  it('is its agent if the certificate has the key that the agent published', async () => {
    origin = { ...origin, servingKeys: [certificateKeyHash(pair.cert)] };
    assert.deepEqual(await answers(), SERVED);
  });

  it('gets no request if its certificate has another key than the agent published', async () => {
    origin = { ...origin, servingKeys: [certificateKeyHash(pair.cert)] };
    agent.setSecureContext(await signedPair([HOST]));
    await refusedUnseen(/certificate of another key than node\/n1 published .* remove the annotation/);
  });

  it('gets no request if what was published is no key', async () => {
    origin = { ...origin, servingKeys: [''] };
    await refusedUnseen(/certificate of another key/);
  });

  it('may have any certificate if nothing was published, as that of a kubelet', async () => {
    assert.deepEqual(await answers(), SERVED);
  });

  it('may have any certificate for logs with insecureSkipTLSVerifyBackend', async () => {
    anyCertificate = true;
    origin = { ...origin, servingKeys: ['sha256:00'] };
    assert.equal(await answerTo(`${POD}/log`), '200');
  });

  it('needs a certificate of --kubelet-certificate-authority with its address', async () => {
    const ca = await newCa();
    credentials = { ...credentials, ca: ca.pem };
    await refusedUnseen(/self[- ]signed/);
    agent.setSecureContext(await signedPair(['127.0.0.9'], ca));
    await refusedUnseen(/does not match certificate's altnames|not in the cert/);
    agent.setSecureContext(await signedPair([HOST], ca));
    assert.deepEqual(await answers(), SERVED);
  });
});

describe('the origin of an agent', () => {
  const node = {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'n1', annotations: { 'orchlet.local/serving-keys': 'sha256:aa,sha256:bb' } },
    status: {
      addresses: [
        { type: 'InternalIP', address: '10.0.0.1' },
        { type: 'Hostname', address: 'n1.example.com' },
      ],
    },
  };

  it('has the first address of the preferred types', () => {
    assert.equal(agentOrigin(node, ['ExternalIP', 'Hostname', 'InternalIP'])?.host, 'n1.example.com');
    assert.equal(agentOrigin(node, ['InternalIP', 'Hostname'])?.host, '10.0.0.1');
    assert.equal(agentOrigin(node, ['ExternalIP']), undefined);
  });

  it('has the keys that its agent published', () =>
    assert.deepEqual(agentOrigin(node, ['InternalIP'])?.servingKeys, ['sha256:aa', 'sha256:bb']));
});
