import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResourceQuota } from '../../../../../api/kinds/kinds.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { newConflict } from '../../../../../api/meta/status-error.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { resourceQuota } from '../../../../../controlplane/security/admission/resource-quota.ts';
import type { Lister, Listers } from '../../../../../controlplane/model/listers.ts';
import { attributesOf } from './attributes.ts';

function attributes(
  object: KubeObject,
  undos: (() => void)[] = [],
  { group, resource } = { group: '', resource: 'pods' },
): AdmissionAttributes {
  return attributesOf(object, {
    resource: { group, version: 'v1', resource },
    kind: { group: '', version: 'v1', kind: 'Pod' },
    namespace: 'ns',
    whenNotWritten: (undo) => void undos.push(undo),
  });
}

/** Returns a quota that another client sometimes changes concurrently. */
function setup(hard: Record<string, string>, conflicts = 0, scopes: readonly string[] = []) {
  let version = 1;
  let stored: ResourceQuota = {
    metadata: { name: 'q', namespace: 'ns', resourceVersion: '1' },
    spec: { hard, scopes: [...scopes] },
    status: { hard, used: Object.fromEntries(Object.keys(hard).map((name) => [name, '0'])) },
  };
  let left = conflicts;
  const lister: Lister<ResourceQuota> = {
    get: () => stored,
    live: () => Promise.resolve(structuredClone(stored)),
    list: () => [stored],
    subscribe: () => undefined,
    synced: () => Promise.resolve(),
  };
  const listers = { of: () => lister, synced: () => Promise.resolve() } as unknown as Listers;
  const plugin = resourceQuota({
    listers,
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
    create: (object: KubeObject, resource?: { readonly group: string; readonly resource: string }) =>
      plugin.validate?.(attributes(object, [], resource), new AbortController().signal),
    update: (oldObject: KubeObject, object: KubeObject) =>
      plugin.validate?.({ ...attributes(object), operation: 'UPDATE', oldObject }, new AbortController().signal),
    used: () => stored.status?.used,
  };
}

const pod = (name: string, cpu: string) => ({
  metadata: { name, namespace: 'ns' },
  spec: { containers: [{ name: 'c', resources: { requests: { cpu } } }] },
});

test('fifty concurrent creators cannot exceed the quota', async () => {
  const { create, used } = setup({ pods: '20', 'requests.cpu': '15' }, 3);
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, async (_, i) => create(pod(`p${i}`, '500m'))));
  assert.equal(outcomes.filter((one) => one.status === 'fulfilled').length, 20);
  assert.deepEqual(used(), { pods: '20', 'requests.cpu': '10' });
});

for (const resource of ['events', 'bindings', 'tokenreviews', 'localsubjectaccessreviews']) {
  test(`custom resources that are named ${resource} are counted`, async () => {
    const group = 'evil.example.com';
    const { create, used } = setup({ [`count/${resource}.${group}`]: '1' });
    await create({ metadata: { name: 'a', namespace: 'ns' } }, { group, resource });
    assert.deepEqual(used(), { [`count/${resource}.${group}`]: '1' });
    await assert.rejects(async () => create({ metadata: { name: 'b' } }, { group, resource }), /exceeded quota/);
  });
}

test('a refusal has the requested, used and limited amounts', async () => {
  const { create } = setup({ 'requests.cpu': '1', 'limits.memory': '1Gi' });
  await assert.rejects(async () => create(pod('p', '2')), /failed quota: q: must specify limits\.memory for: c/);
  const other = setup({ 'requests.cpu': '1' });
  await assert.rejects(
    async () => other.create(pod('p', '2')),
    /pods "p" is forbidden: exceeded quota: q, requested: requests\.cpu=2, used: requests\.cpu=0, limited: requests\.cpu=1/,
  );
});

/** Returns the quotas of one namespace by name. The next writes of those in `conflicts` fail with a conflict. */
function setupMany(quotas: Readonly<Record<string, Record<string, string>>>) {
  const conflicts: string[] = [];
  const onConflict: (() => void)[] = [];
  const stored = new Map<string, ResourceQuota>();
  for (const [name, hard] of Object.entries(quotas)) {
    const used = Object.fromEntries(Object.keys(hard).map((resource) => [resource, '0']));
    stored.set(name, { metadata: { name, namespace: 'ns', uid: name }, spec: { hard }, status: { hard, used } });
  }
  const lister: Lister<ResourceQuota> = {
    get: (_, name) => stored.get(name),
    live: (_, name) => Promise.resolve(structuredClone(stored.get(name))),
    list: () => [...stored.values()],
    subscribe: () => undefined,
    synced: () => Promise.resolve(),
  };
  const plugin = resourceQuota({
    listers: { of: () => lister, synced: () => Promise.resolve() } as unknown as Listers,
    updateStatus: async (quota) => {
      await Promise.resolve();
      const name = quota.metadata.name ?? '';
      if (conflicts[0] === name) {
        conflicts.shift();
        onConflict.shift()?.();
        throw newConflict({ group: '', resource: 'resourcequotas' }, name, 'changed');
      }
      stored.set(name, quota);
      return quota;
    },
  });
  return {
    conflicts,
    onConflict,
    stored,
    create: (pod: KubeObject, undos: (() => void)[] = []) =>
      plugin.validate?.(attributes(pod, undos), new AbortController().signal),
    used: () => Object.fromEntries([...stored].map(([name, quota]) => [name, quota.status?.used])),
  };
}

test('a conflict on one quota charges the others once', async () => {
  const { create, used, conflicts } = setupMany({ a: { pods: '10' }, b: { pods: '10' } });
  conflicts.push('b', 'b');
  await Promise.all([create(pod('p', '1')), create(pod('q', '1'))]);
  assert.deepEqual(used(), { a: { pods: '2' }, b: { pods: '2' } });
});

test('usage that the second quota refuses after a conflict is given back to the first', async () => {
  const { create, used, conflicts, onConflict, stored } = setupMany({ a: { pods: '10' }, b: { pods: '1' } });
  conflicts.push('b');
  onConflict.push(() => {
    const b = stored.get('b');
    stored.set('b', { ...b, metadata: { ...b?.metadata }, status: { hard: { pods: '1' }, used: { pods: '1' } } });
  });
  await assert.rejects(
    async () => create(pod('p', '1')),
    /exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1/,
  );
  await settled();
  assert.deepEqual(used(), { a: { pods: '0' }, b: { pods: '1' } });
});

/** Charges and refunds only wait for promises. */
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

test('usage that is given back is not lost in a conflict', async () => {
  const { create, used, conflicts, onConflict, stored } = setupMany({ a: { pods: '10' }, b: { pods: '1' } });
  conflicts.push('b', 'a', 'a', 'a');
  onConflict.push(() => {
    const b = stored.get('b');
    stored.set('b', { ...b, metadata: { ...b?.metadata }, status: { hard: { pods: '1' }, used: { pods: '1' } } });
  });
  await assert.rejects(async () => create(pod('p', '1')), /exceeded quota: b/);
  await settled();
  assert.deepEqual(used(), { a: { pods: '0' }, b: { pods: '1' } });
});

test('the charge of an object that is not written is refunded to every quota', async () => {
  const { create, used, conflicts } = setupMany({ a: { pods: '10' }, b: { pods: '10' } });
  const undos: (() => void)[] = [];
  await Promise.all([create(pod('p', '1'), undos), create(pod('q', '1'))]);
  assert.deepEqual(used(), { a: { pods: '2' }, b: { pods: '2' } });
  conflicts.push('a', 'b', 'b');
  for (const undo of undos) undo();
  await settled();
  assert.deepEqual(used(), { a: { pods: '1' }, b: { pods: '1' } });
});

test('a quota that was counted meanwhile gives nothing back: the count is without the object already', async () => {
  const { create, used, stored } = setupMany({ a: { pods: '10' } });
  const undos: (() => void)[] = [];
  await create(pod('written', '1'));
  await create(pod('p', '1'), undos);
  const a = stored.get('a');
  stored.set('a', { ...a, metadata: { ...a?.metadata }, status: { hard: { pods: '10' }, used: { pods: '1' } } });
  for (const undo of undos) undo();
  await settled();
  assert.deepEqual(used(), { a: { pods: '1' } });
});

test('a pod that gets a deadline is charged to the quota of pods with one', async () => {
  const { create, update, used } = setup({ pods: '1', 'requests.cpu': '2' }, 0, ['Terminating']);
  const withDeadline = (name: string) => {
    const { metadata, spec } = pod(name, '1');
    return { metadata, spec: { ...spec, activeDeadlineSeconds: 60 } };
  };
  await create(pod('a', '1'));
  assert.equal(await update(pod('a', '1'), pod('a', '1')), undefined);
  assert.deepEqual(used(), { pods: '0', 'requests.cpu': '0' });
  await update(pod('a', '1'), withDeadline('a'));
  assert.deepEqual(used(), { pods: '1', 'requests.cpu': '1' });
  await assert.rejects(async () => update(pod('b', '1'), withDeadline('b')), /exceeded quota: q, requested: pods=1/);
  await update(withDeadline('a'), { ...withDeadline('a'), metadata: { name: 'a', namespace: 'ns', labels: {} } });
  assert.deepEqual(used(), { pods: '1', 'requests.cpu': '1' });
});
