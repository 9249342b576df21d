/** Tests the audit policy, the content of events, and the bounds of the backends. */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { constants } from 'node:http2';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { createAudit } from '../../../../../controlplane/server/audit/audit.ts';
import { BatchingBackend } from '../../../../../controlplane/server/audit/batching.ts';
import { blocking } from '../../../../../controlplane/server/audit/blocking.ts';
import type { AuditEvent } from '../../../../../controlplane/server/audit/event.ts';
import { legacyLine } from '../../../../../controlplane/server/audit/legacy-format.ts';
import { logSink } from '../../../../../controlplane/server/audit/log-sink.ts';
import { parseAuditPolicy, type AuditedRequest } from '../../../../../controlplane/server/audit/policy.ts';
import { truncating } from '../../../../../controlplane/server/audit/truncation.ts';
import { WebhookSink } from '../../../../../controlplane/server/audit/webhook-sink.ts';
import { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { startControlPlane } from '../../../../../controlplane/main.ts';
import { PathHandlers } from '../../../../../controlplane/server/path-handlers.ts';
import type { Entry, Rest } from '../../../../../controlplane/model/rest.ts';
import { createDialer } from '../../../../../api/http/dialer.ts';
import { createConnector } from '../../../../../controlplane/server/connect/connector.ts';
import { strippedHeaders } from '../../../../../controlplane/server/connect/forwarded-headers.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../../fakes/fake-catalog.ts';
import { until } from '../../../../until.ts';
import { startFakeServer } from '../../../../fakes/fake-server.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const directory = temporaryFolder();
after(() => rmSync(directory, { recursive: true, force: true }));

function request(info: Partial<AuditedRequest['info']>, user = 'ann', groups: readonly string[] = []): AuditedRequest {
  const base = {
    isResource: true,
    verb: 'get',
    path: '',
    group: '',
    resource: 'pods',
    subresource: '',
    namespace: 'n',
    name: '',
  };
  return { user: { name: user, groups }, info: { ...base, ...info } };
}

const policy = parseAuditPolicy(
  `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- {level: Metadata, resources: [{group: "", resources: [secrets, pods/log, "*/status"]}]}
- {level: Request, resources: [{group: "", resources: [configmaps], resourceNames: [one]}]}
- {level: RequestResponse, namespaces: [deep], omitStages: [ResponseStarted]}
- {level: None, userGroups: ["system:nodes"]}
- {level: Metadata, nonResourceURLs: ["/healthz*", "/version"]}
- {level: None, nonResourceURLs: ["*"]}
- {level: Request, resources: [{group: apps}]}
`,
  'policy.yaml',
);

const decisions: readonly (readonly [string, AuditedRequest, string])[] = [
  ['a user and verb that are left out', request({ verb: 'watch' }, 'system:kube-proxy'), 'None'],
  ['a resource', request({ resource: 'secrets' }), 'Metadata'],
  ['a subresource', request({ subresource: 'log' }), 'Metadata'],
  ['a subresource of anything', request({ resource: 'nodes', subresource: 'status' }), 'Metadata'],
  ['one name', request({ resource: 'configmaps', name: 'one' }), 'Request'],
  ['another name', request({ resource: 'configmaps', name: 'two' }), 'None'],
  ['a namespace', request({ resource: 'configmaps', namespace: 'deep' }), 'RequestResponse'],
  ['a group of users', request({}, 'system:node:a', ['system:nodes']), 'None'],
  ['a path', request({ isResource: false, path: '/healthz/ping' }), 'Metadata'],
  ['any other path', request({ isResource: false, path: '/metrics' }), 'None'],
  ['a whole API group', request({ group: 'apps', resource: 'deployments' }), 'Request'],
  ['what no rule covers', request({ group: 'batch', resource: 'jobs' }), 'None'],
];
for (const [name, asked, level] of decisions) {
  test(`the policy decides on ${name}: ${level}`, () => assert.equal(policy.decide(asked).level, level));
}

test('omitted stages of policy and rule are combined', () => {
  assert.deepEqual(
    [...policy.decide(request({ namespace: 'deep' })).omitStages],
    ['RequestReceived', 'ResponseStarted'],
  );
});

for (const [why, rule] of [
  ['a level nobody knows', '{level: Everything}'],
  ['resources and paths in one rule', '{level: None, nonResourceURLs: [/a], resources: [{group: ""}]}'],
  ['a stage nobody knows', '{level: None, omitStages: [Later]}'],
  ['a wildcard inside a path', '{level: None, nonResourceURLs: ["/a*b"]}'],
  ['names without resources', '{level: None, resources: [{group: "", resourceNames: [a]}]}'],
] as const) {
  test(`a policy with ${why} is refused`, () => {
    assert.throws(
      () => parseAuditPolicy(`{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [${rule}]}`, 'p'),
      /^Error: p: /,
    );
  });
}

test('the log is rotated by size, and old backups are removed', async () => {
  const path = join(directory, 'rotated', 'audit.log');
  mkdirSync(join(directory, 'rotated'));
  writeFileSync(join(directory, 'rotated', 'audit-webhook.log'), 'of another program');
  let nowMs = Date.parse('2026-01-01T00:00:00Z');
  const sink = logSink({
    path,
    maxSizeBytes: 100,
    maxBackups: 2,
    maxAgeMs: 0,
    compress: false,
    clock: { ...systemClock, now: () => (nowMs += 1000) },
    format: (event) => JSON.stringify(event),
  });
  for (let i = 0; i < 6; i++) await sink.write([{ stage: 'ResponseComplete', i, filling: 'x'.repeat(60) }]);
  await sink.close();
  const files = readdirSync(join(directory, 'rotated')).sort();
  assert.ok(files.includes('audit.log') && files.includes('audit-webhook.log') && files.length === 4, files.join());
  const last: unknown = JSON.parse(readFileSync(path, 'utf8').trim().split('\n').at(-1) ?? '');
  assert.equal((last as { i: number }).i, 5);
});

test('a large event loses its bodies and is marked as truncated; batches are bounded too', async () => {
  const batches: AuditEvent[][] = [];
  let dropped = 0;
  const sink = truncating(
    { write: (events) => Promise.resolve(void batches.push([...events])), close: () => Promise.resolve() },
    { maxEventBytes: 200, maxBatchBytes: 250, onDropped: (count) => (dropped += count) },
  );
  await sink.write([{ auditID: 'a', requestObject: 'x'.repeat(300) }, { auditID: 'x'.repeat(300) }]);
  assert.deepEqual(batches, [[{ auditID: 'a', annotations: { 'audit.k8s.io/truncated': 'true' } }]]);
  assert.equal(dropped, 1);
  batches.length = 0;
  await sink.write(['a', 'b', 'c'].map((auditID) => ({ auditID, requestObject: 'x'.repeat(80) })));
  assert.deepEqual(
    batches.map((batch) => batch.length),
    [2, 1],
  );
});

for (const isStrict of [false, true]) {
  test(`a request whose arrival cannot be recorded ${isStrict ? 'fails in strict mode' : 'goes on'}`, async () => {
    let dropped = 0;
    const backend = blocking(
      { write: () => Promise.reject(new Error('the disk is full')), close: () => Promise.resolve() },
      { isStrict, logger: silentLogger, onDropped: (count) => (dropped += count) },
    );
    assert.equal(await backend.process({ auditID: 'a' }), !isStrict);
    assert.equal(dropped, 1);
  });
}

test("the legacy format contains the event's metadata", () => {
  const event = {
    auditID: 'id',
    stage: 'ResponseComplete',
    verb: 'list',
    requestURI: '/api/v1/pods?limit=1',
    user: { username: 'ann', groups: ['a', 'b'] },
    impersonatedUser: { username: 'bob' },
    sourceIPs: ['10.0.0.1'],
    userAgent: 'a "b"',
    objectRef: { resource: 'pods', namespace: 'n' },
    responseStatus: { code: 200 },
    requestReceivedTimestamp: '2026-01-01T00:00:00.000000Z',
  };
  assert.equal(
    legacyLine(event),
    '2026-01-01T00:00:00.000000Z AUDIT: id="id" stage="ResponseComplete" ip="10.0.0.1" method="list" user="ann" ' +
      'groups="a","b" as="bob" asgroups=<lookup> user-agent="a \\"b\\"" namespace="n" uri="/api/v1/pods?limit=1" response="200"',
  );
  assert.match(
    legacyLine({}),
    /user="<none>" groups=<none> as="<self>" .* namespace="<none>" uri="" response="<deferred>"$/,
  );
});

test('the webhook gets batches, a failed batch is retried, and events beyond the buffer are dropped', async () => {
  const batches: number[] = [];
  let failures = 1;
  const server = createServer((message, response) => {
    let text = '';
    message.on('data', (chunk: Buffer) => (text += chunk.toString()));
    message.on('end', () => {
      response.statusCode = failures-- > 0 ? 503 : 200;
      if (response.statusCode === 200) batches.push((JSON.parse(text) as { items: unknown[] }).items.length);
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  const client = new WebhookClient('test');
  let dropped = 0;
  const sink = new WebhookSink({
    endpoint: () => Promise.resolve({ url, purpose: 'configured' }),
    client,
    clock: systemClock,
    initialBackoffMs: 1,
  });
  const backend = new BatchingBackend(sink, {
    clock: systemClock,
    logger: silentLogger,
    onDropped: (count) => (dropped += count),
    bufferSize: 10,
    maxBatchSize: 100,
    maxWaitMs: 60_000,
    qps: 0,
    burst: 1,
  });
  for (let i = 0; i < 12; i++) backend.process({ i });
  await backend.close();
  client.close();
  server.close();
  assert.deepEqual(batches, [10]);
  assert.equal(dropped, 2);
});

/** Starts a server that audits every request, and has a path that throws. `isKept` is whether the backend keeps the events. */
async function audited(isKept: boolean): Promise<{
  readonly events: readonly AuditEvent[];
  readonly metrics: MetricsRegistry;
  ask(path: string, token?: string): Promise<number>;
  close(): Promise<void>;
}> {
  const events: AuditEvent[] = [];
  const metrics = new MetricsRegistry();
  const backend = {
    process: (event: AuditEvent) => (events.push(event), Promise.resolve(isKept)),
    close: () => Promise.resolve(),
  };
  const everything = parseAuditPolicy(
    'apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n',
    'policy',
  );
  const audit = createAudit({ policy: everything, backends: [backend], clock: systemClock, metrics });
  const paths = new PathHandlers();
  paths.exact('/broken', () => {
    throw new TypeError('a bug');
  });
  const fake = await startFakeServer(new FakeCatalog([]), { paths, audit });
  return {
    events,
    metrics,
    ask: async (path, token = 'ann') => (await fake.request('GET', path, { authorization: `Bearer ${token}` })).status,
    close: () => fake.close(),
  };
}

test('a request that fails with a bug ends in the stage Panic', async () => {
  const server = await audited(true);
  try {
    assert.equal(await server.ask('/broken'), 500);
    assert.deepEqual(
      server.events.map(({ stage }) => stage),
      ['RequestReceived', 'Panic'],
    );
    const status = server.events[1]?.['responseStatus'];
    assert.deepEqual(status, {
      metadata: {},
      status: 'Failure',
      message: "APIServer panic'd: a bug",
      reason: 'InternalError',
      code: 500,
    });
  } finally {
    await server.close();
  }
});

/** Returns an audit of all requests at one level, without some stages, and the events that it has recorded. */
function recordedAudit(level: string, omitStages: string) {
  const events: AuditEvent[] = [];
  const text = `{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [${omitStages}], rules: [{level: ${level}}]}`;
  const audit = createAudit({
    policy: parseAuditPolicy(text, 'policy'),
    backends: [{ process: (event) => void events.push(event), close: () => Promise.resolve() }],
    clock: systemClock,
    metrics: new MetricsRegistry(),
  });
  return { events, audit };
}

test('the address of the connection is the last one, whatever addresses a client writes into its headers', async () => {
  const { events, audit } = recordedAudit('Metadata', 'RequestReceived');
  const server = await startFakeServer(new FakeCatalog([]), { audit });
  const seen = async (headers: Readonly<Record<string, string>>): Promise<unknown> => {
    await server.request('GET', '/version', { authorization: 'Bearer ann', ...headers });
    await until('the event', () => (events.length > 0 ? true : undefined));
    return events.pop()?.['sourceIPs'];
  };
  try {
    const own = '127.0.0.1';
    assert.deepEqual(await seen({}), [own]);
    assert.deepEqual(await seen({ 'x-forwarded-for': `${own}, 8.8.8.8` }), [own, '8.8.8.8', own]);
    assert.deepEqual(await seen({ 'x-forwarded-for': `8.8.8.8, ${own}` }), ['8.8.8.8', own]);
    assert.deepEqual(await seen({ 'x-forwarded-for': 'a"b, 10.0.0.1, ::FFFF:10.0.0.2, unknown' }), [
      '10.0.0.1',
      '10.0.0.2',
      own,
    ]);
    assert.deepEqual(await seen({ 'x-forwarded-for': '10.0.0.1', 'x-real-ip': '10.0.0.1' }), ['10.0.0.1', own]);
    assert.deepEqual(await seen({ 'x-real-ip': 'not an address' }), [own]);
  } finally {
    await server.close();
  }
});

test('a client that resets its request at once hides neither the name nor the object of its write', async () => {
  const { events, audit } = recordedAudit('RequestResponse', 'RequestReceived');
  const gate = Promise.withResolvers<void>();
  let isWriting = false;
  class SlowResource extends FakeResource {
    override async create(...args: Parameters<FakeResource['create']>): Promise<Entry> {
      isWriting = true;
      await gate.promise;
      return await super.create(...args);
    }
  }
  const server = await startFakeServer(new FakeCatalog([new SlowResource(fakeInfo('configmaps', 'ConfigMap'))]), {
    audit,
  });
  try {
    const stream = server.session.request({
      ':method': 'POST',
      ':path': '/api/v1/namespaces/n/configmaps',
      'content-type': 'application/json',
      authorization: 'Bearer ann',
    });
    stream.on('error', () => undefined);
    stream.end('{"metadata":{"name":"hidden"}}');
    await until('the write', () => isWriting);
    const closed = once(stream, 'close');
    stream.close(constants.NGHTTP2_CANCEL);
    await closed;
    // The server has seen the reset when it has answered a later request of the same connection.
    await server.request('GET', '/version');
    gate.resolve();
    await until('the event', () => events.some(({ verb }) => verb === 'create'));
    const { objectRef, requestObject, responseStatus } = events.find(({ verb }) => verb === 'create') ?? {};
    assert.equal((objectRef as { name?: string } | undefined)?.name, 'hidden');
    assert.deepEqual(requestObject, { metadata: { name: 'hidden' } });
    assert.equal((responseStatus as { code?: number } | undefined)?.code, 201);
  } finally {
    await server.close();
  }
});

test('a response with more values than a request may have is recorded, and the process goes on', async () => {
  const { events, audit } = recordedAudit('RequestResponse', 'RequestReceived');
  const secrets = new FakeResource(fakeInfo('secrets', 'Secret'));
  const server = await startFakeServer(new FakeCatalog([secrets]), { audit });
  try {
    const data = Object.fromEntries(Array.from({ length: 120_000 }, (_, at) => [`k${at}`, 'v']));
    secrets.put('ns', { metadata: { name: 'large' }, data });
    assert.equal((await server.request('GET', '/api/v1/namespaces/ns/secrets/large')).status, 200);
    await until('the event', () => events.length > 0);
    const response = events[0]?.['responseObject'] as { readonly data?: object } | undefined;
    assert.equal(Object.keys(response?.data ?? {}).length, 120_000);
  } finally {
    await server.close();
  }
});

/** Resolves to a server that audits the end of every request, and opens tunnels to a target that answers each head with 101. */
async function tunneling(): Promise<{
  readonly events: readonly AuditEvent[];
  readonly port: number;
  close(): Promise<void>;
}> {
  const { events, audit } = recordedAudit('Metadata', 'RequestReceived, ResponseStarted');
  const target = createTcpServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.once('data', () =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
    );
  }).listen(0, '127.0.0.1');
  const exec: Rest = {
    info: fakeInfo('pods', 'Pod'),
    subresource: { name: 'exec', group: '', version: 'v1', kind: 'PodExecOptions', verbs: ['get', 'create'] },
    connect: () =>
      Promise.resolve({
        origin: { secure: false, host: '127.0.0.1', port: (target.address() as AddressInfo).port },
        target: '/exec',
        purpose: 'proxy' as const,
        name: 'service/ns/target',
        plain: false,
      }),
  };
  const connector = createConnector({
    dialer: createDialer({ loopbackTargets: new Set(['service/ns/target']) }),
    stripped: strippedHeaders({ names: [], prefixes: [] }),
    agentCredentials: () => undefined,
    clock: systemClock,
    logger: silentLogger,
  });
  const server = await startFakeServer(new FakeCatalog([exec, new FakeResource(fakeInfo('secrets', 'Secret'))]), {
    connector,
    audit,
  });
  return {
    events,
    port: server.port,
    async close() {
      target.close();
      await server.close();
    },
  };
}

for (const [what, path] of [
  ['a command in a pod', '/api/v1/namespaces/ns/pods/p/exec?command=sh'],
  ['a watch', '/api/v1/namespaces/ns/secrets?watch=1'],
] as const) {
  test(`${what} by an upgraded connection is recorded when it ends`, async () => {
    const server = await tunneling();
    try {
      const socket = connectTls({ port: server.port, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
      let received = '';
      socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
      socket.write(
        [
          `GET ${path} HTTP/1.1`,
          'Host: api',
          'Authorization: Bearer ann',
          'Connection: Upgrade',
          'Upgrade: websocket',
          'Sec-WebSocket-Version: 13',
          'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
          '\r\n',
        ].join('\r\n'),
      );
      await until('the switch', () => received.includes('101 Switching'));
      assert.deepEqual(server.events, []);
      socket.destroy();
      await until('the event', () => server.events.length > 0);
      assert.deepEqual(
        server.events.map(({ stage, responseStatus }) => [stage, (responseStatus as { code?: number }).code]),
        [['ResponseComplete', 101]],
      );
    } finally {
      await server.close();
    }
  });
}

test('a forbidden request also waits for its event, and lost events are counted', async () => {
  for (const [isKept, code] of [
    [true, 401],
    [false, 500],
  ] as const) {
    const server = await audited(isKept);
    try {
      assert.equal(await server.ask('/version', 'bad'), code);
      assert.match(server.metrics.text(), new RegExp(`apiserver_audit_requests_rejected_total ${isKept ? 0 : 1}\n`));
    } finally {
      await server.close();
    }
  }
});

test('an event that cannot be formatted is lost, and the process goes on', async () => {
  const dropped: number[] = [];
  const sink = {
    write: (): Promise<void> => {
      throw new TypeError('Converting circular structure to JSON');
    },
    close: () => Promise.resolve(),
  };
  const backend = blocking(sink, { isStrict: false, logger: silentLogger, onDropped: (count) => dropped.push(count) });
  assert.equal(await backend.process({}), true);
  assert.deepEqual(dropped, [1]);
});

test('a server in strict mode rejects requests that it cannot record', async () => {
  const policyFile = join(directory, 'strict.yaml');
  writeFileSync(
    policyFile,
    'apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: ["system:anonymous"]}]\n',
  );
  writeFileSync(join(directory, 'a-file'), '');
  const plane = await startControlPlane({
    memory: true,
    flags: {
      auditPolicyFile: policyFile,
      auditLogPath: join(directory, 'a-file', 'audit.log'),
      auditLogMode: 'blocking-strict',
      controllers: ['-*'],
      scheduler: false,
    },
  });
  const client = new WebhookClient('test');
  try {
    const { status, body } = await client.call(
      { url: new URL('/version', plane.url), ca: plane.ca, purpose: 'configured' },
      { method: 'GET', signal: AbortSignal.timeout(60_000) },
    );
    assert.equal(status, 500);
    assert.match(body.toString(), /failed to store audit event/);
  } finally {
    client.close();
    await plane.close();
  }
});

test('a running server records requests and rejections, and never the content of a secret', async () => {
  const policyFile = join(directory, 'policy.yaml');
  const log = join(directory, 'audit.log');
  writeFileSync(
    policyFile,
    `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: ["system:apiserver", "system:kube-scheduler"]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: RequestResponse, omitManagedFields: true, omitStages: [RequestReceived], resources: [{group: "", resources: [configmaps, services, pods/binding]}], users: [ann]}
- {level: Metadata, resources: [{group: "", resources: [serviceaccounts/token]}]}
`,
  );
  writeFileSync(join(directory, 'tokens.csv'), 'ann-token,ann,1,"system:masters"\n');
  const plane = await startControlPlane({
    memory: true,
    flags: {
      tokenAuthFile: join(directory, 'tokens.csv'),
      auditPolicyFile: policyFile,
      auditLogPath: log,
      controllers: ['-*'],
      scheduler: false,
    },
  });
  const client = new WebhookClient('test');
  const call = (path: string, object: object | undefined, token = 'ann-token') =>
    client.call(
      { url: new URL(path, plane.url), ca: plane.ca, purpose: 'configured', authorization: `Bearer ${token}` },
      {
        method: object === undefined ? 'GET' : 'POST',
        ...(object === undefined ? {} : { body: JSON.stringify(object) }),
        signal: AbortSignal.timeout(60_000),
      },
    );
  try {
    const metadata = { name: 'a' };
    await call('/api/v1/namespaces/default/secrets', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata,
      stringData: { k: 'very hidden' },
    });
    await call('/api/v1/namespaces/default/configmaps', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata,
      data: { k: 'shown' },
    });
    assert.equal((await call('/api/v1/namespaces/default/secrets/a', undefined, 'wrong')).status, 401);
    assert.equal((await call('/api/v1/namespaces/default/configmaps', undefined)).status, 200);
    await call('/api/v1/namespaces/default/serviceaccounts', { metadata });
    await call('/api/v1/namespaces/default/serviceaccounts/a/token', { spec: {} });
    const pod = {
      serviceAccountName: 'a',
      automountServiceAccountToken: false,
      containers: [{ name: 'c', image: 'i' }],
    };
    await call('/api/v1/namespaces/default/pods', { metadata, spec: pod });
    await call('/api/v1/namespaces/default/pods/a/binding', { metadata, target: { name: 'n' } });
    await call('/api/v1/namespaces/default/services', { metadata, spec: { ports: [{ port: 1 }] } });
    await call('/version', undefined);
  } finally {
    client.close();
    await plane.close();
  }
  const text = readFileSync(log, 'utf8');
  for (const hidden of ['very hidden', Buffer.from('very hidden').toString('base64'), 'ann-token', 'wrong']) {
    assert.ok(!text.includes(hidden), hidden);
  }
  const events = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, never>);
  const seen = (resource: string, stage: string): Record<string, never>[] =>
    events.filter((event) => event['stage'] === stage && event['objectRef']?.['resource'] === resource);
  assert.equal(seen('secrets', 'RequestReceived').length, 2);
  const [secret, refused] = seen('secrets', 'ResponseComplete');
  assert.equal(secret?.['user']?.['username'], 'ann');
  assert.equal(secret?.['objectRef']?.['name'], 'a');
  assert.equal(secret?.['annotations']?.['authorization.k8s.io/decision'], 'allow');
  assert.equal(refused?.['responseStatus']?.['code'], 401);
  assert.deepEqual(refused?.['user'], {});
  const [written, listed] = seen('configmaps', 'ResponseComplete');
  const list: {
    readonly metadata?: object;
    readonly items?: readonly { readonly metadata: { readonly name: string } }[];
  } = listed?.['responseObject'] ?? {};
  assert.deepEqual(Object.keys(list.metadata ?? {}), ['resourceVersion']);
  assert.ok(list.items?.some((item) => item.metadata.name === 'a' && !('kind' in item)));
  assert.equal(written?.['requestObject']?.['data']?.['k'], 'shown');
  const [token] = seen('serviceaccounts', 'ResponseComplete');
  assert.match(
    String(token?.['annotations']?.['authentication.kubernetes.io/issued-credential-id']),
    /^JTI=[0-9a-f-]{36}$/,
  );
  const [service] = seen('services', 'ResponseComplete');
  const [bound] = seen('pods', 'ResponseComplete');
  const {
    kind,
    spec,
  }: { readonly kind?: string; readonly spec?: { readonly type?: string; readonly clusterIP?: string } } =
    service?.['requestObject'] ?? {};
  assert.deepEqual([kind, spec?.type, spec?.clusterIP], ['Service', 'ClusterIP', undefined], 'defaults, and no more');
  assert.equal(bound?.['responseStatus']?.['status'], 'Success');
  assert.equal(written?.['responseObject']?.['metadata']?.['managedFields'], undefined);
  assert.ok(written?.['responseObject']?.['metadata']?.['uid']);
});
