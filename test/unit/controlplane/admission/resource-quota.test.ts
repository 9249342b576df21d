import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResourceQuota } from '../../../../api/machinery/kinds.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { newConflict } from '../../../../api/meta/status-error.ts';
import type { AdmissionAttributes } from '../../../../controlplane/admission/admission.ts';
import { resourceQuota } from '../../../../controlplane/admission/resource-quota.ts';
import type { Source, Sources } from '../../../../controlplane/admission/sources.ts';

function attributes(object: KubeObject): AdmissionAttributes {
  return {
    operation: 'CREATE',
    resource: { group: '', version: 'v1', resource: 'pods' },
    subresource: '',
    kind: { group: '', version: 'v1', kind: 'Pod' },
    namespace: 'ns',
    name: object.metadata.name ?? '',
    object,
    oldObject: undefined,
    options: {},
    dryRun: false,
    user: { name: 'a', groups: [] },
    setObject: () => undefined,
    warn: () => undefined,
    annotate: () => undefined,
  };
}

/** One quota that somebody else writes as well now and then. */
function setup(hard: Record<string, string>, conflicts = 0) {
  let version = 1;
  let stored: ResourceQuota = {
    metadata: { name: 'q', namespace: 'ns', resourceVersion: '1' },
    spec: { hard },
    status: { hard, used: Object.fromEntries(Object.keys(hard).map((name) => [name, '0'])) },
  };
  let left = conflicts;
  const source: Source<ResourceQuota> = {
    get: () => stored,
    live: () => Promise.resolve(structuredClone(stored)),
    list: () => [stored],
    subscribe: () => undefined,
    synced: () => Promise.resolve(),
  };
  const sources = { of: () => source, synced: () => Promise.resolve() } as unknown as Sources;
  const plugin = resourceQuota({
    sources,
    updateStatus: async (quota) => {
      await Promise.resolve();
      if (left-- > 0) stored = { ...stored, metadata: { ...stored.metadata, resourceVersion: String(++version) } };
      if (quota.metadata.resourceVersion !== stored.metadata.resourceVersion)
        throw newConflict({ group: '', resource: 'resourcequotas' }, 'q', 'changed');
      stored = { ...quota, metadata: { ...quota.metadata, resourceVersion: String(++version) } };
      return stored;
    },
  });
  return {
    create: (pod: KubeObject) => plugin.validate?.(attributes(pod), new AbortController().signal),
    used: () => stored.status?.used,
  };
}

const pod = (name: string, cpu: string) => ({
  metadata: { name, namespace: 'ns' },
  spec: { containers: [{ name: 'c', resources: { requests: { cpu } } }] },
});

test('fifty concurrent creators get exactly what there is', async () => {
  const { create, used } = setup({ pods: '20', 'requests.cpu': '15' }, 3);
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, async (_, i) => create(pod(`p${i}`, '500m'))));
  assert.equal(outcomes.filter((one) => one.status === 'fulfilled').length, 20);
  assert.deepEqual(used(), { pods: '20', 'requests.cpu': '10' });
});

test('a refusal says what was asked, used and allowed', async () => {
  const { create } = setup({ 'requests.cpu': '1', 'limits.memory': '1Gi' });
  await assert.rejects(async () => create(pod('p', '2')), /failed quota: q: must specify limits\.memory for: c/);
  const other = setup({ 'requests.cpu': '1' });
  await assert.rejects(
    async () => other.create(pod('p', '2')),
    /pods "p" is forbidden: exceeded quota: q, requested: requests\.cpu=2, used: requests\.cpu=0, limited: requests\.cpu=1/,
  );
});
