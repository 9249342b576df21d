/**
 * Tests keys and values of etcd, against what a kube-apiserver 1.36.2 with etcd 3.5 has written (`recorded/keys.jsonl`) and
 * what it answered to lists at the same time (`recorded/lists.jsonl`).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createProtobufCodec } from '../../../../../api/codec/protobuf.ts';
import { parseExactJson } from '../../../../../api/codec/json.ts';
import type { JsonObject, KubeObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import { etcdKeys, isServerState } from '../../../../../controlplane/storage/etcd/keys.ts';
import { etcdValues } from '../../../../../controlplane/storage/etcd/values.ts';
import { encodeObject, parseObject } from '../../../../../controlplane/storage/object-bytes.ts';

const schema = loadSchema();
const values = etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }));
const keys = etcdKeys('/registry');

const lines = (name: string): JsonObject[] =>
  readFileSync(join(import.meta.dirname, 'recorded', name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => parseExactJson(line) as JsonObject);

const recorded = lines('keys.jsonl').map(({ key, value }) => ({
  key: String(key),
  value: Buffer.from(String(value), 'base64'),
}));
const objects = recorded.flatMap(({ key, value }) => {
  const own = keys.fromEtcd(key);
  return own === undefined || isServerState(own) ? [] : [{ key, own, value }];
});

/** The objects of all lists by kind and UID, without their resource versions. */
const listed = new Map<string, KubeObject>();
for (const { answer } of lines('lists.jsonl')) {
  const list = answer as unknown as { kind: string; apiVersion: string; items?: KubeObject[] };
  for (const item of list.items ?? []) {
    const object = { ...item, kind: list.kind.replace(/List$/, ''), apiVersion: item.apiVersion ?? list.apiVersion };
    delete object.metadata.resourceVersion;
    listed.set(`${object.apiVersion} ${object.kind} ${object.metadata.uid ?? ''}`, object);
  }
}

test('keys are translated in both directions, and the state of a server is no object', () => {
  assert.ok(objects.length > 250);
  for (const { key, own } of objects) assert.equal(keys.toEtcd(own), key);
  const others = recorded.filter(({ key }) => keys.fromEtcd(key) === undefined).map(({ key }) => key.split('/')[2]);
  assert.deepEqual([...new Set(others)].sort(), ['peerserverleases']);
  assert.equal(keys.fromEtcd('/registry/masterleases/192.0.2.2'), '/core/masterleases/192.0.2.2');
  assert.equal(keys.toEtcd('/core/masterleases/192.0.2.2'), '/registry/masterleases/192.0.2.2');
  assert.ok(isServerState('/core/masterleases/192.0.2.2'), 'a migration leaves it out');
  assert.equal(keys.toEtcd('/core/ranges/servicenodeports'), '/registry/ranges/servicenodeports');
  assert.equal(keys.fromEtcd('/registry/services/specs/default/web'), '/core/services/default/web');
  assert.equal(keys.fromEtcd('/registry/example.com/widgets/default/w1'), '/example.com/widgets/default/w1');
  assert.equal(etcdKeys('/other/').toEtcd('/core/nodes/a'), '/other/minions/a');
});

test('keys that are of no object are refused', () => {
  for (const key of [
    '/registry/pods',
    '/registry/pods/a/b/c',
    '/registry/pods/a/',
    '/registry/unknown/a',
    '/elsewhere/pods/a/b',
  ])
    assert.throws(() => keys.fromEtcd(key), new RegExp(key.replaceAll('/', '\\/')));
});

test('a value is read as the object that kube-apiserver lists', () => {
  let compared = 0;
  for (const { key, value } of objects) {
    const object = parseObject(values.fromEtcd(value));
    const expected = listed.get(`${object.apiVersion ?? ''} ${object.kind ?? ''} ${object.metadata.uid ?? ''}`);
    assert.ok(expected, `${key} is in no list`);
    assert.deepEqual(object, expected, key);
    compared += 1;
  }
  assert.equal(compared, objects.length);
});

test('a value is written with the bytes of kube-apiserver, and JSON with the same members', () => {
  const counts = { bytes: 0, members: 0, definitions: 0 };
  for (const { key, value } of objects) {
    const stored = values.fromEtcd(value);
    const written = values.toEtcd(stored);
    if (value[0] !== '{'.charCodeAt(0)) {
      assert.ok(written.equals(value), key);
      counts.bytes += 1;
    } else if (key.includes('/customresourcedefinitions/')) {
      assert.deepEqual(parseObject(values.fromEtcd(written)), parseObject(stored));
      counts.definitions += 1;
    } else {
      assert.deepEqual(JSON.parse(written.toString()), JSON.parse(value.toString()), key);
      counts.members += 1;
    }
  }
  assert.deepEqual(counts, { bytes: 235, members: 24, definitions: 1 });
});

test('an object in a version of another shape is refused by name', () => {
  const autoscaler = {
    apiVersion: 'autoscaling/v1',
    kind: 'HorizontalPodAutoscaler',
    metadata: { name: 'a', namespace: 'default' },
    spec: { maxReplicas: 3, scaleTargetRef: { kind: 'Deployment', name: 'web' }, targetCPUUtilizationPercentage: 50 },
  };
  const old = createProtobufCodec(schema).encodeEnveloped(autoscaler);
  assert.throws(
    () => values.fromEtcd(old),
    /HorizontalPodAutoscaler is stored in autoscaling\/v1, and only autoscaling\/v2/,
  );
  assert.throws(() => values.fromEtcd(Buffer.from('{"a":1}')), /no object with kind, apiVersion and metadata/);
});

test('the resource version of the storage is not written', () => {
  const stored = encodeObject({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'a', namespace: 'b', resourceVersion: '7' },
    data: { k: 'v' },
  } as unknown as KubeObject);
  assert.equal(parseObject(values.fromEtcd(values.toEtcd(stored))).metadata.resourceVersion, undefined);
});

test('defaults that kube-apiserver adds when it reads are the same after a write', () => {
  const metadata = { name: 'a', namespace: 'b' };
  const template = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', metadata: { name: 'data' } };
  for (const object of [
    { apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata, status: { phase: 'Pending' } },
    { apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata, status: { phase: 'Bound' } },
    { apiVersion: 'apps/v1', kind: 'StatefulSet', metadata, spec: { volumeClaimTemplates: [template] } },
  ]) {
    const read = parseObject(values.fromEtcd(values.toEtcd(encodeObject(object))));
    const { kind, spec, status } = read as KubeObject & Record<string, unknown>;
    if (kind === 'StatefulSet') {
      const [claim] = (spec as { volumeClaimTemplates: KubeObject[] }).volumeClaimTemplates;
      assert.deepEqual([claim?.kind, claim?.apiVersion, claim?.metadata.name], [template.kind, 'v1', 'data']);
    } else assert.deepEqual(status, object.status);
  }
});
