/** Tests the endpoints of the service `kubernetes` with one server and with several servers on one storage. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { endpoints, endpointSlices, leases, services } from '../../../../../api/client/resources.ts';
import { typedClient } from '../../../../../api/client/typed-client.ts';
import { keepKubernetesService } from '../../../../../controlplane/controllers/cluster-objects/kubernetes-service.ts';
import { serverAddresses } from '../../../../../controlplane/controllers/cluster-objects/server-addresses.ts';
import {
  keepServerIdentity,
  serverName,
} from '../../../../../controlplane/controllers/cluster-objects/server-identity.ts';
import { openMemoryStorage } from '../../../../../controlplane/storage/memory.ts';
import { encodeObject, stampRevision } from '../../../../../controlplane/storage/object-bytes.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function cluster() {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const storage = openMemoryStorage({ clock, logger: silentLogger, stamp: stampRevision });
  const start = (address: string | undefined, publishes = true, port = 6443) =>
    keepKubernetesService({
      client,
      clock,
      logger: silentLogger,
      address: () => address,
      port,
      publishes,
      serviceClusterCidrs: ['10.96.0.0/12'],
      servers: serverAddresses(storage, clock),
    });
  return {
    clock,
    client,
    storage,
    start,
    addresses: () => [
      client.peek(endpoints, 'default', 'kubernetes')?.subsets?.[0]?.addresses?.map(({ ip }) => ip),
      client.peek(endpointSlices, 'default', 'kubernetes')?.endpoints?.flatMap((one) => one.addresses),
    ],
  };
}

test('the endpoints hold all running servers, which do not overwrite each other', async () => {
  const { clock, client, start, addresses } = cluster();
  const first = start('192.0.2.1');
  await clock.advance(100);
  assert.deepEqual(addresses(), [['192.0.2.1'], ['192.0.2.1']]);
  const second = start('192.0.2.2');
  await clock.advance(100);
  assert.deepEqual(addresses(), [
    ['192.0.2.1', '192.0.2.2'],
    ['192.0.2.1', '192.0.2.2'],
  ]);
  const writes = client.calls.length;
  await clock.advance(60_000);
  assert.equal(client.calls.slice(writes).filter(({ verb }) => verb === 'update').length, 0);
  await second.close();
  assert.deepEqual(addresses(), [['192.0.2.1'], ['192.0.2.1']]);
  await first.close();
  assert.deepEqual(addresses(), [['192.0.2.1'], ['192.0.2.1']], 'the last one stays');
});

test('a server that starts again with another port publishes it in the endpoints and their slice', async () => {
  const { clock, client, start } = cluster();
  const first = start('192.0.2.1');
  await clock.advance(100);
  await first.close();
  const second = start('192.0.2.1', true, 7443);
  await clock.advance(100);
  assert.equal(client.peek(endpoints, 'default', 'kubernetes')?.subsets?.[0]?.ports?.[0]?.port, 7443);
  assert.equal(client.peek(endpointSlices, 'default', 'kubernetes')?.ports?.[0]?.port, 7443);
  await second.close();
});

test('a server that maintains no endpoints creates the service alone', async () => {
  const { clock, client, start, addresses } = cluster();
  const server = start('192.0.2.1', false);
  await clock.advance(100);
  assert.equal(client.peek(services, 'default', 'kubernetes')?.spec?.clusterIP, '10.96.0.1');
  assert.deepEqual(addresses(), [undefined, undefined]);
  await server.close();
});

test('the address of a server that was killed goes after its lease', async () => {
  const { clock, storage, start, addresses } = cluster();
  const killed = serverAddresses(storage, clock);
  await killed.renew('192.0.2.9');
  const first = start('192.0.2.1');
  await clock.advance(100);
  assert.deepEqual(addresses()[0], ['192.0.2.1', '192.0.2.9']);
  await clock.advance(40_000);
  assert.deepEqual(addresses()[0], ['192.0.2.1']);
  await first.close();
});

test('a server whose address changes withdraws the former one, and servers of kube-apiserver are kept', async () => {
  const clock = new FakeClock();
  const storage = openMemoryStorage({ clock, logger: silentLogger, stamp: stampRevision });
  const other = {
    kind: 'Endpoints',
    apiVersion: 'v1',
    metadata: { generation: 7 },
    subsets: [{ addresses: [{ ip: '192.0.2.7' }] }],
  };
  await storage.create('/core/masterleases/192.0.2.7', encodeObject(other));
  const own = serverAddresses(storage, clock);
  await own.renew('192.0.2.1');
  await own.renew('192.0.2.2');
  assert.deepEqual(await own.all(), ['192.0.2.2', '192.0.2.7']);
  await own.remove();
  assert.deepEqual(await own.all(), ['192.0.2.7']);
});

test('each server has a Lease by its host name, and those of servers long gone are removed', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const gone = serverName('gone');
  const labels = { 'apiserver.kubernetes.io/identity': 'kube-apiserver' };
  client.seed(leases, {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: gone, namespace: 'kube-system', labels },
    spec: { holderIdentity: gone, leaseDurationSeconds: 3600, renewTime: '2026-01-01T00:00:00.000000Z' },
  });
  const options = { client: typedClient(client), clock, logger: silentLogger, hostname: 'a' };
  const identity = keepServerIdentity(options);
  await clock.advance(20_000);
  assert.match(serverName('a'), /^apiserver-[a-z2-7]{26}$/);
  const all = client.peekAll(leases);
  assert.deepEqual(
    all.map(({ metadata }) => metadata.name),
    [serverName('a')],
  );
  assert.equal(all[0]?.spec?.renewTime, '2026-01-02T03:04:25.000000Z');
  assert.equal(all[0]?.metadata.labels?.['kubernetes.io/hostname'], 'a');
  await identity.close();
  assert.equal(clock.pendingTimers, 0);
});
