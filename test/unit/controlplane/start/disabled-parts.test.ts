/** Tests parts of a cluster that `--disable` leaves to others. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { test } from 'node:test';
import { type FlagTable, parseFlags } from '../../../../api/component/flags.ts';
import {
  apiServices,
  clusterRoleBindings,
  groupVersion,
  networkPolicies,
  nodes,
  services,
  storageClasses,
} from '../../../../api/client/resources.ts';
import type { Service } from '../../../../api/kinds/kinds.ts';
import { isNotFound, tolerate } from '../../../../api/meta/status-error.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { until } from '../../../until.ts';
import { partsFlags } from '../../../../controlplane/options/parts.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const METRICS = 'v1beta1.metrics.k8s.io';
const DEFAULT = 'storageclass.kubernetes.io/is-default-class';
const usage = groupVersion('metrics.k8s.io', 'v1beta1').clusterScoped('nodes', 'NodeMetrics');

async function withPlane(
  flags: NonNullable<Parameters<typeof startControlPlane>[0]>['flags'],
  check: (plane: ControlPlane) => Promise<void>,
): Promise<void> {
  const all = { bindAddress: '127.0.0.1', securePort: 0, scheduler: false, manifestsDir: [], ...flags };
  const plane = await startControlPlane({ flags: all });
  try {
    await check(plane);
  } finally {
    await plane.close();
  }
}
const hasMetrics = async ({ client }: ControlPlane): Promise<boolean[]> => [
  (await tolerate(client.get(apiServices, '', METRICS), isNotFound)) !== undefined,
  (await tolerate(client.list(usage), isNotFound)) !== undefined,
];

test('a disabled metrics-server leaves neither the API nor its APIService, also of an earlier start', async () => {
  const dataDir = temporaryFolder();
  try {
    await withPlane({ dataDir }, async (plane) => assert.deepEqual(await hasMetrics(plane), [true, true]));
    await withPlane({ dataDir, disable: ['metrics-server'] }, async (plane) =>
      assert.deepEqual(await hasMetrics(plane), [false, false]),
    );
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
});

test('no claim gets a default class before a node can make its volumes', () =>
  withPlane({ storageBackend: 'memory' }, async ({ client }) => {
    assert.deepEqual((await client.list(storageClasses)).items, []);
    await client.create(nodes, '', {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'a', annotations: { 'orchlet.local/local-volumes': 'true' } },
    });
    const made = await until('the class', () => tolerate(client.get(storageClasses, '', 'local'), isNotFound));
    assert.equal(made.metadata.annotations?.[DEFAULT], 'true');
  }));

test('disabled local storage makes no class', () =>
  withPlane({ storageBackend: 'memory', disable: ['local-storage'] }, async ({ client }) => {
    const rights = tolerate(client.get(clusterRoleBindings, '', 'orchlet:local-volume-provisioner'), isNotFound);
    assert.equal(await rights, undefined);
  }));

test('nodes serve the names of the cluster, unless that is disabled', async () => {
  const hasNames = async ({ client }: ControlPlane): Promise<boolean> =>
    (await tolerate(client.get(services, 'kube-system', 'kube-dns'), isNotFound)) !== undefined;
  const hasRights = async ({ client }: ControlPlane): Promise<boolean> => {
    const bindings = ['orchlet:node-proxier', 'orchlet:network-policy'].map((name) =>
      tolerate(client.get(clusterRoleBindings, '', name), isNotFound),
    );
    return (await Promise.all(bindings)).every((binding) => binding !== undefined);
  };
  const served = { storageBackend: 'memory', nodeServices: true };
  await withPlane(served, async (plane) =>
    assert.deepEqual([await hasNames(plane), await hasRights(plane)], [true, true]),
  );
  await withPlane({ ...served, disable: ['name-server'] }, async (plane) =>
    assert.deepEqual([await hasNames(plane), await hasRights(plane)], [false, true]),
  );
});

test('nodes may read the pods of others only once a network policy exists', () =>
  withPlane({ storageBackend: 'memory', nodeServices: true }, async ({ client }) => {
    const peers = (): Promise<unknown> =>
      tolerate(client.get(clusterRoleBindings, '', 'orchlet:network-policy-peers'), isNotFound);
    await client.create(nodes, '', { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } });
    assert.equal(await peers(), undefined);
    await client.create(networkPolicies, 'default', {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'deny', namespace: 'default' },
      spec: { podSelector: {} },
    });
    await until('the right', peers);
  }));

test('load balancers have the addresses of nodes, which a disabled part gives back', async () => {
  const dataDir = temporaryFolder();
  const stored = ({ client }: ControlPlane): Promise<Service> =>
    client.get(services, 'default', 'web') as Promise<Service>;
  const ipsOf = ({ status }: Service): (string | undefined)[] =>
    (status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip);
  try {
    await withPlane({ dataDir, nodeServices: true }, async (plane) => {
      const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } };
      const status = {
        addresses: [{ type: 'InternalIP', address: '192.0.2.1' }],
        conditions: [{ type: 'Ready', status: 'True' }],
      };
      await plane.client.create(nodes, '', node);
      await plane.client.patch(nodes, '', 'a', { type: 'merge', body: { status }, subresource: 'status' });
      await plane.client.create(services, 'default', {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'web', namespace: 'default' },
        spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
      } as never);
      const balanced = await until('the address', async () => {
        const service = await stored(plane);
        return ipsOf(service).length > 0 ? service : undefined;
      });
      assert.deepEqual(ipsOf(balanced), ['192.0.2.1']);
      assert.deepEqual(balanced.metadata.finalizers, ['service.kubernetes.io/load-balancer-cleanup']);
    });
    await withPlane({ dataDir, nodeServices: true, disable: ['service-lb'] }, (plane) =>
      until('the end of the address', async () => {
        const { metadata, status } = await stored(plane);
        return metadata.finalizers === undefined && (status?.loadBalancer?.ingress ?? []).length === 0;
      }).then(() => undefined),
    );
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
});

test('disabled network policies take the right to read them from nodes, also one of an earlier start', async () => {
  const dataDir = temporaryFolder();
  const bindings = async ({ client }: ControlPlane): Promise<readonly string[]> =>
    (await client.list(clusterRoleBindings)).items
      .map(({ metadata }) => metadata.name ?? '')
      .filter((name) => name.startsWith('orchlet:'))
      .toSorted();
  try {
    await withPlane({ dataDir, nodeServices: true }, async (plane) => {
      assert.ok((await bindings(plane)).includes('orchlet:network-policy'));
      await plane.client.create(networkPolicies, 'default', {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'NetworkPolicy',
        metadata: { name: 'deny', namespace: 'default' },
        spec: { podSelector: {} },
      });
      await until('the right to read peers', async () =>
        (await bindings(plane)).includes('orchlet:network-policy-peers') ? true : undefined,
      );
    });
    await withPlane({ dataDir, nodeServices: true, disable: ['network-policies'] }, async (plane) => {
      const left = await bindings(plane);
      assert.ok(left.includes('orchlet:node-proxier'));
      assert.deepEqual(
        left.filter((name) => name.startsWith('orchlet:network-policy')),
        [],
      );
    });
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
});

test('a part that does not exist is refused', () =>
  assert.throws(() => parseFlags(partsFlags as FlagTable, ['--disable=traefik']), /"traefik" must be one of/));
