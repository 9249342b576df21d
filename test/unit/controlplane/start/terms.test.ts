/** Tests terms of leadership: what runs in a term, and what is left of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { keepAlive } from '../../../../api/machinery/clock.ts';
import { Informers } from '../../../../api/client/informer.ts';
import { LoopTurns } from '../../../../api/machinery/loop-turns.ts';
import * as resources from '../../../../api/client/resources.ts';
import { deployments, events, leases, nodes, pods, replicaSets } from '../../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../../api/meta/status-error.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { startControllers } from '../../../../controlplane/controllers/start.ts';
import { controllerOptions, controllersFlags } from '../../../../controlplane/options/controllers.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { electsLeaders } from '../../../../controlplane/options/leader-election.ts';
import type { ResourceInfo } from '../../../../api/schema/schema.ts';
import { startScheduler } from '../../../../controlplane/scheduler/scheduler.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';

const NAMESPACE = 'kube-system';
const QUICK = {
  leaderElect: 'true',
  leaderElectLeaseDuration: 2000,
  leaderElectRenewDeadline: 1500,
  leaderElectRetryPeriod: 100,
};

const deployment = (name: string): KubeObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace: 'default' },
  spec: {
    replicas: 1,
    selector: { matchLabels: { app: name } },
    template: { metadata: { labels: { app: name } }, spec: { containers: [{ name: 'c', image: 'i' }] } },
  },
});

test('the controllers and the scheduler of a term leave no timer, watch or catalog listener', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock, [
    [
      nodes,
      { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' }, status: { allocatable: { cpu: '4', pods: '9' } } },
    ],
    [pods, { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p', namespace: 'default' }, spec: { containers: [] } }],
    [deployments, deployment('web')],
  ]);
  const listeners = new Set<() => void>();
  const metrics = new MetricsRegistry();
  const catalog = {
    find: () => undefined,
    resources: () => [resources.pods, resources.deployments, resources.replicaSets].map((one) => infoOf(one)),
    onChange(listener: () => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
  for (let term = 0; term < 2; term++) {
    const informers = new Informers({ client, clock, logger: silentLogger, watchList: false });
    const common = { informers, clock, logger: silentLogger };
    const controllers = startControllers({
      ...common,
      loaded: Promise.resolve(),
      clientFor: () => client,
      turns: new LoopTurns(clock),
      catalog,
      rootCaPem: 'pem',
      options: controllerOptions(parseFlags(controllersFlags, []).values),
    });
    const scheduler = startScheduler({ ...common, client, random: () => 0, metrics });
    await clock.advance(700_000);
    assert.ok(client.openWatches > 10);
    assert.match(metrics.text(), /scheduler_cache_size{type="nodes"} 1/);
    await scheduler.stop();
    await controllers.close();
    await informers.close();
    await clock.settle();
    assert.equal(client.openWatches, 0);
    assert.equal(listeners.size, 0);
    assert.equal(clock.pendingTimers, 0);
    assert.match(metrics.text(), /scheduler_cache_size{type="nodes"} 0/);
  }
});

function infoOf({ group, version, resource, kind, namespaced }: resources.ResourceOf<unknown>): ResourceInfo {
  const verbs = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];
  const names = { singular: kind.toLowerCase(), shortNames: [], categories: [], subresources: [] };
  return { group, version, resource, kind, namespaced, verbs, ...names };
}

/** Takes a Lease as another process would. */
async function seize({ client }: ControlPlane, name: string, seconds: number): Promise<void> {
  await until(`taking ${name}`, async () => {
    const lease = await client.get(leases, NAMESPACE, name);
    const spec = { ...(lease['spec'] as object), holderIdentity: 'other', leaseDurationSeconds: seconds };
    return client.update(leases, { ...lease, spec });
  });
}

const isMaster = ({ metrics }: ControlPlane, name: string): boolean =>
  metrics.text().includes(`leader_election_master_status{name="${name}"} 1`);

test('controllers and scheduler stop when another process takes their leases, and run again when they lead again', async () => {
  const alive = keepAlive();
  const plane = await startControlPlane({ memory: true, flags: { ...QUICK, manifestsDir: [] } });
  const { client } = plane;
  const setsOf = async (name: string): Promise<number> => {
    const { items } = await client.list(replicaSets, { labelSelector: `app=${name}` });
    return items.length;
  };
  try {
    await until(
      'the terms of controllers and scheduler',
      () => isMaster(plane, 'kube-controller-manager') && isMaster(plane, 'kube-scheduler'),
    );
    await client.create(deployments, 'default', deployment('first'));
    await until('the first replica set', async () => (await setsOf('first')) === 1);
    const { items } = await until('the event', async () => {
      const list = await client.list(events, { namespace: NAMESPACE, fieldSelector: 'reason=LeaderElection' });
      return list.items.length >= 2 && list;
    });
    assert.match(String(items[0]?.['message']), /_[0-9a-f-]{36} became leader$/);
    await seize(plane, 'kube-controller-manager', 4);
    await until('the end of the term', () => !isMaster(plane, 'kube-controller-manager'));
    assert.equal(isMaster(plane, 'kube-scheduler'), true, 'the scheduler has a lease of its own');
    await client.create(deployments, 'default', deployment('second'));
    const holder = async (): Promise<unknown> =>
      ((await client.get(leases, NAMESPACE, 'kube-controller-manager'))['spec'] as Record<string, unknown>)[
        'holderIdentity'
      ];
    await until('the end of the other lease', async () => {
      const sets = await setsOf('second');
      if ((await holder()) !== 'other') return true;
      assert.equal(sets, 0, 'nothing runs while another process leads');
      return false;
    });
    await until('the second replica set', async () => (await setsOf('second')) === 1);
    assert.match(String(await holder()), /_[0-9a-f-]{36}$/);
  } finally {
    await plane.close();
    alive.cancel();
  }
});

test('leaders are elected where several servers can share the storage, unless the flag says otherwise', () => {
  const given = (...argv: string[]): boolean => electsLeaders(parseFlags(controlPlaneFlags, argv).values);
  assert.equal(given(), false);
  assert.equal(given('--storage-backend=memory'), false);
  assert.equal(given('--etcd-servers=http://127.0.0.1:2379'), true);
  assert.equal(given('--leader-elect'), true);
  assert.equal(given('--etcd-servers=http://127.0.0.1:2379', '--leader-elect=false'), false);
});

test('a process without controllers leaves their lease to another', async () => {
  const alive = keepAlive();
  const flags = { ...QUICK, controllers: ['-*'], scheduler: false, manifestsDir: [] };
  const plane = await startControlPlane({ memory: true, flags });
  try {
    await until('the lease of the API server', () => isMaster(plane, 'orchlet-apiserver'));
    const { items } = await plane.client.list(leases, { namespace: NAMESPACE });
    assert.deepEqual(
      items.map(({ metadata }) => metadata.name),
      ['orchlet-apiserver'],
    );
  } finally {
    await plane.close();
    alive.cancel();
  }
});

test('without other processes at the storage there is no lease, unless it is asked for', async () => {
  const alive = keepAlive();
  const plane = await startControlPlane({ memory: true, flags: { manifestsDir: [] } });
  try {
    assert.equal(await tolerate(plane.client.get(leases, NAMESPACE, 'kube-scheduler'), isNotFound), undefined);
    await plane.client.create(deployments, 'default', deployment('web'));
    await until('a replica set', async () => (await plane.client.list(replicaSets)).items.length === 1);
  } finally {
    await plane.close();
    alive.cancel();
  }
});
