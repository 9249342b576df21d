import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../api/meta/object.ts';
import {
  clusterRoles,
  configMaps,
  deployments,
  namespaces,
  pods,
  replicaSets,
} from '../../../../api/client/resources.ts';
import { runGarbageCollector } from '../../../../controlplane/controllers/garbage-collector/garbage-collector.ts';
import { decide } from '../../../../controlplane/controllers/garbage-collector/graph.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const owner = (kind: string, name: string, options: object = {}) => ({
  apiVersion: 'apps/v1',
  kind,
  name,
  uid: `${name}-uid`,
  controller: true,
  blockOwnerDeletion: true,
  ...options,
});

function object(name: string, owners: object[] = [], metadata: object = {}): KubeObject {
  return {
    metadata: {
      name,
      namespace: 'shop',
      uid: `${name}-uid`,
      ...(owners.length === 0 ? {} : { ownerReferences: owners as never }),
      ...metadata,
    },
  };
}

const tree = () =>
  [
    [deployments, object('web')],
    [replicaSets, object('web-1', [owner('Deployment', 'web')])],
    [pods, object('web-1-a', [owner('ReplicaSet', 'web-1')])],
    [pods, object('web-1-b', [owner('ReplicaSet', 'web-1')])],
  ] as const;

test('the catalog is read once for all its changes of one turn of the event loop', async () => {
  const t = controllerTest({ objects: tree() });
  await t.start(runGarbageCollector);
  const before = t.catalogReads();
  for (let change = 0; change < 100; change += 1) t.changeCatalog();
  await t.advance(20);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(t.catalogReads() - before, 1);
  await t.stop();
});

test('the dependents of a deleted owner are deleted, and so are their dependents', async () => {
  const t = controllerTest({ objects: tree() });
  await t.start(runGarbageCollector);
  await t.client.delete(deployments, 'shop', 'web', { propagationPolicy: 'Background' });
  await t.advance(100);
  assert.equal(t.client.peekAll(replicaSets).length, 0);
  assert.equal(t.client.peekAll(pods).length, 0);
  await t.stop();
});

test('an owner that is deleted in the foreground is removed after its dependents', async () => {
  const t = controllerTest({ objects: tree() });
  await t.start(runGarbageCollector);
  await t.client.delete(deployments, 'shop', 'web', { propagationPolicy: 'Foreground' });
  await t.advance(200);
  assert.equal(t.client.peekAll(pods).length, 0);
  assert.equal(t.client.peekAll(replicaSets).length, 0);
  assert.equal(t.client.peekAll(deployments).length, 0);
  const order = t.client
    .writes()
    .filter(({ verb }) => verb === 'delete')
    .map(({ name }) => name);
  assert.ok(order.indexOf('web-1') < order.indexOf('web-1-a'), 'the dependents are deleted in the foreground, too');
  await t.stop();
});

test('an object of another namespace that claims an owner does not hold up its deletion, whatever finalizer it has', async () => {
  const foreign = object('claims-it', [owner('Deployment', 'web')], {
    namespace: 'evil',
    finalizers: ['evil.example.com/for-ever'],
  });
  const t = controllerTest({ objects: [...tree(), [configMaps, foreign]] });
  await t.start(runGarbageCollector);
  await t.client.delete(deployments, 'shop', 'web', { propagationPolicy: 'Foreground' });
  await t.advance(200);
  assert.deepEqual([t.client.peekAll(pods).length, t.client.peekAll(deployments).length], [0, 0]);
  await t.stop();
});

test('dependents of an owner that is deleted with orphan stay, without the reference', async () => {
  const t = controllerTest({ objects: tree() });
  await t.start(runGarbageCollector);
  await t.client.delete(replicaSets, 'shop', 'web-1', { propagationPolicy: 'Orphan' });
  await t.advance(200);
  assert.equal(t.client.peekAll(replicaSets).length, 0);
  assert.equal(t.client.peekAll(pods).length, 2);
  for (const pod of t.client.peekAll(pods)) assert.equal(pod.metadata.ownerReferences, undefined);
  await t.stop();
});

test('objects of another namespace that claim an owner do not hold up its deletion with orphan, though they cannot be changed', async () => {
  const foreign = object('claims-it', [owner('ReplicaSet', 'web-1')], {
    namespace: 'evil',
    finalizers: ['evil.example.com/for-ever'],
  });
  const t = controllerTest({ objects: [...tree(), [configMaps, foreign]] });
  await t.start(runGarbageCollector);
  t.client.intercept(({ verb, namespace }) => {
    if (verb === 'patch' && namespace === 'evil') throw new Error('changed all the time');
    return undefined;
  });
  await t.client.delete(replicaSets, 'shop', 'web-1', { propagationPolicy: 'Orphan' });
  await t.advance(200);
  assert.equal(t.client.peekAll(replicaSets).length, 0);
  await t.stop();
});

test('an object with another existing owner only loses the reference to the deleted one', async () => {
  const two = object('both', [owner('Deployment', 'web'), owner('Deployment', 'other', { controller: false })]);
  const t = controllerTest({
    objects: [
      [deployments, object('web')],
      [deployments, object('other')],
      [configMaps, two],
    ],
  });
  await t.start(runGarbageCollector);
  await t.client.delete(deployments, 'shop', 'web');
  await t.advance(100);
  assert.deepEqual(
    t.client.peek(configMaps, 'shop', 'both')?.metadata.ownerReferences?.map(({ name }) => name),
    ['other'],
  );
  await t.stop();
});

test('an owner that never existed, or another object of its name, counts as deleted', async () => {
  const t = controllerTest({
    objects: [
      [deployments, object('web')],
      [configMaps, object('lost', [owner('Deployment', 'web', { uid: 'an-older-one' })])],
    ],
  });
  await t.start(runGarbageCollector);
  await t.advance(100);
  assert.equal(t.client.peek(configMaps, 'shop', 'lost'), undefined);
  await t.stop();
});

test('an owner of a kind that is not served keeps its dependents', async () => {
  const t = controllerTest({ objects: [[configMaps, object('kept', [owner('Unknown', 'x')])]] });
  await t.start(runGarbageCollector);
  await t.advance(5000);
  assert.notEqual(t.client.peek(configMaps, 'shop', 'kept'), undefined);
  await t.stop();
});

test('an owner in a group or version that is not served keeps its dependents, though the graph has an object of its UID', async () => {
  const old = object('old', [owner('Deployment', 'web', { apiVersion: 'extensions/v1beta1' })]);
  const renamed = object('renamed', [owner('Deployment', 'other', { apiVersion: 'apps/v1beta2', uid: 'web-uid' })]);
  const wrong = object('wrong', [owner('Deployment', 'other', { uid: 'web-uid' })]);
  const objects = [old, renamed, wrong].map((one) => [configMaps, one] as const);
  const t = controllerTest({ objects: [[deployments, object('web')], ...objects] });
  await t.start(runGarbageCollector);
  await t.advance(5000);
  assert.deepEqual(
    t.client
      .peekAll(configMaps)
      .map(({ metadata }) => metadata.name)
      .sort(),
    ['old', 'renamed'],
  );
  await t.stop();
});

test('existing owners cost no request to the API', async () => {
  const t = controllerTest({ objects: tree() });
  await t.start(runGarbageCollector);
  await t.advance(1000);
  assert.equal(t.client.calls.filter(({ verb }) => verb === 'get').length, 0);
  await t.stop();
});

test('decisions: a waiting owner with dependents of its own is deleted in the foreground', () => {
  const base = { finalizers: [], hasDependents: true, hasDependentsBeingDeletedInForeground: false };
  assert.deepEqual(decide({ ...base, owners: [{ uid: 'a', verdict: 'waiting' }] }), {
    kind: 'delete',
    policy: 'Foreground',
    unblock: false,
  });
  assert.deepEqual(decide({ ...base, owners: [{ uid: 'a', verdict: 'dangling' }], finalizers: ['orphan'] }), {
    kind: 'delete',
    policy: 'Orphan',
    unblock: false,
  });
  assert.deepEqual(decide({ ...base, owners: [{ uid: 'a', verdict: 'solid' }] }), { kind: 'keep' });
});

test('a kind that cannot be listed does not stop the collection of the others', async () => {
  const t = controllerTest({ objects: tree() });
  t.client.intercept((call) => {
    if (call.verb === 'list' && call.resource.resource === 'configmaps') throw new Error('cannot be listed');
    return undefined;
  });
  await t.start(runGarbageCollector);
  await t.client.delete(deployments, 'shop', 'web', { propagationPolicy: 'Background' });
  await t.advance(20_000);
  assert.equal(t.client.peekAll(pods).length, 2, 'it waits for the whole graph at first');
  await t.advance(20_000);
  assert.equal(t.client.peekAll(pods).length, 0);
  await t.stop();
});

test('an object in no namespace is kept whatever namespaced owner it names, with an event', async () => {
  const role = { metadata: { name: 'r', uid: 'r-uid', ownerReferences: [owner('Deployment', 'web') as never] } };
  const t = controllerTest({
    objects: [
      [deployments, object('web')],
      [clusterRoles, role as unknown as KubeObject],
    ],
    served: [deployments, clusterRoles],
  });
  await t.start(runGarbageCollector);
  await t.advance(100);
  await t.client.delete(deployments, 'shop', 'web', { propagationPolicy: 'Background' });
  await t.advance(60_000);
  assert.equal(t.client.peekAll(clusterRoles).length, 1);
  const where = '[apps/v1/Deployment, namespace: , name: web, uid: web-uid]';
  const reported = `Warning OwnerRefInvalidNamespace ownerRef ${where} does not exist in namespace ""`;
  assert.ok(
    t.events().some((event) => event.startsWith(reported)),
    t.events().join('\n'),
  );
  await t.stop();
});

test('an object that names an owner of another namespace gets an event', async () => {
  const other = { ...object('x', [owner('Deployment', 'web')]) };
  const t = controllerTest({
    objects: [
      [deployments, object('web')],
      [configMaps, { ...other, metadata: { ...other.metadata, namespace: 'elsewhere' } }],
    ],
    served: [deployments, configMaps],
  });
  await t.start(runGarbageCollector);
  await t.advance(100);
  const where = '[apps/v1/Deployment, namespace: elsewhere, name: web, uid: web-uid]';
  const reported = `Warning OwnerRefInvalidNamespace ownerRef ${where} does not exist in namespace "elsewhere"`;
  assert.ok(
    t.events().some((event) => event.startsWith(reported)),
    t.events().join('\n'),
  );
  await t.stop();
});

test('an object in no namespace is kept though the UID of the namespaced owner that it names is that of another object', async () => {
  const reference = { ...owner('Deployment', 'none'), uid: 'web-uid' };
  const role = { metadata: { name: 'r', uid: 'r-uid', ownerReferences: [reference as never] } };
  const t = controllerTest({
    objects: [
      [namespaces, { metadata: { name: 'shop', uid: 'web-uid' } } as unknown as KubeObject],
      [clusterRoles, role as unknown as KubeObject],
    ],
    served: [deployments, namespaces, clusterRoles],
  });
  await t.start(runGarbageCollector);
  await t.advance(60_000);
  assert.equal(t.client.peekAll(clusterRoles).length, 1);
  await t.stop();
});
