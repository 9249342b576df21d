import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { Pod, PodDisruptionBudget, ReplicaSet } from '../../../../api/machinery/kinds.ts';
import { podDisruptionBudgets, pods, replicaSets } from '../../../../api/machinery/resources.ts';
import {
  computeBudgetStatus,
  computeExpectation,
  runDisruption,
} from '../../../../controlplane/controllers/disruption/disruption.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const budget = (spec: Partial<NonNullable<PodDisruptionBudget['spec']>>): PodDisruptionBudget => ({
  metadata: { name: 'b', namespace: 'n', generation: 3 },
  spec: { selector: { matchLabels: { app: 'a' } }, ...spec },
});

const pod = (name: string, { ready = true, owner = 'set' }: { ready?: boolean; owner?: string } = {}): Pod => ({
  metadata: {
    name,
    namespace: 'n',
    labels: { app: 'a' },
    ...(owner === ''
      ? {}
      : {
          ownerReferences: [
            { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: owner, uid: 'set-uid', controller: true },
          ],
        }),
  },
  spec: { containers: [] },
  status: { phase: 'Running', conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] },
});

describe('what a budget expects', () => {
  const cases: readonly (readonly [object, number, number, object])[] = [
    [{ minAvailable: 2 }, 5, 9, { expected: 5, desired: 2 }],
    [{ minAvailable: '50%' }, 5, 9, { expected: 9, desired: 5 }],
    [{ maxUnavailable: 1 }, 5, 9, { expected: 9, desired: 8 }],
    [{ maxUnavailable: '30%' }, 5, 10, { expected: 10, desired: 7 }],
    [{ maxUnavailable: 20 }, 5, 10, { expected: 10, desired: 0 }],
  ];
  for (const [spec, members, scale, wanted] of cases)
    test(`${JSON.stringify(spec)} with ${members} pods of ${scale}`, () =>
      assert.deepEqual(
        computeExpectation(budget(spec), members, () => scale),
        wanted,
      ));
});

describe('what may be disrupted', () => {
  const now = Date.UTC(2026, 0, 2);
  const members = [pod('a'), pod('b'), pod('c', { ready: false })];
  test('is what is healthy beyond what must be', () => {
    const status = computeBudgetStatus(budget({}), members, { expected: 3, desired: 1 }, now);
    assert.deepEqual([status.currentHealthy, status.disruptionsAllowed, status.observedGeneration], [2, 1, 3]);
    assert.equal(status.conditions?.[0]?.reason, 'SufficientPods');
  });
  test('counts a pod that was just let go as gone, for two minutes', () => {
    const taken: PodDisruptionBudget = {
      ...budget({}),
      status: {
        disruptedPods: { a: formatTime(now - 60_000), b: formatTime(now - 180_000) },
        currentHealthy: 0,
        desiredHealthy: 0,
        disruptionsAllowed: 0,
        expectedPods: 0,
      },
    };
    const status = computeBudgetStatus(taken, members, { expected: 3, desired: 1 }, now);
    assert.deepEqual([Object.keys(status.disruptedPods ?? {}), status.disruptionsAllowed], [['a'], 0]);
  });
  test('is zero if no pods are expected', () =>
    assert.equal(computeBudgetStatus(budget({}), [], { expected: 0, desired: 0 }, now).disruptionsAllowed, 0));
});

describe('the budget of a set', () => {
  const set: ReplicaSet = {
    metadata: { name: 'set', namespace: 'n', uid: 'set-uid' },
    spec: { replicas: 4, selector: {} },
  };
  test('counts from what its controller asks for', async () => {
    const t = controllerTest({
      objects: [
        [podDisruptionBudgets, budget({ maxUnavailable: 2 })],
        [replicaSets, set],
        [pods, pod('a')],
        [pods, pod('b')],
        [pods, pod('c')],
      ],
    });
    await t.start(runDisruption);
    await t.advance(100);
    const status = t.client.peek(podDisruptionBudgets, 'n', 'b')?.status;
    assert.deepEqual([status?.expectedPods, status?.desiredHealthy, status?.disruptionsAllowed], [4, 2, 1]);
    await t.stop();
  });
  test('allows nothing when a pod has no controller', async () => {
    const t = controllerTest({
      objects: [
        [podDisruptionBudgets, budget({ maxUnavailable: 2 })],
        [pods, pod('a', { owner: '' })],
      ],
    });
    await t.start(runDisruption);
    await t.advance(100);
    const status = t.client.peek(podDisruptionBudgets, 'n', 'b')?.status;
    assert.equal(status?.disruptionsAllowed, 0);
    assert.equal(status?.conditions?.[0]?.reason, 'SyncFailed');
    await t.stop();
  });
});
