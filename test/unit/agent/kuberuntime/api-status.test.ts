/** What the API is told of containers that the runtime does not have yet. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod, PodStatus } from '../../../../agent/core-types.ts';
import { apiPodStatus } from '../../../../agent/kuberuntime/api-status.ts';
import { assembleRuntimeStatus } from '../../../../agent/kuberuntime/runtime-status.ts';

function statusOf(spec: object, { recursiveReadOnly }: { readonly recursiveReadOnly: boolean }): PodStatus {
  const pod = { metadata: { name: 'p', namespace: 'd', uid: 'u' }, spec: { nodeName: 'n', ...spec } } as unknown as Pod;
  return apiPodStatus({
    pod,
    runtime: assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'd' }, [], []),
    previous: undefined,
    terminal: false,
    resizing: [],
    resize: {},
    nowMs: 0,
    hostIps: [],
    recursiveReadOnly,
    runtimeName: 'docker',
    waiting: () => undefined,
    readiness: () => undefined,
    terminationMessage: () => '',
  });
}

function waitingReasons(spec: object): Record<string, string | undefined> {
  const status = statusOf(spec, { recursiveReadOnly: false });
  const all = [
    ...(status.initContainerStatuses ?? []),
    ...(status.containerStatuses ?? []),
    ...(status.ephemeralContainerStatuses ?? []),
  ];
  return Object.fromEntries(all.map(({ name, state }) => [name, state?.waiting?.reason]));
}

describe('a container that was not made yet waits', () => {
  const container = (name: string): object => ({ name, image: 'i' });
  it('for its creation in a pod without init containers', () =>
    assert.deepEqual(waitingReasons({ containers: [container('a')] }), { a: 'ContainerCreating' }));
  it('for the initialization in a pod with init containers, these and debugging ones included', () =>
    assert.deepEqual(
      waitingReasons({
        initContainers: [container('one'), container('two')],
        containers: [container('a')],
        ephemeralContainers: [container('debug')],
      }),
      { one: 'PodInitializing', two: 'PodInitializing', a: 'PodInitializing', debug: 'PodInitializing' },
    ));
});

it('A mount that is read-only says whether all below it is too, never that this was a wish', () => {
  const mount = (name: string, recursiveReadOnly?: string): object => ({
    name,
    mountPath: `/${name}`,
    readOnly: true,
    recursiveReadOnly,
  });
  const spec = {
    containers: [
      {
        name: 'a',
        volumeMounts: [
          mount('wished', 'IfPossible'),
          mount('no', 'Disabled'),
          mount('unsaid'),
          { name: 'written', mountPath: '/w' },
        ],
      },
    ],
  };
  const modes = (recursiveReadOnly: boolean): unknown[] =>
    (statusOf(spec, { recursiveReadOnly }).containerStatuses?.[0]?.volumeMounts ?? []).map(
      (shown) => shown.recursiveReadOnly,
    );
  assert.deepEqual(modes(false), ['Disabled', 'Disabled', 'Disabled', undefined]);
  assert.deepEqual(modes(true), ['Enabled', 'Disabled', 'Disabled', undefined]);
});
