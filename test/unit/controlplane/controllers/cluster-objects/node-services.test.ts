import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import type { Service } from '../../../../../api/kinds/kinds.ts';
import { clusterRoleBindings, services } from '../../../../../api/client/resources.ts';
import {
  ensureNodeServices,
  type NodeServicesOptions,
} from '../../../../../controlplane/controllers/cluster-objects/node-services.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const OPTIONS: NodeServicesOptions = {
  serviceClusterCidrs: ['10.96.0.0/16'],
  servesNames: true,
  enforcesPolicies: true,
  podNetwork: { mode: 'vxlan', ranges: ['10.244.0.0/16'] },
  otherServers: [],
  logger: silentLogger,
};

const start = (client: FakeClient, mode: string, ranges: readonly string[]): Promise<void> =>
  ensureNodeServices(client, { ...OPTIONS, podNetwork: { mode, ranges } });

/** Records the messages of warnings. */
function warnings(): { readonly logger: Logger; readonly messages: string[] } {
  const messages: string[] = [];
  return { logger: { ...silentLogger, warn: (_fields, message) => void messages.push(message) }, messages };
}

const policyBindings = async (client: FakeClient): Promise<readonly (string | undefined)[]> =>
  (await client.list(clusterRoleBindings)).items
    .map(({ metadata }) => metadata.name)
    .filter((name) => name?.startsWith('orchlet:network-policy'));

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

test('the service kube-dns has the tenth address of each range', async () => {
  const client = new FakeClient(new FakeClock());
  await ensureNodeServices(client, { ...OPTIONS, serviceClusterCidrs: ['10.96.0.0/16', 'fd00:96::/112'] });
  const { spec = {} } = (await client.get(services, 'kube-system', 'kube-dns')) as Service;
  assert.deepEqual([spec.clusterIP, spec.clusterIPs], ['10.96.0.10', ['10.96.0.10', 'fd00:96::a']]);
  assert.equal(spec.ipFamilyPolicy, 'PreferDualStack');
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

test('a server that enforces no network policies takes the rights of nodes away where no other one runs', async () => {
  const client = new FakeClient(new FakeClock());
  await ensureNodeServices(client, OPTIONS);
  assert.deepEqual(await policyBindings(client), ['orchlet:network-policy']);
  await ensureNodeServices(client, { ...OPTIONS, enforcesPolicies: false });
  assert.deepEqual(await policyBindings(client), []);
});

test('a server that starts beside others undoes none of what they serve, and says so', async () => {
  const client = new FakeClient(new FakeClock());
  await ensureNodeServices(client, { ...OPTIONS, podNetwork: { mode: 'wireguard', ranges: ['10.244.0.0/16'] } });
  const { logger, messages } = warnings();
  await ensureNodeServices(client, { ...OPTIONS, enforcesPolicies: false, otherServers: ['192.0.2.1'], logger });
  assert.deepEqual(await policyBindings(client), ['orchlet:network-policy']);
  assert.equal((await annotationsOf(client))?.['orchlet.local/pod-network'], 'wireguard');
  assert.equal(messages.length, 2);
  assert.match(messages[0] ?? '', /^Nodes still enforce network policies, because other control planes run/);
  assert.match(messages[1] ?? '', /^The pod network stays as it is published, because other control planes run/);
});
