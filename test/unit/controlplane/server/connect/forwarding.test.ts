/**
 * Tests the exact bytes of a request that the target of a proxy, a tunnel or an APIService receives, and malicious responses.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { after, before, beforeEach, describe, it } from 'node:test';
import { createDialer } from '../../../../../api/http/dialer.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { ConnectRequest, Rest } from '../../../../../controlplane/model/rest.ts';
import { passAggregated } from '../../../../../controlplane/server/connect/aggregated.ts';
import { createConnector } from '../../../../../controlplane/server/connect/connector.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { FakeCatalog, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { type FakeServer, selfSigned, startFakeServer } from '../../../../fakes/fake-server.ts';
import { until } from '../../../../until.ts';

const HOST = '127.0.0.1';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** The data that each connection to a target received. `answer` responds to each request head. */
let received: string[] = [];
let answer = OK;
let plain: Server;
let secure: Server;
let api: FakeServer;

function answering(socket: Socket): void {
  const index = received.push('') - 1;
  socket.on('data', (chunk) => {
    received[index] = (received[index] ?? '') + chunk.toString('latin1');
    if ((received[index] ?? '').includes('\r\n\r\n')) socket.write(answer);
  });
  socket.on('error', () => socket.destroy());
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

function row(name: string): Rest {
  return {
    info: fakeInfo('pods', 'Pod'),
    subresource: { name, group: '', version: 'v1', kind: 'Pod', verbs: ['get', 'create'] },
    connect: async (_context: unknown, _namespace: string, _pod: string, request: ConnectRequest) => ({
      origin: { secure: false, host: HOST, port: portOf(plain) },
      target: request.rawPath === '' ? '/' : request.rawPath,
      purpose: 'proxy' as const,
      name: 'service/ns/target',
      plain: false,
    }),
  };
}

before(async () => {
  plain = createTcpServer(answering).listen(0, HOST);
  const material = await selfSigned();
  secure = createTlsServer(material, answering).listen(0, HOST);
  const stripped = strippedHeaders({ names: ['X-Foo-User', 'X-Foo-Group'], prefixes: ['X-Foo-Extra-'] });
  const connector = createConnector({
    dialer: createDialer({ loopbackTargets: new Set(['service/ns/target']) }),
    stripped,
    agentCredentials: () => undefined,
    clock: systemClock,
    logger: silentLogger,
  });
  const service = { metadata: { name: 'v1.ext.example.com' }, spec: {} };
  const aggregated = passAggregated(
    {
      find: (group, version) => (group === 'ext.example.com' && version === 'v1' ? service : undefined),
      isAvailable: () => true,
      target: () => ({
        host: HOST,
        port: portOf(secure),
        service: 'service/ns/target',
        serverName: 'ext.ns.svc',
        tls: { ...material, rejectUnauthorized: false, servername: 'ext.ns.svc' },
      }),
    },
    { clock: systemClock, stripped, dialer: createDialer({ loopbackTargets: new Set(['service/ns/target']) }) },
  );
  api = await startFakeServer(new FakeCatalog([row('exec'), row('proxy')]), { connector, aggregated });
});
after(async () => {
  await api.close();
  plain.close();
  secure.close();
});
beforeEach(() => {
  received = [];
  answer = OK;
});

/** Sends raw bytes over one connection, and collects the received bytes. */
async function sending(...parts: readonly string[]): Promise<{ readonly socket: TLSSocket; text: () => string }> {
  const socket = connectTls({ port: api.port, host: HOST, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('error', () => socket.destroy());
  for (const part of parts) socket.write(part);
  return { socket, text: () => text };
}

const head = (target: string, ...headers: readonly string[]): string =>
  [`GET ${target} HTTP/1.1`, 'Host: api', 'Authorization: Bearer ann', ...headers, '', ''].join('\r\n');

describe('an aggregated API', () => {
  it('gets the path and query byte for byte', async () => {
    const target = '/apis/ext.example.com/v1/namespaces/ns1/pods/a%20b?x=%2F&y=@z//';
    const { socket, text } = await sending(head(target));
    await until('the answer', () => text().includes('200 OK'));
    assert.match(received[0] ?? '', new RegExp(`^GET ${target.replaceAll(/[?./]/g, '\\$&')} HTTP/1.1\r\n`));
    socket.destroy();
  });

  for (const target of [
    '//apis%2Fext.example.com%2Fv1%2Fnamespaces%2Fns1%2Fpods%2Fx@other.example.com/?q=1',
    '/apis/ext.example.com/v1/namespaces/ns1/pods/a\\..\\..\\..\\namespaces\\kube-system\\secrets\\x',
    '/apis/ext.example.com/v1/namespaces/ns1/pods/../../../secrets',
    '/apis/ext.example.com/v1/namespaces/ns1/pods/%2e%2e/secrets',
    '/openapi/v3/apis/ext.example.com/v1/../../../secrets',
    '/apis/ext.example.com/v1/namespaces/ns1/pods/#x',
    '/apis/ext.example.com/v1/namespaces/ns1/pods?limit=1#&fieldSelector=metadata.name%3Dx',
  ])
    it(`never sees ${target}`, async () => {
      const { socket, text } = await sending(head(target));
      await until('an answer', () => text().includes('HTTP/1.1 '));
      assert.doesNotMatch(text(), /^HTTP\/1.1 200/);
      assert.deepEqual(received, []);
      socket.destroy();
    });

  it('gets no header by which the client names a user', async () => {
    const { socket, text } = await sending(
      head(
        '/apis/ext.example.com/v1/pods',
        'X-Foo-User: admin',
        'X-Foo-Group: system:masters',
        'X-Foo-Extra-Scopes: all',
        'X-Remote-User: root',
      ),
    );
    await until('the answer', () => text().includes('200 OK'));
    const names = (received[0] ?? '').toLowerCase();
    assert.match(names, /x-remote-user: ann\r\n/);
    assert.doesNotMatch(names, /x-foo|root|authorization/);
    socket.destroy();
  });
});

const FORGED = [
  ...['User', 'Uid', 'Group', 'Extra-Scopes'].flatMap((name) => [
    `Impersonate-${name}: other`,
    `X-Remote-${name}: forged`,
  ]),
  ...['Proxy-Authorization: Basic forged', 'X-Foo-User: forged'],
];
for (const [what, target, ...more] of [
  ['an aggregated API', '/apis/ext.example.com/v1/pods'],
  ['a proxied pod', '/api/v1/namespaces/n/pods/p/proxy/'],
  ['a tunnel', '/api/v1/namespaces/n/pods/p/exec', 'Connection: Upgrade', 'Upgrade: websocket'],
] as const)
  it(`${what} gets neither credentials of the client nor headers of another user`, async () => {
    const { socket } = await sending(head(target, ...FORGED, 'X-Kept: kept', ...more));
    await until('the request', () => (received[0] ?? '').includes('\r\n\r\n'));
    assert.match(received[0] ?? '', /x-kept: kept\r\n/i);
    assert.doesNotMatch(received[0] ?? '', /forged|bearer|impersonate|x-foo/i);
    socket.destroy();
  });

describe('a proxied pod', () => {
  it('gets the rest of the path as the client encoded it', async () => {
    const { socket, text } = await sending(head('/api/v1/namespaces/n/pods/p/proxy/a%2Fb%3Fc/'));
    await until('the answer', () => text().includes('200 OK'));
    assert.match(received[0] ?? '', /^GET \/a%2Fb%3Fc\/ HTTP\/1.1\r\n/);
    socket.destroy();
  });

  it('that answers a plain request with an upgrade gets a 500 to its client, who would wait for ever', async () => {
    answer = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd\r\n\r\n';
    for (const target of ['/api/v1/namespaces/n/pods/p/proxy/', '/apis/ext.example.com/v1/pods']) {
      const { socket, text } = await sending(head(target));
      await until('the answer', () => text().includes('HTTP/1.1 500 '));
      await until('the message of the error', () =>
        text().includes('backend tried to switch protocol \\"odd\\" when \\"\\" was requested'),
      );
      socket.destroy();
    }
  });

  it('gets no origin of the request by the headers of its client', async () => {
    const forged = ['X-Forwarded-Uri: /evil', 'X-Forwarded-Host: evil', 'X-Forwarded-Proto: evil'];
    const { socket, text } = await sending(head('/api/v1/namespaces/n/pods/p/proxy/', ...forged));
    await until('the answer', () => text().includes('200 OK'));
    assert.doesNotMatch(received[0] ?? '', /evil/);
    assert.match(received[0] ?? '', /x-forwarded-uri: \/api\/v1\/namespaces\/n\/pods\/p\/proxy\/\r\n/);
    socket.destroy();
  });

  it('gets no length of a body that a read does not pass on, for which it would wait', async () => {
    const request = head('/api/v1/namespaces/n/pods/p/proxy/', 'Content-Length: 5');
    const { socket, text } = await sending(`${request}hello`);
    await until('the answer', () => text().includes('200 OK'));
    assert.doesNotMatch((received[0] ?? '').toLowerCase(), /content-length|hello/);
    socket.destroy();
  });
});

describe('a tunnel', () => {
  const EXEC = '/api/v1/namespaces/n/pods/p/exec';
  const upgrade = ['Connection: Upgrade', 'Upgrade: websocket'];

  it('stays closed when the target answers anything but 101: the next request does not reach the target', async () => {
    answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok';
    const { socket, text } = await sending(head(EXEC, ...upgrade), head('/api/v1/secrets'));
    await until('the end of the connection', () => socket.destroyed || socket.readableEnded);
    assert.match(text(), /^HTTP\/1.1 200 OK/);
    assert.match(text().toLowerCase(), /connection: close/);
    assert.equal(received.length, 1);
    assert.doesNotMatch(received.join(''), /secrets/);
  });

  it('does not carry the bearer token that stands among the sub-protocols', async () => {
    answer = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
    const token = 'base64url.bearer.authorization.k8s.io.c2VjcmV0';
    const { socket, text } = await sending(
      head(EXEC, ...upgrade, `Sec-WebSocket-Protocol: ${token}, v5.channel.k8s.io`),
    );
    await until('the answer', () => text().includes('101 Switching Protocols'));
    assert.match(received[0] ?? '', /sec-websocket-protocol: v5\.channel\.k8s\.io\r\n/i);
    assert.doesNotMatch(received[0] ?? '', /c2VjcmV0|Bearer/);
    socket.destroy();
  });
});

/** Sends a request over HTTP/2, and resolves to the headers and the body of the response. */
async function overHttp2(path: string): Promise<{ headers: IncomingHttpHeaders; body: string }> {
  const session = connectHttp2(`https://${HOST}:${api.port}`, { rejectUnauthorized: false });
  try {
    const stream = session.request({ ':path': path, authorization: 'Bearer ann' });
    const [headers] = (await once(stream, 'response')) as [IncomingHttpHeaders];
    return { headers, body: await text(stream) };
  } finally {
    session.destroy();
  }
}

describe('a response of a pod or an aggregated server over HTTP/2', () => {
  const answered = (head: string): string => `HTTP/1.1 ${head}\r\nContent-Length: 2\r\n\r\nok`;
  for (const path of ['/api/v1/namespaces/ns1/pods/a/proxy/x', '/apis/ext.example.com/v1/namespaces/ns/x']) {
    for (const [what, given, left] of [
      ['a header that HTTP/2 forbids', 'HTTP2-Settings: abc', 'http2-settings'],
      ['a header that it declares as one of its connection', 'Connection: X-Own\r\nX-Own: 1', 'x-own'],
    ] as const)
      it(`passes without ${what} (${path})`, async () => {
        answer = answered(`200 OK\r\n${given}\r\nX-Other: 2`);
        const { headers, body } = await overHttp2(path);
        assert.deepEqual([headers[':status'], headers[left], headers['x-other'], body], [200, undefined, '2', 'ok']);
      });

    it(`does not replace the id of the audit event (${path})`, async () => {
      answer = answered('200 OK\r\nAudit-Id: forged');
      assert.match(String((await overHttp2(path)).headers['audit-id']), /^[0-9a-f-]{36}$/);
    });

    for (const status of ['000', '600', '999'])
      it(`fails with 503 for the status ${status} (${path})`, async () => {
        answer = answered(`${status} X`);
        const { headers, body } = await overHttp2(path);
        assert.equal(headers[':status'], 503);
        assert.match(body, new RegExp(`the response has the status ${Number(status)}`));
      });

    for (const status of [204, 205])
      it(`has no length without a body (${status}, ${path})`, async () => {
        answer = answered(`${status} X`);
        const { headers, body } = await overHttp2(path);
        assert.deepEqual([headers[':status'], headers['content-length'], body], [status, undefined, '']);
      });
  }
});
