/** Deprecated versions are reported in a header to the client, and in a metric and in the audit log to the administrator. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { createAudit } from '../../../../controlplane/server/audit/audit.ts';
import type { AuditEvent } from '../../../../controlplane/server/audit/event.ts';
import { parseAuditPolicy } from '../../../../controlplane/server/audit/policy.ts';
import { createRequestMetrics } from '../../../../controlplane/server/request-metrics.ts';
import { deprecationOf } from '../../../../controlplane/server/deprecations.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

const WARNING = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"';
const metrics = new MetricsRegistry();
const events: AuditEvent[] = [];
let fake: FakeServer;

before(async () => {
  const audit = createAudit({
    policy: parseAuditPolicy('apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n', 'policy.yaml'),
    backends: [{ process: (event) => void events.push(event), close: async () => undefined }],
    clock: systemClock,
    metrics,
  });
  const endpoints = new FakeResource(fakeInfo('endpoints', 'Endpoints'));
  endpoints.put('n', { metadata: { name: 'a' } });
  fake = await startFakeServer(new FakeCatalog([endpoints, new FakeResource(fakeInfo('configmaps', 'ConfigMap'))]), {
    audit,
    observer: createRequestMetrics(metrics, systemClock),
  });
});
after(() => fake.close());

const series = (): string[] => metrics.text().match(/^apiserver_requested_deprecated_apis\{.*$/gm) ?? [];

/** Waits for the audit event of the only request for this verb and path, which follows the response. */
async function isAuditedAsDeprecated(verb: string, path: string): Promise<boolean> {
  const found = (): AuditEvent | undefined =>
    events.find((event) => event.verb === verb && event.requestURI === path && event.stage === 'ResponseComplete');
  while (found() === undefined) await new Promise((resolve) => setImmediate(resolve));
  return (found()?.annotations as Record<string, string> | undefined)?.['k8s.io/deprecated'] === 'true';
}

test('a resource that is not deprecated causes no warning', async () => {
  const path = '/api/v1/namespaces/n/configmaps';
  assert.equal((await fake.request('GET', path)).headers['warning'], undefined);
  assert.equal(await isAuditedAsDeprecated('list', path), false);
  assert.deepEqual(series(), []);
});

test('a deprecated resource causes a warning with every verb, also where nothing is found', async () => {
  const all = '/api/v1/namespaces/n/endpoints';
  for (const [method, verb, path, status] of [
    ['GET', 'get', `${all}/a`, 200],
    ['GET', 'list', all, 200],
    ['GET', 'get', `${all}/none`, 404],
    ['DELETE', 'delete', `${all}/a`, 200],
  ] as const) {
    const answer = await fake.request(method, path);
    assert.equal(answer.status, status, path);
    assert.equal(answer.headers['warning'], WARNING, path);
    assert.equal(await isAuditedAsDeprecated(verb, path), true, path);
  }
  assert.deepEqual(series(), [
    'apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1',
  ]);
});

test('versions that end with a release are deprecated, with their replacement if there is one', () => {
  const of = (group: string, version: string, resource: string, kind: string) =>
    deprecationOf({ ...fakeInfo(resource, kind), group, version });
  assert.deepEqual(of('resource.k8s.io', 'v1beta2', 'resourceslices', 'ResourceSlice'), {
    warning: 'resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+',
    removedRelease: '1.39',
  });
  assert.equal(
    of('storage.k8s.io', 'v1beta1', 'volumeattributesclasses', 'VolumeAttributesClass').warning,
    'storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; ' +
      'use storage.k8s.io/v1 VolumeAttributesClass',
  );
  const none = { warning: '', removedRelease: '' };
  assert.deepEqual(of('resource.k8s.io', 'v1beta2', 'devicetaintrules', 'DeviceTaintRule'), none);
  assert.deepEqual(of('resource.k8s.io', 'v1', 'resourceslices', 'ResourceSlice'), none);
  const custom = { listKind: 'ThingList', deprecation: 'old' };
  assert.deepEqual(
    deprecationOf({ ...fakeInfo('things', 'Thing'), group: 'resource.k8s.io', version: 'v1beta1', custom }),
    {
      warning: 'old',
      removedRelease: '',
    },
  );
});
