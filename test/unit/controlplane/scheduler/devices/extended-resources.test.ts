/** Tests the requests for devices that extended resources of a pod become. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { DeviceClass, Pod } from '../../../../../api/kinds/kinds.ts';
import {
  ExtendedResources,
  extendedClaimOn,
} from '../../../../../controlplane/scheduler/devices/extended-resources.ts';
import { NodeInfo } from '../../../../../controlplane/scheduler/node-info.ts';
import { PodInfo } from '../../../../../controlplane/scheduler/pod-info.ts';

const RESOURCE = 'example.com/gpu';
const classOf = (name: string, creationTimestamp: string): DeviceClass =>
  ({ metadata: { name, creationTimestamp }, spec: { extendedResourceName: RESOURCE } }) as never;
const node = new NodeInfo({ metadata: { name: 'n' }, status: { allocatable: { cpu: '1' } } } as never);
const container = (name: string, count: number, restartPolicy?: string) => ({
  name,
  ...(restartPolicy === undefined ? {} : { restartPolicy }),
  resources: { requests: { cpu: '1', [RESOURCE]: `${count}` } },
});

function requestsFor(initContainers: readonly object[], containers: readonly object[]) {
  const pod = { metadata: { name: 'p', uid: 'u', namespace: 'a' }, spec: { initContainers, containers } };
  const resources = new ExtendedResources([classOf('gpu', '2026-01-01T00:00:00Z')]);
  const { claim, mappings = [] } = extendedClaimOn(new PodInfo(pod as unknown as Pod), node, resources) ?? {};
  return {
    requests: claim?.spec?.devices?.requests?.map(({ name, exactly }) => `${name} ${exactly?.count}`),
    mappings: mappings.map(({ containerName, requestName }) => `${containerName} ${requestName}`),
  };
}

it('containers that run together have requests of their own', () => {
  assert.deepEqual(requestsFor([container('s', 1, 'Always')], [container('a', 2), container('b', 0)]), {
    requests: ['container-0-request-1 1', 'container-1-request-1 2'],
    mappings: ['s container-0-request-1', 'a container-1-request-1'],
  });
});

it('an init container uses the devices of later containers, and the largest further request serves all init containers', () => {
  assert.deepEqual(requestsFor([container('i', 2)], [container('a', 2)]), {
    requests: ['container-1-request-1 2'],
    mappings: ['a container-1-request-1', 'i container-1-request-1'],
  });
  assert.deepEqual(requestsFor([container('i', 3), container('j', 5)], [container('a', 2)]), {
    requests: ['container-1-request-1 3', 'container-2-request-1 2'],
    mappings: [
      'a container-2-request-1',
      'i container-2-request-1',
      'i container-1-request-1',
      'j container-2-request-1',
      'j container-1-request-1',
    ],
  });
});

it('the newest of several classes with one extended resource counts, and then the first by name', () => {
  const old = classOf('a', '2026-01-01T00:00:00Z');
  const [b, c] = ['b', 'c'].map((name) => classOf(name, '2026-01-02T00:00:00Z'));
  assert.ok(b !== undefined && c !== undefined);
  for (const classes of [
    [old, c, b],
    [b, c, old],
  ])
    assert.equal(new ExtendedResources(classes).classOf(RESOURCE)?.metadata.name, 'b');
  assert.equal(new ExtendedResources([old]).classOf('deviceclass.resource.kubernetes.io/a')?.metadata.name, 'a');
});
