/** Resizes of pods: which changes of a container and of the whole pod are allowed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { podKinds } from '../../../../../../controlplane/registry/kinds/core/pods.ts';
import { rulesOf } from '../strategy-fixture.ts';

const { update } = rulesOf(podKinds, '', 'pods', 'resize');

const pod = (resources: object, more: object = {}): Record<string, unknown> => ({
  spec: { resources, containers: [{ name: 'c', image: 'i' }], ...more },
});
const half = { requests: { cpu: '500m' }, limits: { cpu: '1' } };

test('a resize changes the resources of a pod as a whole, and nothing beside resources', () => {
  const more = { requests: { cpu: '600m' }, limits: { cpu: '2' } };
  const { object, errors, newGeneration } = update(pod(half), pod(more, { nodeName: 'n' }));
  const { spec } = object as { spec?: { resources?: object; nodeName?: string } };
  assert.deepEqual(
    [spec?.resources, spec?.nodeName, errors.filter((error) => !error.startsWith('metadata')), newGeneration],
    [more, undefined, [], true],
  );
});

test('the resources of a pod as a whole cannot be removed by a resize', () =>
  assert.ok(
    update(pod(half), pod({ requests: { cpu: '500m' } })).errors.includes(
      'spec.resources.limits: Forbidden: resource limits cannot be removed',
    ),
  ));

test('a resize changes no other resources of a pod as a whole', () => {
  const pages = (size: string): object => {
    const list = { cpu: '1', memory: '1Gi', 'hugepages-2Mi': size };
    return { requests: list, limits: list };
  };
  assert.ok(
    update(pod(pages('2Mi')), pod(pages('4Mi'))).errors.includes(
      'spec: Forbidden: only cpu and memory resources are mutable',
    ),
  );
});

test('a resize removes no amounts, whatever the resource, and init containers are checked first', () => {
  const list = (amounts: object): object => ({ requests: amounts });
  const of = (amounts: object): Record<string, unknown> => ({
    spec: {
      containers: [{ name: 'c', image: 'i', resources: list(amounts) }],
      initContainers: [{ name: 'i', image: 'i', restartPolicy: 'Always', resources: list(amounts) }],
    },
  });
  const { errors } = update(of({ cpu: '1', 'ephemeral-storage': '1Gi' }), of({ cpu: '1' }));
  assert.deepEqual(
    errors.filter((error) => error.startsWith('spec')),
    [
      'spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed',
      'spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed',
      'spec: Forbidden: only cpu and memory resources are mutable',
    ],
  );
});
