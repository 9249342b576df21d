import assert from 'node:assert/strict';
import { test } from 'node:test';
import { podColumns } from '../../../../../../controlplane/registry/kinds/core/pod-columns.ts';

/** A pod whose first init container was restarted and has ended, and whose sidecar waits for its next start. */
const podWith = (initialized: 'True' | 'False'): object => ({
  metadata: { name: 'a', namespace: 'n' },
  spec: {
    initContainers: [{ name: 'prepare' }, { name: 'proxy', restartPolicy: 'Always' }],
    containers: [{ name: 'main' }],
  },
  status: {
    phase: 'Running',
    conditions: [{ type: 'Initialized', status: initialized }],
    initContainerStatuses: [
      { name: 'prepare', restartCount: 3, state: { terminated: { exitCode: 0 } } },
      { name: 'proxy', restartCount: 2, started: false, state: { waiting: { reason: 'CrashLoopBackOff' } } },
    ],
    containerStatuses: [{ name: 'main', restartCount: 1, ready: true, state: { running: {} } }],
  },
});

const firstCells = (pod: object): readonly unknown[] => podColumns.cells(pod as never).slice(1, 4);

test('the restarts of init containers do not count in an initialized pod, even if a sidecar is down', () => {
  assert.deepEqual(firstCells(podWith('True')), ['1/2', 'Init:CrashLoopBackOff', '3']);
});

test('the restarts of all init containers count until the pod is initialized', () => {
  assert.deepEqual(firstCells(podWith('False')), ['0/2', 'Init:CrashLoopBackOff', '5']);
});
