import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { Pod, PodDisruptionBudget, ReplicaSet } from '../../../../api/kinds/kinds.ts';
import { podDisruptionBudgets, pods, replicaSets } from '../../../../api/client/resources.ts';
import {
  computeBudgetStatus,
  computeExpectation,
  runDisruption,
} from '../../../../controlplane/controllers/disruption/disruption.ts';
import { newNotFound } from '../../../../api/meta/status-error.ts';
import { controllerScales } from '../../../../controlplane/controllers/disruption/controller-scales.ts';
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
    test(`${JSON.stringify(spec)} with ${members} pods of ${scale}`, async () =>
      assert.deepEqual(await computeExpectation(budget(spec), members, () => scale), wanted));
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
  test('counts a pod that is named as a property of all objects', () => {
    const status = computeBudgetStatus(budget({}), [pod('constructor')], { expected: 1, desired: 0 }, now);
    assert.equal(status.disruptionsAllowed, 1);
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
  test('does not count pods without a controller', async () => {
    const t = controllerTest({
      objects: [
        [podDisruptionBudgets, budget({ maxUnavailable: 2 })],
        [replicaSets, set],
        [pods, pod('a')],
        [pods, pod('b', { owner: '' })],
      ],
    });
    await t.start(runDisruption);
    await t.advance(100);
    const status = t.client.peek(podDisruptionBudgets, 'n', 'b')?.status;
    assert.deepEqual([status?.expectedPods, status?.desiredHealthy, status?.currentHealthy], [4, 2, 2]);
    assert.equal(status?.conditions?.[0]?.reason, 'InsufficientPods');
    await t.stop();
  });
  test('counts a set that is not of a deployment by itself', async () => {
    const ownerReferences = [
      { apiVersion: 'argoproj.io/v1alpha1', kind: 'Rollout', name: 'r', uid: 'rollout-uid', controller: true },
    ];
    const t = controllerTest({
      objects: [
        [podDisruptionBudgets, budget({ maxUnavailable: 1 })],
        [replicaSets, { ...set, metadata: { ...set.metadata, ownerReferences } }],
        [pods, pod('a')],
      ],
    });
    await t.start(runDisruption);
    await t.advance(100);
    assert.equal(t.client.peek(podDisruptionBudgets, 'n', 'b')?.status?.expectedPods, 4);
    await t.stop();
  });
});

describe('the scale of a controller', () => {
  const info = (kind: string, subresources: readonly string[]): object => ({
    group: 'example.com',
    version: 'v1',
    kind,
    resource: `${kind.toLowerCase()}s`,
    subresources: subresources.map((name) => ({ name })),
  });
  const catalog = { resources: () => [info('Fleet', ['scale', 'status']), info('Herd', [])] };
  const scales: Readonly<Record<string, object>> = { f: { metadata: { uid: 'f-uid' }, spec: { replicas: 7 } } };
  const client = {
    get: (_: unknown, _namespace: string, name: string) => {
      const scale = scales[name];
      return scale === undefined
        ? Promise.reject(newNotFound({ group: 'example.com', resource: 'fleets' }, name))
        : Promise.resolve(scale);
    },
  };
  const scaleOf = controllerScales({ catalog, client } as never, [] as never);
  const reference = (kind: string, name: string, uid = `${name}-uid`) => ({
    apiVersion: 'example.com/v1',
    kind,
    name,
    uid,
    controller: true,
  });

  test('of any kind is that of its scale subresource', async () => {
    assert.deepEqual(await scaleOf(reference('Fleet', 'f'), 'n'), { uid: 'f-uid', replicas: 7 });
    assert.equal(await scaleOf(reference('Fleet', 'f', 'another'), 'n'), undefined);
    assert.equal(await scaleOf(reference('Fleet', 'gone'), 'n'), undefined);
  });
  test('is unknown if its kind has none, or does not exist', async () => {
    await assert.rejects(
      scaleOf(reference('Herd', 'h'), 'n'),
      /herds.example.com does not implement the scale subresource/,
    );
    await assert.rejects(
      scaleOf(reference('Flock', 'f'), 'n'),
      /no matches for kind "Flock" in version "example.com\/v1"/,
    );
  });
});

test('a pod that was to be disrupted and was not loses the condition after two minutes', async () => {
  const target = (name: string, more: object = {}): Pod => {
    const { metadata, ...rest } = pod(name);
    const lastTransitionTime = '2026-01-02T03:04:05Z';
    const conditions = [
      { type: 'DisruptionTarget', status: 'True', reason: 'EvictionByEvictionAPI', message: 'm', lastTransitionTime },
    ];
    return { ...rest, metadata: { ...metadata, ...more }, status: { phase: 'Running', conditions } } as Pod;
  };
  const leaving = { deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: ['example.com/wait'] };
  const t = controllerTest({
    objects: [
      [pods, target('stays')],
      [pods, target('leaves', leaving)],
    ],
  });
  await t.start(runDisruption);
  const statusOf = (name: string) => t.client.peek(pods, 'n', name)?.status?.conditions?.[0];
  await t.advance(100_000);
  assert.equal(statusOf('stays')?.status, 'True');
  await t.advance(30_000);
  assert.deepEqual(
    [statusOf('stays')?.status, statusOf('stays')?.reason ?? null, statusOf('leaves')?.status],
    ['False', null, 'True'],
  );
  await t.stop();
});

test('pods that have finished are expected as well', async () => {
  const done = { ...pod('done'), status: { phase: 'Succeeded' } };
  const t = controllerTest({
    objects: [
      [podDisruptionBudgets, budget({ minAvailable: 1 })],
      [pods, pod('a')],
      [pods, done],
    ],
  });
  await t.start(runDisruption);
  await t.advance(100);
  const { expectedPods, currentHealthy } = t.client.peek(podDisruptionBudgets, 'n', 'b')?.status ?? {};
  assert.deepEqual([expectedPods, currentHealthy], [2, 1]);
  await t.stop();
});

test('a budget reports pods without a controller, and evicted pods that still exist', async () => {
  const at = formatTime(new Date('2026-01-02T02:00:00Z').getTime());
  const earlier = {
    disruptedPods: { a: at },
    currentHealthy: 0,
    desiredHealthy: 0,
    disruptionsAllowed: 0,
    expectedPods: 0,
  };
  const t = controllerTest({
    objects: [
      [podDisruptionBudgets, { ...budget({ maxUnavailable: 1 }), status: earlier }],
      [pods, pod('a', { owner: '' })],
    ],
  });
  await t.start(runDisruption);
  await t.advance(100);
  const events = t.events();
  const selector =
    '&LabelSelector{MatchLabels:map[string]string{app: a,},MatchExpressions:[]LabelSelectorRequirement{},}';
  const unmanaged = `Warning UnmanagedPods Pods selected by this PodDisruptionBudget (selector: ${selector}) were found`;
  assert.ok(
    events.some((event) => event.startsWith(unmanaged)),
    events.join('\n'),
  );
  assert.ok(events.includes("Warning NotDeleted Pod was expected by PDB n/n to be deleted but it wasn't"));
  await t.stop();
});

test('a pod with several budgets gets an event with the reason', async () => {
  const t = controllerTest({
    objects: [
      [podDisruptionBudgets, budget({ minAvailable: 1 })],
      [podDisruptionBudgets, { ...budget({ minAvailable: 1 }), metadata: { name: 'c', namespace: 'n' } }],
    ],
  });
  await t.start(runDisruption);
  t.client.seed(pods, pod('a'));
  await t.advance(100);
  const message = 'Pod "n"/"a" matches multiple PodDisruptionBudgets.  Chose "b" arbitrarily.';
  assert.ok(t.events().includes(`Warning MultiplePodDisruptionBudgets ${message}`), t.events().join('\n'));
  await t.stop();
});
