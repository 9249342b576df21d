/** Tests resizes of pods: which changes of a container and of the whole pod are allowed. */
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
      'spec.resources.limits: Forbidden: pod-level resource limits cannot be removed',
    ),
  ));

test('a resize changes no other resources of a pod as a whole', () => {
  const pages = (size: string): object => {
    const list = { cpu: '1', memory: '1Gi', 'hugepages-2Mi': size };
    return { requests: list, limits: list };
  };
  assert.ok(
    update(pod(pages('2Mi')), pod(pages('4Mi'))).errors.includes(
      'spec: Forbidden: only cpu and memory resources are mutable at pod-level',
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
      'spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable',
    ],
  );
});

const withContainers = (...names: string[]): Record<string, unknown> => ({
  spec: { containers: names.map((name) => ({ name, image: 'i', resources: half })) },
});
const specErrors = (errors: readonly string[]): string[] => errors.filter((error) => error.startsWith('spec'));
const [first, second] = [0, 1].map(
  (index) => `spec.containers[${index}].name: Forbidden: containers may not be renamed or reordered on resize`,
);

test('a resize neither reorders nor renames containers', () => {
  assert.deepEqual(specErrors(update(withContainers('a', 'b'), withContainers('b', 'a')).errors), [first, second]);
  assert.deepEqual(specErrors(update(withContainers('a', 'b'), withContainers('a', 'c')).errors), [second]);
});

test('a resize neither adds nor removes containers', () => {
  const refused = ['spec.containers: Forbidden: containers may not be added or removed on resize'];
  assert.deepEqual(specErrors(update(withContainers('a'), withContainers('a', 'b')).errors), refused);
  assert.deepEqual(specErrors(update(withContainers('a', 'b'), withContainers('a')).errors), refused);
});

test('a resize removes no resources of a pod as a whole, and an init container that restarts for a resize gets none', () => {
  assert.deepEqual(specErrors(update(pod(half), { spec: { containers: [{ name: 'c', image: 'i' }] } }).errors), [
    'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
    'spec.resources: Forbidden: pod-level resources cannot be removed',
  ]);
  const initial = (cpu: string): Record<string, unknown> => {
    const resizePolicy = [{ resourceName: 'cpu', restartPolicy: 'RestartContainer' }];
    const container = { name: 'i', image: 'i', resources: { requests: { cpu } }, resizePolicy };
    return { spec: { containers: [{ name: 'c', image: 'i' }], initContainers: [container] } };
  };
  assert.ok(
    update(initial('1'), initial('2')).errors.includes(
      'spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized',
    ),
  );
});
