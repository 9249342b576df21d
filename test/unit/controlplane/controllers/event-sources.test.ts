import assert from 'node:assert/strict';
import { test } from 'node:test';
import { controllerTable } from '../../../../controlplane/controllers/controller-table.ts';
import { componentOf } from '../../../../controlplane/controllers/start.ts';

test('events name the component that kube-controller-manager names', () => {
  const components = new Map(
    controllerTable({}).map(({ account, name }) => [name as string, componentOf(account, name)]),
  );
  for (const [controller, component] of [
    ['daemonset-controller', 'daemonset-controller'],
    ['device-taint-eviction-controller', 'device-taint-eviction-controller'],
    ['disruption-controller', 'controllermanager'],
    ['endpoints-controller', 'endpoint-controller'],
    ['endpointslice-mirroring-controller', 'endpoint-slice-mirroring-controller'],
    ['ephemeral-volume-controller', 'ephemeral_volume'],
    ['node-ipam-controller', 'cidrAllocator'],
    ['persistentvolume-binder-controller', 'persistentvolume-controller'],
    ['persistentvolume-expander-controller', 'volume_expand'],
    ['resourceclaim-controller', 'resource_claim'],
    ['service-cidr-controller', 'service-cidr-controller'],
  ] as const)
    assert.equal(components.get(controller), component);
});
