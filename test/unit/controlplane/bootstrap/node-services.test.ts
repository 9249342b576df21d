import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { services } from '../../../../api/machinery/resources.ts';
import { ensureNodeServices } from '../../../../controlplane/bootstrap/node-services.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const start = (client: FakeClient, mode: string, ranges: readonly string[]): Promise<void> =>
  ensureNodeServices(client, {
    ...{ serviceClusterCidrs: ['10.96.0.0/16'], servesNames: true, enforcesPolicies: true, logger: silentLogger },
    podNetwork: { mode, ranges },
  });

const annotationsOf = async (client: FakeClient): Promise<Readonly<Record<string, string>> | undefined> =>
  (await client.get(services, 'kube-system', 'kube-dns')).metadata.annotations;

test('the service kube-dns has the pod network that agents set up, as of the last start', async () => {
  const client = new FakeClient(new FakeClock());
  await start(client, 'vxlan', ['10.244.0.0/16']);
  assert.deepEqual(await annotationsOf(client), {
    'orchlet.local/served-by': 'nodes',
    'orchlet.local/pod-network': 'vxlan',
    'orchlet.local/pod-ranges': '10.244.0.0/16',
  });
  await start(client, 'wireguard', ['10.244.0.0/16', 'fd00:244::/48']);
  assert.deepEqual(await annotationsOf(client), {
    'orchlet.local/served-by': 'nodes',
    'orchlet.local/pod-network': 'wireguard',
    'orchlet.local/pod-ranges': '10.244.0.0/16,fd00:244::/48',
  });
});

test('a service kube-dns of another owner stays as it is', async () => {
  const client = new FakeClient(new FakeClock());
  await client.create(services, 'kube-system', {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'kube-dns', namespace: 'kube-system' } },
    spec: { clusterIP: '10.96.0.10', ports: [{ port: 53 }] },
  } as never);
  await start(client, 'vxlan', ['10.244.0.0/16']);
  assert.equal(await annotationsOf(client), undefined);
});
