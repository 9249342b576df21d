/** The audit log records responses in the form that the client gets, and options of deletions as they are decoded. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { createAudit } from '../../../../controlplane/server/audit/audit.ts';
import type { AuditEvent } from '../../../../controlplane/server/audit/event.ts';
import { parseAuditPolicy } from '../../../../controlplane/server/audit/policy.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

const POLICY = 'apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n';
const ALL = '/api/v1/namespaces/n/configmaps';
const events: AuditEvent[] = [];
let fake: FakeServer;

before(async () => {
  const audit = createAudit({
    policy: parseAuditPolicy(POLICY, 'policy.yaml'),
    backends: [{ process: (event) => void events.push(structuredClone(event)), close: async () => undefined }],
    clock: systemClock,
    metrics: new MetricsRegistry(),
  });
  const maps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
  maps.put('n', { metadata: { name: 'a' }, data: { unseen: 'value' } });
  fake = await startFakeServer(new FakeCatalog([maps]), { audit });
});
after(() => fake.close());

/** Sends a request and returns its audit event, which follows the response. */
async function eventOf(
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: string,
): Promise<Record<string, unknown>> {
  events.length = 0;
  await fake.request(method, path, headers, body);
  const found = (): AuditEvent | undefined => events.find(({ stage }) => stage === 'ResponseComplete');
  while (found() === undefined) await new Promise((resolve) => setImmediate(resolve));
  return found() as unknown as Record<string, unknown>;
}

const responseTo = async (path: string, form: string): Promise<unknown> =>
  (await eventOf('GET', path, { accept: `application/json;as=${form};v=v1;g=meta.k8s.io` }))['responseObject'];

for (const [path, form] of [
  [`${ALL}/a`, 'PartialObjectMetadata'],
  [ALL, 'PartialObjectMetadataList'],
  [`${ALL}/a`, 'Table'],
  [ALL, 'Table'],
] as const)
  test(`the log has no data that the client does not get: ${form} of ${path}`, async () => {
    const response = (await responseTo(path, form)) as { kind: string; apiVersion: string };
    assert.deepEqual([response.kind, response.apiVersion], [form, 'meta.k8s.io/v1']);
    assert.ok(!JSON.stringify(response).includes('unseen'));
    assert.ok(JSON.stringify(response).includes('"a"'));
  });

test('options of a deletion have the type of the decoded ones', async () => {
  const body = { gracePeriodSeconds: 5 };
  const { requestObject } = await eventOf(
    'DELETE',
    `${ALL}/a`,
    { 'content-type': 'application/json' },
    JSON.stringify(body),
  );
  assert.deepEqual(requestObject, { ...body, kind: 'DeleteOptions', apiVersion: 'meta.k8s.io/__internal' });
});
