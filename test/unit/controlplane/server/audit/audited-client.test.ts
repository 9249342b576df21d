/** Writes of manifests are in the audit log, by the policy, with their outcome; a strict backend refuses them. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { configMaps, secrets } from '../../../../../api/client/resources.ts';
import { newForbidden } from '../../../../../api/meta/status-error.ts';
import { type AuditBackend, createAudit } from '../../../../../controlplane/server/audit/audit.ts';
import { auditedClient } from '../../../../../controlplane/server/audit/audited-client.ts';
import type { AuditEvent } from '../../../../../controlplane/server/audit/event.ts';
import { parseAuditPolicy } from '../../../../../controlplane/server/audit/policy.ts';
import { startControlPlane } from '../../../../../controlplane/main.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const POLICY = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: RequestResponse, verbs: [create, patch, delete]}
`;

function setUp(process?: AuditBackend['process']) {
  const events: AuditEvent[] = [];
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const record = (event: AuditEvent): void => void events.push(event);
  const audit = createAudit({
    policy: parseAuditPolicy(
      process === undefined ? POLICY : POLICY.replace('omitStages: [RequestReceived]\n', ''),
      'p',
    ),
    backends: [{ process: process ?? record, close: () => Promise.resolve() }],
    clock,
    metrics: new MetricsRegistry(),
  });
  const user = { name: 'orchlet:manifests', groups: ['system:masters'] };
  return { events, client, audited: auditedClient(client, { audit, user, userAgent: 'orchlet-manifests' }) };
}
const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a', namespace: 'n' }, data: { key: 'value' } };

it('each write has an event with its user, object, outcome and bodies, as far as the policy asks for them', async () => {
  const { events, client, audited } = setUp();
  await audited.create(configMaps, 'n', map);
  await audited.create(secrets, 'n', { ...map, kind: 'Secret' });
  client.intercept((call) => {
    if (call.verb === 'delete') throw newForbidden({ group: '', resource: 'configmaps' }, 'a', 'because');
    return undefined;
  });
  await assert.rejects(audited.delete(configMaps, 'n', 'a'), /because/);
  assert.deepEqual(
    events.map((event) => [event['stage'], event['verb'], event['requestURI'], event['level']]),
    [
      ['ResponseComplete', 'create', '/api/v1/namespaces/n/configmaps', 'RequestResponse'],
      ['ResponseComplete', 'create', '/api/v1/namespaces/n/secrets', 'Metadata'],
      ['ResponseComplete', 'delete', '/api/v1/namespaces/n/configmaps/a', 'RequestResponse'],
    ],
  );
  const [created = {}, secret, refused = {}] = events;
  assert.equal((created['user'] as { username?: string }).username, 'orchlet:manifests');
  assert.equal((created['responseStatus'] as { code?: number }).code, 201);
  assert.deepEqual((created['requestObject'] as typeof map).data, { key: 'value' });
  assert.equal(secret?.['requestObject'], undefined);
  assert.equal((refused['responseStatus'] as { code?: number }).code, 403);
});

it('reads are not recorded', async () => {
  const { events, audited } = setUp();
  await audited.list(configMaps);
  assert.deepEqual(events, []);
});

it('a write whose event a strict backend cannot store is refused', async () => {
  const { client, audited } = setUp(() => Promise.resolve(false));
  await assert.rejects(audited.create(configMaps, 'n', map), /failed to store audit event/);
  assert.equal(client.peek(configMaps, 'n', 'a'), undefined);
});

it('a manifest of a folder is in the audit log of the control plane', async () => {
  const directory = temporaryFolder();
  const log = join(directory, 'audit.log');
  writeFileSync(join(directory, 'policy.yaml'), POLICY);
  const folder = mkdtempSync(join(directory, 'manifests-'));
  writeFileSync(
    join(folder, 'a.json'),
    JSON.stringify({ ...map, metadata: { name: 'audited', namespace: 'default' } }),
  );
  const plane = await startControlPlane({
    memory: true,
    flags: {
      ...{ manifestsDir: [folder], scheduler: false, bindAddress: '127.0.0.1', securePort: 0 },
      ...{ auditPolicyFile: join(directory, 'policy.yaml'), auditLogPath: log },
    },
  });
  try {
    const line = await until('the event', () => {
      const text = readFileSync(log, 'utf8');
      return text.split('\n').find((one) => one.includes('configmaps/audited') && one.includes('orchlet:manifests'));
    });
    assert.equal((JSON.parse(line) as { verb: string }).verb, 'patch');
  } finally {
    await plane.close();
    rmSync(directory, { recursive: true, force: true });
  }
});
