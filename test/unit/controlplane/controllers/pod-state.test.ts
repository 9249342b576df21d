import assert from 'node:assert/strict';
import { it } from 'node:test';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { Pod } from '../../../../api/kinds/kinds.ts';
import { compareForDeletion } from '../../../../controlplane/controllers/pod-state.ts';

const NOW = Date.UTC(2026, 0, 2);

function pod(
  uid: string,
  form: { readonly ageSeconds?: number; readonly restarts?: number; readonly sidecar?: number },
): Pod {
  const { ageSeconds = 100, restarts = 0, sidecar = 0 } = form;
  const at = formatTime(NOW - ageSeconds * 1000);
  return {
    metadata: { uid, name: uid, creationTimestamp: at },
    spec: { nodeName: 'n', containers: [], initContainers: [{ name: 's', restartPolicy: 'Always' }] },
    status: {
      phase: 'Running',
      conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: at }],
      containerStatuses: [{ name: 'c', restartCount: restarts }],
      initContainerStatuses: [{ name: 's', restartCount: sidecar }],
    },
  } as unknown as Pod;
}

const order = (...pods: Pod[]): (string | undefined)[] =>
  pods.toSorted((a, b) => compareForDeletion(a, b, () => 0, NOW)).map(({ metadata }) => metadata.uid);

it('the pod with the lower uid is deleted if pods are ready for about the same time, whatever their restarts', () => {
  assert.deepEqual(order(pod('b', { ageSeconds: 101, restarts: 5 }), pod('a', { ageSeconds: 100 })), ['a', 'b']);
});

it('the pod whose containers, then whose sidecars restarted most is deleted if pods are ready for the same time', () => {
  assert.deepEqual(order(pod('a', {}), pod('b', { restarts: 1 })), ['b', 'a']);
  assert.deepEqual(order(pod('a', {}), pod('b', { sidecar: 1 })), ['b', 'a']);
  assert.deepEqual(order(pod('a', { restarts: 1 }), pod('b', { sidecar: 2 })), ['a', 'b']);
});
