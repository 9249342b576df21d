/** Tests which pods of a daemon set are created and deleted when pods fail, nodes change and updates surge. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatTime } from '../../../../../api/machinery/clock.ts';
import type { DaemonSet, Node, Pod } from '../../../../../api/kinds/kinds.ts';
import { daemonSets, nodes, pods } from '../../../../../api/client/resources.ts';
import {
  boundToNode,
  computeDaemonStatus,
  type DaemonInput,
  planDaemons,
  shouldRun,
} from '../../../../../controlplane/controllers/daemon-set/daemon-set-core.ts';
import { runDaemonSets } from '../../../../../controlplane/controllers/daemon-set/daemon-set.ts';
import { planUpdate } from '../../../../../controlplane/controllers/daemon-set/rolling-update.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const NOW = Date.parse('2026-01-02T03:04:05Z');

const setWith = (rollingUpdate: object, affinity?: object): DaemonSet =>
  ({
    metadata: { name: 'log', namespace: 'shop', uid: 'set-uid' },
    spec: {
      selector: { matchLabels: { app: 'log' } },
      template: {
        metadata: { labels: { app: 'log' } },
        spec: { containers: [{ name: 'c', image: 'i' }], ...(affinity === undefined ? {} : { affinity }) },
      },
      updateStrategy: { type: 'RollingUpdate', rollingUpdate },
    },
  }) as unknown as DaemonSet;

const node = (name: string, spec: object = {}): Node => ({ metadata: { name }, spec }) as Node;

interface PodForm {
  readonly node: string;
  readonly revision?: string;
  readonly ready?: boolean;
  readonly ageSeconds?: number;
  readonly unbound?: boolean;
  readonly phase?: string;
}

function pod(name: string, { node, revision = 'new', ready = true, ageSeconds = 100, unbound, phase }: PodForm): Pod {
  const created = boundToNode(setWith({}), { metadata: { name }, spec: { containers: [] } } as unknown as Pod, node);
  const at = formatTime(NOW - ageSeconds * 1000);
  return {
    ...created,
    metadata: { name, namespace: 'shop', creationTimestamp: at, labels: { 'controller-revision-hash': revision } },
    spec: { ...created.spec, ...(unbound === true ? {} : { nodeName: node }) },
    status: {
      phase: phase ?? 'Running',
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False', lastTransitionTime: at }],
    },
  } as unknown as Pod;
}

function inputOf(set: DaemonSet, names: readonly Node[], all: readonly (readonly [string, PodForm])[]): DaemonInput {
  const byNode = new Map<string, Pod[]>();
  for (const [name, form] of all) byNode.set(form.node, [...(byNode.get(form.node) ?? []), pod(name, form)]);
  return { set, nodes: names, byNode, hash: 'new', nowMs: NOW };
}

const namesOf = (list: readonly Pod[]): (string | undefined)[] => list.map(({ metadata }) => metadata.name);

async function finishAll(t: ControllerTest, phase: string): Promise<void> {
  for (const each of t.client.peekAll(pods)) {
    if (each.status?.phase !== undefined) continue;
    const bound = await t.client.update(pods, { ...each, spec: { ...each.spec, nodeName: 'a' } } as unknown as Pod);
    await t.client.update(pods, { ...bound, status: { phase } } as unknown as Pod, { subresource: 'status' });
  }
}

it('a node that rejects each pod gets the next one after a back-off that doubles', async () => {
  const t = controllerTest({
    objects: [
      [nodes, node('a')],
      [daemonSets, setWith({ maxUnavailable: 1 })],
    ],
  });
  await t.start(runDaemonSets);
  for (let second = 0; second < 120; second++) {
    await finishAll(t, 'Failed');
    for (const each of t.client.peekAll(pods))
      if (each.metadata.deletionTimestamp !== undefined)
        await t.client.delete(pods, 'shop', each.metadata.name ?? '', { gracePeriodSeconds: 0 });
    await t.advance(500);
  }
  const created = t.events().filter((event) => event.includes('SuccessfulCreate'));
  const count = created.map((event) => Number(/ x([0-9]+)$/.exec(event)?.[1] ?? 1)).reduce((a, b) => a + b, 0);
  // At 0, 0, 1, 3, 7, 15 and 31 s.
  assert.ok(count >= 5 && count <= 8, `${count} pods`);
  await t.stop();
});

it('a daemon that succeeded is reported as such and recreated', async () => {
  const t = controllerTest({
    objects: [
      [nodes, node('a')],
      [daemonSets, setWith({ maxUnavailable: 1 })],
    ],
  });
  await t.start(runDaemonSets);
  const name = t.client.peekAll(pods)[0]?.metadata.name;
  await finishAll(t, 'Succeeded');
  await t.advance(100);
  const message = `Found succeeded daemon pod shop/${name} on node a, will try to delete it`;
  assert.ok(t.events().includes(`Normal SucceededDaemonPod ${message}`));
  await t.stop();
});

it('a pod gets the affinity to its node in place of the terms of the template', () => {
  const matchExpressions = [{ key: 'disk', operator: 'Exists' }];
  const required = { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions }] } };
  const set = setWith({}, { nodeAffinity: required });
  const template = { metadata: {}, spec: set.spec?.template.spec } as unknown as Pod;
  const { affinity } = boundToNode(set, template, 'a').spec ?? {};
  assert.deepEqual(affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms, [
    { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['a'] }] },
  ]);
});

it('the controller deletes only those pods of deleted nodes that were never bound', () => {
  const input = inputOf(
    setWith({}),
    [],
    [
      ['bound', { node: 'gone' }],
      ['unbound', { node: 'gone', unbound: true }],
    ],
  );
  assert.deepEqual(namesOf(planDaemons(input, () => false).remove), ['unbound']);
});

it('the oldest bound pod of a node stays, and further ones are deleted', () => {
  const input = inputOf(
    setWith({}),
    [node('a')],
    [
      ['young', { node: 'a', ageSeconds: 1 }],
      ['unbound', { node: 'a', unbound: true }],
      ['old', { node: 'a', ageSeconds: 50 }],
    ],
  );
  assert.deepEqual(namesOf(planDaemons(input, () => false).remove), ['young', 'unbound']);
});

const SURGE = { maxSurge: 1, maxUnavailable: 0 };

it('during a surge, an old pod that is not ready is deleted for the new one, also before the new one is available', () => {
  const both = (ready: boolean, newReady: boolean): DaemonInput =>
    inputOf(
      setWith(SURGE),
      [node('a')],
      [
        ['old', { node: 'a', revision: 'before', ready }],
        ['new', { node: 'a', ready: newReady, ageSeconds: 5 }],
      ],
    );
  const removed = (input: DaemonInput): (string | undefined)[] => namesOf(planDaemons(input, () => false).remove);
  assert.deepEqual(removed(both(false, false)), ['old']);
  assert.deepEqual(removed(both(true, false)), []);
  assert.deepEqual(removed(both(true, true)), ['old']);
});

it('during a surge, a node whose pods are all terminating gets its next pod at once', () => {
  const input = inputOf(setWith(SURGE), [node('a')], [['old', { node: 'a' }]]);
  const leaving = input.byNode.get('a')?.map((each) => ({
    ...each,
    metadata: { ...each.metadata, deletionTimestamp: formatTime(NOW) },
  })) as unknown as Pod[];
  const byNode = new Map([['a', leaving]]);
  assert.deepEqual(planDaemons({ ...input, byNode }, () => false).create, ['a']);
  const plain = { ...input, set: setWith({ maxUnavailable: 1 }), byNode };
  assert.deepEqual(planDaemons(plain, () => false).create, []);
});

it('a surge replaces old pods that are not available at once, beside those that it may add', () => {
  const input = inputOf(
    setWith(SURGE),
    ['a', 'b', 'c', 'd'].map((name) => node(name)),
    [
      ['a', { node: 'a', revision: 'before' }],
      ['b', { node: 'b', revision: 'before' }],
      ['c', { node: 'c', revision: 'before', ready: false }],
      ['d', { node: 'd', revision: 'before', ready: false }],
    ],
  );
  assert.deepEqual(planUpdate(input).surge, ['c', 'd', 'a']);
});

it('a surge gives no new pod to a node that should not run the daemon, whose old pod leaves when enough are available', () => {
  const cordoned = node('b', { taints: [{ key: 'own', effect: 'NoSchedule' }] });
  const one = inputOf(
    setWith(SURGE),
    [node('a'), cordoned],
    [
      ['a', { node: 'a', ready: false }],
      ['b', { node: 'b', revision: 'before' }],
    ],
  );
  assert.deepEqual(planUpdate(one), { remove: [], surge: [] });
  const both = inputOf(
    setWith(SURGE),
    [node('a'), cordoned],
    [
      ['a', { node: 'a' }],
      ['b', { node: 'b', revision: 'before' }],
    ],
  );
  assert.deepEqual(namesOf(planUpdate(both).remove), ['b']);
});

it('an update replaces unavailable old pods, and counts nodes without a pod as unavailable', () => {
  const input = inputOf(
    setWith({ maxUnavailable: 2 }),
    ['a', 'b', 'c', 'd'].map((name) => node(name)),
    [
      ['a', { node: 'a', revision: 'before', ready: false }],
      ['b', { node: 'b', revision: 'before' }],
      ['c', { node: 'c', revision: 'before' }],
    ],
  );
  assert.deepEqual(namesOf(planUpdate(input).remove), ['a']);
});

it('the status counts the first pod of a node', () => {
  const input = inputOf(
    setWith(SURGE),
    [node('a')],
    [
      ['new', { node: 'a', ageSeconds: 5 }],
      ['old', { node: 'a', revision: 'before', ready: false }],
    ],
  );
  const { numberReady, updatedNumberScheduled } = computeDaemonStatus(input);
  assert.deepEqual([numberReady, updatedNumberScheduled], [0, undefined]);
});

describe('a node gets a daemon', () => {
  const labels = { zone: 'a', cores: '8', version: '1.5', empty: '' };
  const labeled = { metadata: { name: 'n', labels } } as unknown as Node;
  const selecting = (spec: object): DaemonSet =>
    ({ spec: { template: { spec: { containers: [], ...spec } } } }) as unknown as DaemonSet;
  const requiring = (term: object): DaemonSet =>
    selecting({
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [term] } } },
    });
  const label = (key: string, operator: string, ...values: string[]): DaemonSet =>
    requiring({ matchExpressions: [{ key, operator, values }] });
  const field = (operator: string, ...values: string[]): DaemonSet =>
    requiring({ matchFields: [{ key: 'metadata.name', operator, values }] });

  for (const [why, set, run] of [
    ['if nothing is required of it', selecting({}), true],
    ['if the template names it', selecting({ nodeName: 'n' }), true],
    ['unless the template names another one', selecting({ nodeName: 'm' }), false],
    ['if it has the labels of the node selector', selecting({ nodeSelector: { zone: 'a' } }), true],
    ['unless it has another value', selecting({ nodeSelector: { zone: 'b' } }), false],
    ['unless the label is a member that every object inherits', selecting({ nodeSelector: { toString: '' } }), false],
    ['if its label is In the values', label('zone', 'In', 'a', 'b'), true],
    ['unless its label is NotIn the values', label('zone', 'NotIn', 'a'), false],
    ['if it lacks a label that is NotIn the values', label('rack', 'NotIn', 'a'), true],
    ['if a label Exists', label('zone', 'Exists'), true],
    ['unless a label that must not exist does', label('zone', 'DoesNotExist'), false],
    ['if its label is greater', label('cores', 'Gt', '4'), true],
    ['unless its label is not less', label('cores', 'Lt', '8'), false],
    ['unless the label to compare is no integer', label('version', 'Gt', '1'), false],
    ['unless the label to compare is empty', label('empty', 'Gt', '-1'), false],
    ['unless the operator is unknown', label('zone', 'Like', 'b'), false],
    ['if its name is In the values', field('In', 'n'), true],
    ['unless its name is NotIn the values', field('NotIn', 'n'), false],
    ['unless the term is empty', requiring({}), false],
  ] as const)
    it(why, () => assert.deepEqual(shouldRun(set, labeled), { run, stay: run }));

  it('only if the daemon tolerates its taints, except those of its pressure and readiness', () => {
    const tainted = (key: string, effect: string): Node =>
      ({ metadata: { name: 'n' }, spec: { taints: [{ key, effect }] } }) as unknown as Node;
    const set = selecting({ tolerations: [{ key: 'own', operator: 'Exists' }] });
    assert.deepEqual(shouldRun(set, tainted('other', 'NoSchedule')), { run: false, stay: true });
    assert.deepEqual(shouldRun(set, tainted('other', 'NoExecute')), { run: false, stay: false });
    assert.deepEqual(shouldRun(set, tainted('other', 'PreferNoSchedule')), { run: true, stay: true });
    assert.deepEqual(shouldRun(set, tainted('own', 'NoExecute')), { run: true, stay: true });
    for (const [key, effect] of [
      ['not-ready', 'NoExecute'],
      ['disk-pressure', 'NoSchedule'],
      ['unschedulable', 'NoSchedule'],
    ] as const)
      assert.deepEqual(shouldRun(set, tainted(`node.kubernetes.io/${key}`, effect)), { run: true, stay: true });
    const withoutNetwork = tainted('node.kubernetes.io/network-unavailable', 'NoSchedule');
    assert.equal(shouldRun(set, withoutNetwork).run, false);
    assert.equal(shouldRun(selecting({ hostNetwork: true }), withoutNetwork).run, true);
  });
});
