import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apiServices } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { ensureDefaultObjects } from '../../../../../controlplane/controllers/cluster-objects/default-objects.ts';
import { controllerTest } from '../../../../fakes/fake-controllers.ts';

const METRICS = { group: 'metrics.k8s.io', version: 'v1beta1' };
const APPS = { group: 'apps', version: 'v1' };
const NAME = 'v1beta1.metrics.k8s.io';

async function started(groupVersions: readonly (typeof APPS)[], objects: readonly KubeObject[] = []) {
  const { client } = controllerTest({ objects: objects.map((object) => [apiServices, object] as const) });
  await ensureDefaultObjects(client, { groupVersions, serviceClusterCidrs: ['10.96.0.0/16'], nowMs: 0 });
  return new Map(client.peekAll(apiServices).map(({ metadata }) => [metadata.name, metadata.labels ?? {}]));
}

test('the API service of metrics has no label of the server, because an add-on may replace it', async () => {
  const made = await started([APPS, METRICS]);
  assert.deepEqual(made.get(NAME), {});
  assert.deepEqual(made.get('v1.apps'), { 'kube-aggregator.kubernetes.io/automanaged': 'onstart' });
});

test('the API service of metrics is deleted once they are not served, unless it is that of an add-on', async () => {
  const service = (spec: object): KubeObject => ({ metadata: { name: NAME }, spec: { ...METRICS, ...spec } });
  assert.equal((await started([APPS], [service({})])).has(NAME), false);
  assert.equal((await started([APPS], [service({ service: { name: 's', namespace: 'n' } })])).has(NAME), true);
});

test('the group of API services has none of its own, and one of an earlier start is deleted', async () => {
  const own = { group: 'apiregistration.k8s.io', version: 'v1' };
  const labels = { 'kube-aggregator.kubernetes.io/automanaged': 'onstart' };
  const earlier: KubeObject = { metadata: { name: 'v1.apiregistration.k8s.io', labels }, spec: own };
  assert.deepEqual([...(await started([APPS, own], [earlier])).keys()], ['v1.apps']);
});
