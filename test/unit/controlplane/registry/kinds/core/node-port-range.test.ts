import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createProtobufCodec } from '../../../../../../api/codec/protobuf.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../../api/schema/table.ts';
import { NodePortRange } from '../../../../../../controlplane/registry/kinds/core/node-port-range.ts';
import { ServiceClaims } from '../../../../../../controlplane/registry/kinds/core/service-claims.ts';
import { portsOf, type Service } from '../../../../../../controlplane/registry/kinds/core/service-types.ts';
import { etcdValues } from '../../../../../../controlplane/storage/etcd/values.ts';
import { openMemoryStorage } from '../../../../../../controlplane/storage/memory.ts';
import { encodeObject, parseObject, stampRevision } from '../../../../../../controlplane/storage/object-bytes.ts';
import { isStorageError, type Storage } from '../../../../../../controlplane/storage/storage.ts';
import { openWatchCache } from '../../../../../../controlplane/storage/watch-cache.ts';
import { silentLogger } from '../../../../../../api/component/logger.ts';
import type { StoredResource } from '../../../../../../controlplane/registry/store.ts';
import { FakeClock } from '../../../../../fakes/fake-clock.ts';

const KEY = '/core/ranges/servicenodeports';
const ports = { from: 30000, to: 32767 };
const clock = new FakeClock();

const service = (name: string, ...nodePorts: readonly number[]): Service => ({
  kind: 'Service',
  apiVersion: 'v1',
  metadata: { name, namespace: 'default' },
  spec: { type: 'NodePort', ports: nodePorts.map((nodePort) => ({ port: nodePort, nodePort })) },
});

/** Returns a storage that other servers write as well. */
function sharedStorage(): Storage {
  const storage = openMemoryStorage({ clock, stamp: stampRevision });
  return Object.assign(storage, { catchUp: () => Promise.resolve() });
}

async function serverOn(storage: Storage) {
  const resource = { group: 'core', resource: 'services', namespaced: true };
  const cache = await openWatchCache({ storage, resource, clock, logger: silentLogger });
  const store = { cache, storage } as unknown as StoredResource;
  const claims = new ServiceClaims({ get: () => store });
  const range = new NodePortRange({ ports, claims, storage: () => storage });
  return {
    range,
    create: (one: Service) =>
      range.write({ service: one, old: undefined }, (transactionWrites) =>
        storage.create(keyOf(one), encodeObject(one), { transactionWrites }),
      ),
    async remove(one: Service) {
      const revision = (await storage.get(keyOf(one)))?.revision ?? 0;
      await range.write({ service: undefined, old: one }, (operations) =>
        storage.delete(keyOf(one), revision, operations),
      );
    },
  };
}

const keyOf = ({ metadata }: Service): string => `/core/services/default/${metadata.name ?? ''}`;

async function allocated(storage: Storage): Promise<readonly number[]> {
  const value = (await storage.get(KEY))?.value;
  const data = value === undefined ? '' : String((parseObject(value) as KubeObject & { data?: string }).data);
  const bytes = Buffer.from(data, 'base64');
  return Array.from({ length: bytes.length * 8 }, (_, bit) => bit)
    .filter((bit) => (((bytes[bytes.length - 1 - (bit >> 3)] ?? 0) >> (bit & 7)) & 1) === 1)
    .map((bit) => ports.from + bit);
}

test('one of two servers that take the same port is refused', async () => {
  const storage = sharedStorage();
  const [one, other] = [await serverOn(storage), await serverOn(storage)];
  const results = await Promise.allSettled([one.create(service('a', 30007)), other.create(service('b', 30007))]);
  assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
  assert.ok(results.some((result) => result.status === 'rejected' && isStorageError(result.reason, 'occupied')));
  assert.deepEqual(await allocated(storage), [30007]);
});

test('servers that take different ports at the same time all succeed', async () => {
  const storage = sharedStorage();
  const servers = [await serverOn(storage), await serverOn(storage), await serverOn(storage)];
  await Promise.all(
    servers.flatMap((server, at) =>
      Array.from({ length: 10 }, (_, i) => server.create(service(`s${at}-${i}`, 30000 + 10 * i + at))),
    ),
  );
  assert.equal((await allocated(storage)).length, 30);
});

test('a deletion frees the ports, and the first write of all counts the services that exist', async () => {
  const storage = sharedStorage();
  const old = service('old', 30001, 32767);
  await storage.create(keyOf(old), encodeObject(old));
  const server = await serverOn(storage);
  await server.create(service('new', 30002));
  assert.deepEqual(await allocated(storage), [30001, 30002, 32767]);
  await server.remove(old);
  assert.deepEqual(await allocated(storage), [30002]);
});

test('a port that another program has allocated without a service is refused, and not chosen again', async () => {
  const storage = sharedStorage();
  const server = await serverOn(storage);
  await server.create(service('a', 30000));
  const theirs = await storage.get(KEY);
  assert.ok(theirs);
  const range = { ...parseObject(theirs.value), data: Buffer.from([0b11]).toString('base64') };
  await storage.update(KEY, encodeObject(range), theirs.revision);
  await assert.rejects(server.create(service('b', 30001)), (error) => isStorageError(error, 'occupied'));
  assert.equal(server.range.avoids(30001), true);
});

test('a port that the other program has released since is chosen again', async () => {
  const storage = sharedStorage();
  const server = await serverOn(storage);
  await server.create(service('a', 30000));
  const withBits = async (bits: number): Promise<void> => {
    const stored = await storage.get(KEY);
    assert.ok(stored);
    const range = { ...parseObject(stored.value), data: Buffer.from([bits]).toString('base64') };
    await storage.update(KEY, encodeObject(range), stored.revision);
  };
  await withBits(0b11);
  await assert.rejects(server.create(service('b', 30001)), (error) => isStorageError(error, 'occupied'));
  await server.create(service('c', 30002));
  assert.equal(server.range.avoids(30001), true);
  await withBits(0b101);
  await server.create(service('d', 30003));
  assert.equal(server.range.avoids(30001), false);
  await server.create(service('b', 30001));
});

test('with one server, nothing but the services is stored', async () => {
  const storage = openMemoryStorage({ clock, stamp: stampRevision });
  await (await serverOn(storage)).create(service('a', 30007));
  assert.equal(await storage.get(KEY), undefined);
});

test('the object has the form and the bytes of kube-apiserver', async () => {
  const recorded = readFileSync(join(import.meta.dirname, '../../../storage/etcd/recorded/keys.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { readonly key: string; readonly value: string });
  const schema = loadSchema();
  const values = etcdValues(schema, createProtobufCodec(schema, { writesZeros: true }));
  const theirs = recorded.find(({ key }) => key === '/registry/ranges/servicenodeports')?.value ?? '';
  const stored = recorded
    .filter(({ key }) => key.startsWith('/registry/services/specs/'))
    .map(({ value }) => parseObject(values.fromEtcd(Buffer.from(value, 'base64'))) as Service);
  const storage = sharedStorage();
  const last = stored.find(({ spec }) => portsOf(spec ?? {}).length > 0);
  assert.ok(last);
  for (const one of stored) if (one !== last) await storage.create(keyOf(one), encodeObject(one));
  await (await serverOn(storage)).create(last);
  const taken = stored.flatMap(({ spec }) => portsOf(spec ?? {}));
  assert.deepEqual(
    await allocated(storage),
    [...new Set(taken)].sort((a, b) => a - b),
  );
  const ours = await storage.get(KEY);
  assert.ok(ours);
  assert.equal(values.toEtcd(ours.value).toString('base64'), theirs);
});
