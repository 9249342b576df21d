/** Audit: what a policy decides, what events say and do not say, and backends that are bounded. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import type { AuditEvent } from '../../../../controlplane/audit/event.ts';
import { logBackend } from '../../../../controlplane/audit/log-backend.ts';
import { parseAuditPolicy, type AuditedRequest } from '../../../../controlplane/audit/policy.ts';
import { truncating } from '../../../../controlplane/audit/truncation.ts';
import { WebhookBackend } from '../../../../controlplane/audit/webhook-backend.ts';
import { WebhookClient } from '../../../../controlplane/authentication/webhook-client.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';

const directory = mkdtempSync(join(tmpdir(), 'orchlet-audit-'));
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

test('stages that are omitted add up', () => {
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

test('the log is rotated by size, and old ones go', async () => {
  const path = join(directory, 'rotated', 'audit.log');
  let nowMs = Date.parse('2026-01-01T00:00:00Z');
  const backend = logBackend({
    path,
    maxSizeBytes: 100,
    maxBackups: 2,
    maxAgeMs: 0,
    compress: false,
    clock: { ...systemClock, now: () => (nowMs += 1000) },
    logger: silentLogger,
    onDropped: () => assert.fail('nothing is dropped'),
  });
  for (let i = 0; i < 6; i++) {
    backend.process({ stage: 'ResponseComplete', i, filling: 'x'.repeat(60) });
    await new Promise(setImmediate);
  }
  await backend.close();
  const files = readdirSync(join(directory, 'rotated')).sort();
  assert.ok(files.includes('audit.log') && files.length <= 3, files.join());
  const last: unknown = JSON.parse(readFileSync(path, 'utf8').trim().split('\n').at(-1) ?? '');
  assert.equal((last as { i: number }).i, 5);
});

test('an event that is too large loses its bodies, and says so', () => {
  const kept: AuditEvent[] = [];
  let dropped = 0;
  const sink = { process: (event: AuditEvent) => void kept.push(event), close: () => Promise.resolve() };
  const backend = truncating(sink, { maxEventBytes: 200, onDropped: (count) => (dropped += count) });
  backend.process({ auditID: 'a', requestObject: 'x'.repeat(300) });
  backend.process({ auditID: 'x'.repeat(300) });
  assert.deepEqual(kept, [{ auditID: 'a', annotations: { 'audit.k8s.io/truncated': 'true' } }]);
  assert.equal(dropped, 1);
});

test('the webhook gets events in batches, a failed batch again, and what does not fit the buffer is dropped', async () => {
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
  const backend = new WebhookBackend({
    endpoint: () => Promise.resolve({ url }),
    client,
    clock: systemClock,
    logger: silentLogger,
    onDropped: (count) => (dropped += count),
    bufferSize: 10,
    maxBatchSize: 100,
    maxWaitMs: 60_000,
    initialBackoffMs: 1,
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

test('a running server records who did what, refusals too, and never what a secret holds', async () => {
  const policyFile = join(directory, 'policy.yaml');
  const log = join(directory, 'audit.log');
  writeFileSync(
    policyFile,
    `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: ["system:apiserver", "system:kube-scheduler"]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: RequestResponse, omitManagedFields: true, omitStages: [RequestReceived], resources: [{group: "", resources: [configmaps]}], users: [ann]}
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
      { url: new URL(path, plane.url), ca: plane.ca, authorization: `Bearer ${token}` },
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
  const [written] = seen('configmaps', 'ResponseComplete');
  assert.equal(written?.['requestObject']?.['data']?.['k'], 'shown');
  assert.equal(written?.['responseObject']?.['metadata']?.['managedFields'], undefined);
  assert.ok(written?.['responseObject']?.['metadata']?.['uid']);
});
