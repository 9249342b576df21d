import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ContainerStatusJson, Pod } from '../../../../../agent/base/model/pod.ts';
import { podPhase } from '../../../../../agent/runtime/kuberuntime/pod-phase.ts';

const running = { running: {} };
const waiting = { waiting: { reason: 'ContainerCreating' } };
const ended = (exitCode: number): object => ({ terminated: { exitCode } });

function phase(
  restartPolicy: string,
  states: readonly object[],
  init: readonly object[] = [],
  options = { terminal: false, hasBegun: false },
  annotations: object = {},
): string {
  const pod = {
    metadata: { name: 'p', annotations },
    spec: {
      restartPolicy,
      containers: states.map((_state, index) => ({ name: `c${index}` })),
      initContainers: init.map((_state, index) => ({ name: `i${index}` })),
    },
  } as unknown as Pod;
  const statuses = [
    ...states.map((state, index) => ({ name: `c${index}`, ...split(state) })),
    ...init.map((state, index) => ({ name: `i${index}`, ...split(state) })),
  ] as ContainerStatusJson[];
  return podPhase(pod, statuses, options);
}

function split(state: object): object {
  return 'state' in state ? state : { state };
}

const backOff = { state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: ended(1) };

describe('the phase of a pod', () => {
  const table: readonly (readonly [string, string, string])[] = [
    ['is Pending until every container was started', phase('Always', [running, waiting]), 'Pending'],
    ['is Running while one runs', phase('Never', [running, ended(1)]), 'Running'],
    ['is Running while a container waits to be started again', phase('Always', [backOff]), 'Running'],
    ['is Running when an ended container will be started again', phase('Always', [ended(0)]), 'Running'],
    ['is Succeeded when all ended well', phase('Never', [ended(0), ended(0)]), 'Succeeded'],
    ['is Failed when one failed under Never', phase('Never', [ended(0), ended(1)]), 'Failed'],
    ['is Running when one failed under OnFailure', phase('OnFailure', [ended(0), ended(1)]), 'Running'],
    ['is Succeeded when all ended well under OnFailure', phase('OnFailure', [ended(0)]), 'Succeeded'],
    ['is Pending while an init container runs', phase('Always', [waiting], [running]), 'Pending'],
    ['is Pending while a failed init container is tried again', phase('Always', [waiting], [ended(1)]), 'Pending'],
    ['is Failed when an init container failed under Never', phase('Never', [waiting], [ended(1)]), 'Failed'],
    [
      'is Failed when the pod was ended while its containers ran',
      phase('Always', [ended(137)], [], { terminal: true, hasBegun: false }),
      'Failed',
    ],
    [
      'is Running when a static pod was ended, until its mirror pod is deleted',
      phase('Always', [ended(0)], [], { terminal: true, hasBegun: false }, { 'kubernetes.io/config.source': 'file' }),
      'Running',
    ],
    [
      'is Failed when a static pod has failed that is not restarted',
      phase('Never', [ended(1)], [], { terminal: true, hasBegun: false }, { 'kubernetes.io/config.source': 'file' }),
      'Failed',
    ],
    [
      'is Pending when the pod was ended between two attempts of an init container, until it is terminated',
      phase('Always', [waiting], [ended(1)], { terminal: true, hasBegun: false }),
      'Pending',
    ],
    ['is Pending while a new sandbox is initialized', phase('Always', [backOff], [running]), 'Pending'],
    ['is Failed when a container that waits cannot be restarted', phase('Never', [backOff]), 'Failed'],
  ];
  for (const [name, got, expected] of table) it(name, () => assert.equal(got, expected));
});
