import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { ContainerStatusJson, Pod, PodCondition, PodStatus } from '../../../../../agent/base/model/pod.ts';
import { mergeStatus, statusPatch } from '../../../../../agent/pods/status/pod-status.ts';
import { createStatusManager } from '../../../../../agent/pods/status/status-manager.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { pods } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { newForbidden } from '../../../../../api/meta/status-error.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const condition = (type: string, status: string, more: Partial<PodCondition> = {}): PodCondition => ({
  type,
  status,
  ...more,
});
const podOf = (uid: string, more: Partial<Pod> = {}): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'p', namespace: 'ns', uid },
  spec: { nodeName: 'n', containers: [{ name: 'main' }] },
  ...more,
});

function setUp(t: TestContext, pod = podOf('u'), logger: Logger = silentLogger) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  client.seed(pods, structuredClone(pod) as unknown as KubeObject);
  const safety = { mayRun: false, finished: false };
  const mirrors: { current: Pod | undefined } = { current: undefined };
  const manager = createStatusManager({
    client,
    clock,
    logger,
    mirrorOf: () => mirrors.current,
    safety: {
      podCouldHaveRunningContainers: () => safety.mayRun,
      podIsFinished: () => safety.finished,
    },
  });
  const stop = new AbortController();
  const running = manager.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
  });
  const stored = (name = 'p'): Pod | undefined => client.peek(pods, 'ns', name) as unknown as Pod | undefined;
  return { clock, client, manager, safety, mirrors, stored, pod };
}

describe('the status manager', () => {
  it('keeps the times that the mirror pod of a static pod shows, after a restart of the agent', (t) => {
    const annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' };
    const pod = podOf('u', { metadata: { name: 'p', namespace: 'ns', uid: 'u', annotations } });
    const { manager, mirrors } = setUp(t, pod);
    const ready = (lastTransitionTime: string): PodCondition => condition('Ready', 'True', { lastTransitionTime });
    mirrors.current = podOf('m', {
      metadata: {
        name: 'p',
        namespace: 'ns',
        uid: 'm',
        annotations: { ...annotations, 'kubernetes.io/config.mirror': 'h' },
      },
      status: {
        phase: 'Running',
        startTime: '2026-01-02T03:00:00Z',
        conditions: [ready('2026-01-02T03:00:05Z')],
      } as PodStatus,
    });
    manager.set(pod, {
      phase: 'Running',
      startTime: '2026-02-02T03:00:00Z',
      conditions: [ready('2026-02-02T03:00:00Z')],
    } as PodStatus);
    const kept = manager.get('u');
    assert.deepEqual(
      [kept?.startTime, kept?.conditions?.[0]?.lastTransitionTime],
      ['2026-01-02T03:00:00Z', '2026-01-02T03:00:05Z'],
    );
  });

  for (const [name, errors, warnings] of [
    ['warns once about a status that cannot be sent', [new Error('connection refused')], [1, 1, 1]],
    [
      'does not warn at once when the node may not read the pod, which is usually deleted',
      [newForbidden({ group: '', resource: 'pods' }, 'p', 'no relationship found')],
      [0, 1, 1],
    ],
    [
      'warns about the first failure after the node might not read the pod',
      [newForbidden({ group: '', resource: 'pods' }, 'p', 'no relationship found'), new Error('connection refused')],
      [0, 1, 1],
    ],
    [
      'does not warn again when the node may not read the pod after another failure',
      [new Error('connection refused'), newForbidden({ group: '', resource: 'pods' }, 'p', 'no relationship found')],
      [1, 1, 1],
    ],
  ] as const)
    it(name, async (t) => {
      const left = [...errors];
      const seen: string[] = [];
      const logger = { ...silentLogger, warn: (_fields: object, message: string) => void seen.push(message) };
      const { clock, client, manager, pod } = setUp(t, podOf('u'), logger);
      client.intercept(() => Promise.reject(left.length > 1 ? left.shift() : left[0]));
      manager.set(pod, { phase: 'Running' });
      const counts: number[] = [];
      for (const ms of [0, 10_000, 10_000]) {
        await clock.advance(ms);
        await clock.settle();
        counts.push(seen.length);
      }
      assert.deepEqual(counts, warnings);
    });

  it('does not warn of a deleted pod whose containers change several times before the deletion is seen', async (t) => {
    const seen: string[] = [];
    const logger = { ...silentLogger, warn: (_fields: object, message: string) => void seen.push(message) };
    const { clock, client, manager, pod } = setUp(t, podOf('u'), logger);
    client.intercept(() => Promise.reject(newForbidden({ group: '', resource: 'pods' }, 'p', 'no relationship found')));
    for (const phase of ['Pending', 'Running', 'Succeeded'] as const) {
      manager.set(pod, { phase });
      await clock.advance(1000);
      await clock.settle();
    }
    assert.deepEqual(seen, []);
  });

  it('sends the newest of several statuses once', async (t) => {
    const { clock, client, manager, stored, pod } = setUp(t);
    for (const phase of ['Pending', 'Running'] as const) manager.set(pod, { phase });
    manager.set(pod, { phase: 'Running' });
    await clock.settle();
    assert.equal(stored()?.status?.phase, 'Running');
    assert.equal(client.writes('patch').length, 1);
    manager.set(pod, { phase: 'Running' });
    await clock.advance(60_000);
    assert.equal(client.writes('patch').length, 1);
  });

  it('sends the status again after a change of others, and sends nothing if nothing differs', async (t) => {
    const { clock, client, manager, stored, pod } = setUp(t);
    const conditions = [condition('ContainersReady', 'True'), condition('Ready', 'True')];
    const containerStatuses = [{ name: 'main', ready: true, image: '', imageID: '', restartCount: 0 }];
    manager.set(pod, { phase: 'Running', conditions, containerStatuses });
    await clock.settle();
    const storedPod = stored();
    assert.ok(storedPod);
    manager.reconcile(storedPod);
    await clock.settle();
    assert.equal(client.writes('patch').length, 1);
    // The node controller writes this when a node stops reporting.
    await client.patch(pods, 'ns', 'p', {
      type: 'strategic',
      body: { status: { conditions: [condition('Ready', 'False')] } },
    });
    const changed = stored();
    assert.ok(changed);
    manager.reconcile(changed);
    await clock.settle();
    const ready = stored()?.status?.conditions?.find(({ type }) => type === 'Ready');
    assert.equal(ready?.status, 'True');
  });

  it('does not repeat fields that an older API server drops', async (t) => {
    const { clock, client, manager, stored, pod } = setUp(t);
    client.intercept(({ verb, patch }) => {
      if (verb === 'patch') delete (patch as { status: PodStatus }).status.hostIPs;
      return undefined;
    });
    manager.set(pod, { phase: 'Running', hostIP: '192.0.2.1', hostIPs: [{ ip: '192.0.2.1' }] });
    await clock.settle();
    const storedPod = stored();
    assert.ok(storedPod);
    assert.equal(storedPod.status?.hostIPs, undefined);
    manager.reconcile(storedPod);
    await clock.advance(60_000);
    assert.equal(client.writes('patch').length, 1);
    manager.set(
      { ...storedPod, metadata: { ...storedPod.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } },
      storedPod.status ?? {},
    );
    await clock.advance(60_000);
    const foreign = { status: { hostIP: '192.0.2.2' } };
    await client.patch(pods, 'ns', 'p', { type: 'strategic', body: foreign, subresource: 'status' });
    assert.equal(stored()?.status?.hostIP, '192.0.2.2');
    const changed = stored();
    assert.ok(changed);
    manager.reconcile(changed);
    await clock.settle();
    assert.equal(stored()?.status?.hostIP, '192.0.2.1');
    assert.equal(client.writes('patch').length, 3);
  });

  it('never has two writes of one pod under way, and ends with the newest', async (t) => {
    const { clock, client, manager, stored, pod } = setUp(t);
    const gate = Promise.withResolvers<void>();
    let open = 0;
    let most = 0;
    client.intercept(async (call) => {
      if (call.verb !== 'patch') return undefined;
      most = Math.max(most, ++open);
      await gate.promise;
      open -= 1;
      return undefined;
    });
    manager.set(pod, { phase: 'Pending' });
    await clock.settle();
    manager.set(pod, { phase: 'Running', message: 'a' });
    manager.set(pod, { phase: 'Running', message: 'b' });
    await clock.settle();
    gate.resolve();
    await clock.settle();
    assert.deepEqual([most, stored()?.status?.message], [1, 'b']);
    assert.equal(client.writes('patch').length, 2);
  });

  it('tries again after a failure', async (t) => {
    const { clock, client, manager, stored, pod } = setUp(t);
    let away = true;
    client.intercept(() => {
      if (away) throw new Error('away');
      return undefined;
    });
    manager.set(pod, { phase: 'Running' });
    await clock.settle();
    assert.equal(stored()?.status, undefined);
    away = false;
    await clock.advance(10_000);
    assert.equal(stored()?.status?.phase, 'Running');
  });

  it('writes nothing to another pod of the same name', async (t) => {
    const { clock, client, manager } = setUp(t);
    manager.set(podOf('older'), { phase: 'Failed' });
    await clock.advance(60_000);
    assert.deepEqual(client.writes(), []);
  });

  it('keeps conditions of others, and the time of its own that did not change', async (t) => {
    const gate = condition('example.org/gate', 'True', { lastTransitionTime: '2025-01-01T00:00:00Z' });
    const before = condition('Ready', 'False', { lastTransitionTime: '2025-01-01T00:00:00Z' });
    const { clock, manager, stored, pod } = setUp(t, podOf('u', { status: { conditions: [gate, before] } }));
    manager.set(pod, { phase: 'Pending', conditions: [condition('Ready', 'False', { reason: 'X' })] });
    await clock.settle();
    const conditions = stored()?.status?.conditions ?? [];
    assert.deepEqual(
      conditions.find(({ type }) => type === gate.type),
      gate,
    );
    assert.equal(conditions.find(({ type }) => type === 'Ready')?.lastTransitionTime, '2025-01-01T00:00:00Z');
  });

  it('does not report a pod as terminated while a container may run', async (t) => {
    const { clock, manager, safety, stored, pod } = setUp(t, podOf('u', { status: { phase: 'Running' } }));
    safety.mayRun = true;
    manager.set(pod, { phase: 'Failed', reason: 'Evicted', message: 'why' });
    await clock.settle();
    assert.deepEqual([stored()?.status?.phase, stored()?.status?.reason], ['Running', undefined]);
    safety.mayRun = false;
    manager.set(pod, { phase: 'Failed', reason: 'Evicted', message: 'why!' });
    await clock.settle();
    assert.deepEqual([stored()?.status?.phase, stored()?.status?.reason], ['Failed', 'Evicted']);
  });

  it('does not run a terminated pod again', async (t) => {
    const { clock, manager, stored, pod } = setUp(t);
    manager.set(pod, { phase: 'Succeeded' });
    manager.set(pod, { phase: 'Running' });
    await clock.settle();
    assert.equal(stored()?.status?.phase, 'Succeeded');
    assert.equal(manager.get('u')?.phase, 'Succeeded');
  });

  it('deletes a pod that is marked for it once nothing of it is left, and that very pod only', async (t) => {
    const marked = podOf('u');
    marked.metadata.deletionTimestamp = '2026-01-02T03:04:05Z';
    const { clock, client, manager, safety, stored } = setUp(t, marked);
    manager.set(marked, { phase: 'Running' });
    await clock.settle();
    assert.notEqual(stored(), undefined);
    safety.finished = true;
    manager.set(marked, { phase: 'Succeeded' });
    await clock.advance(10_000);
    assert.equal(stored(), undefined);
    assert.deepEqual(
      client.writes('delete').map((call) => [call.options?.gracePeriodSeconds, call.options?.preconditions]),
      [[0, { uid: 'u' }]],
    );
  });

  it('sends the final phase of a deleted pod before it deletes it, whenever the cleanup is done', async (t) => {
    const marked = podOf('u');
    marked.metadata.deletionTimestamp = '2026-01-02T03:04:05Z';
    const { clock, client, manager, safety, stored } = setUp(t, marked);
    manager.set(marked, { phase: 'Running' });
    await clock.settle();
    const phases: unknown[] = [];
    client.intercept(({ verb }) => {
      // The cleanup is done while the patch is under way.
      if (verb === 'patch') safety.finished = true;
      if (verb === 'delete') phases.push(stored()?.status?.phase);
      return undefined;
    });
    manager.set(marked, { phase: 'Succeeded', message: 'patched while it is cleaned up' });
    await clock.settle();
    manager.terminate(marked);
    await clock.advance(10_000);
    assert.deepEqual(phases, ['Succeeded']);
    assert.equal(stored(), undefined);
  });

  it('carries the status of a static pod to its mirror, and does not delete that', async (t) => {
    const mirror = podOf('mirror');
    mirror.metadata.annotations = { 'kubernetes.io/config.mirror': 'h' };
    const { clock, client, manager, mirrors, safety, stored } = setUp(t, mirror);
    const own = podOf('static');
    own.metadata.annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' };
    own.metadata.deletionTimestamp = '2026-01-02T03:04:05Z';
    safety.finished = true;
    manager.set(own, { phase: 'Running' });
    await clock.settle();
    assert.equal(stored()?.status, undefined);
    mirrors.current = mirror;
    await clock.advance(10_000);
    assert.equal(stored()?.status?.phase, 'Running');
    assert.deepEqual(client.writes('delete'), []);
  });

  it('leaves the phase of a static pod that was removed while its containers ran', (t) => {
    const { manager } = setUp(t);
    const own = podOf('static');
    own.metadata.annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' };
    manager.set(own, { phase: 'Running' });
    manager.terminate(own);
    assert.equal(manager.get('static')?.phase, 'Running');
  });

  it('sends the phase of a pod that ends while its status is on its way', async (t) => {
    const { clock, client, manager, safety, stored, pod } = setUp(t);
    safety.mayRun = true;
    client.intercept(({ verb }) => {
      if (verb === 'patch') safety.mayRun = false;
      return undefined;
    });
    const terminated = { exitCode: 0, reason: 'Completed' };
    const main = { name: 'main', image: '', imageID: '', ready: false, restartCount: 0, state: { terminated } };
    manager.set(pod, { phase: 'Succeeded', containerStatuses: [main] });
    await clock.settle();
    manager.terminate(pod);
    await clock.advance(10_000);
    assert.equal(stored()?.status?.phase, 'Succeeded');
  });

  it('keeps the status of a static pod from the mirror of an earlier manifest', async (t) => {
    const mirror = podOf('mirror');
    mirror.metadata.annotations = { 'kubernetes.io/config.mirror': 'old' };
    mirror.status = { phase: 'Running' };
    const { clock, client, manager, mirrors, stored } = setUp(t, mirror);
    mirrors.current = mirror;
    const own = podOf('static');
    own.metadata.annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'new' };
    manager.set(own, { phase: 'Pending' });
    await clock.settle();
    assert.equal(stored()?.status?.phase, 'Running');
    const successor = { ...mirror, status: undefined, metadata: { ...mirror.metadata, uid: 'successor' } };
    successor.metadata.annotations = { 'kubernetes.io/config.mirror': 'new' };
    await client.delete(pods, 'ns', 'p');
    client.seed(pods, successor as unknown as KubeObject);
    mirrors.current = successor as unknown as Pod;
    await clock.advance(10_000);
    assert.equal(stored()?.status?.phase, 'Pending');
  });

  it('reports containers whose exit was not observed as failed', (t) => {
    const { manager, pod } = setUp(t);
    const container = { name: 'main', image: '', imageID: '', ready: true, restartCount: 0, state: { running: {} } };
    manager.set(pod, { phase: 'Running', containerStatuses: [container] });
    manager.terminate(pod);
    const status = manager.get('u');
    assert.equal(status?.phase, 'Failed');
    assert.deepEqual(status?.containerStatuses?.[0]?.state?.terminated, {
      reason: 'ContainerStatusUnknown',
      message: 'The container could not be located when the pod was terminated',
      exitCode: 137,
    });
  });

  it('reports the init containers up to the last that has begun as failed, and the first one in any case', (t) => {
    const waits = { waiting: { reason: 'ErrImageNeverPull' } };
    const failed = { terminated: { exitCode: 1, reason: 'Error' } };
    const status = (name: string, lastState: object = {}): ContainerStatusJson =>
      ({ name, image: '', imageID: '', ready: false, restartCount: 0, state: waits, lastState }) as ContainerStatusJson;
    const reasons = (uid: string, statuses: ContainerStatusJson[]): (string | undefined)[] => {
      const spec = { containers: [{ name: 'main' }], initContainers: statuses.map(({ name }) => ({ name })) };
      const { manager } = setUp(t, podOf(uid, { spec }));
      const main = status('main');
      manager.set(podOf(uid, { spec }), {
        phase: 'Pending',
        initContainerStatuses: statuses,
        containerStatuses: [main],
      });
      manager.terminate(podOf(uid, { spec }));
      const { initContainerStatuses = [], containerStatuses = [] } = manager.get(uid) ?? {};
      return [...initContainerStatuses, ...containerStatuses].map(({ state }) => state?.terminated?.reason);
    };
    const unknown = 'ContainerStatusUnknown';
    assert.deepEqual(reasons('u', [status('a'), status('b')]), [unknown, undefined, undefined]);
    assert.deepEqual(reasons('u', [status('a'), status('b', failed)]), [unknown, unknown, undefined]);
  });

  it('leaves conditions of others as they are, also without the time of their transition', async (t) => {
    const foreign = condition('example.com/gate', 'True');
    const { manager, clock, stored, pod } = setUp(t, podOf('u', { status: { conditions: [foreign] } }));
    manager.set(pod, { phase: 'Running', conditions: [condition('Ready', 'True')] });
    await clock.settle();
    const kept = stored()?.status?.conditions?.find(({ type }) => type === foreign.type);
    assert.deepEqual(kept, foreign);
  });

  it('reports a pod as ready once its readiness gate is true at the API server, whatever the last status shows', async (t) => {
    const gate = (status: string): PodCondition => condition('example.com/gate', status);
    const spec = { containers: [{ name: 'main' }], readinessGates: [{ conditionType: 'example.com/gate' }] };
    const { manager, clock, stored } = setUp(t, podOf('u', { spec, status: { conditions: [gate('True')] } }));
    const pod = podOf('u', { spec, status: { conditions: [gate('True')] } });
    const container = { name: 'main', image: '', imageID: '', ready: true, restartCount: 0, state: { running: {} } };
    const conditions = [condition('Ready', 'True'), condition('ContainersReady', 'True'), gate('False')];
    manager.set(pod, { phase: 'Running', containerStatuses: [container], conditions });
    await clock.settle();
    assert.equal(stored()?.status?.conditions?.find(({ type }) => type === 'Ready')?.status, 'True');
  });

  it('recomputes the readiness of a pod when a readiness probe has a new result', (t) => {
    const { manager } = setUp(t);
    const pod = podOf('u', { spec: { containers: [{ name: 'main', readinessProbe: {} }] } });
    const state = { running: {} };
    const container = {
      name: 'main',
      containerID: 'x://1',
      image: '',
      imageID: '',
      ready: false,
      restartCount: 0,
      state,
    };
    const conditions = [condition('Ready', 'False'), condition('ContainersReady', 'False')];
    manager.set(pod, { phase: 'Running', containerStatuses: [container], conditions });
    manager.applyProbeResults('u', { result: () => 'success' });
    const states = (): (string | undefined)[] =>
      (manager.get('u')?.conditions ?? []).map(({ status, message }) => `${status} ${message ?? ''}`);
    assert.deepEqual(states(), ['True ', 'True ']);
    manager.applyProbeResults('u', { result: () => 'failure' });
    const message = 'False containers with unready status: [main]';
    assert.deepEqual(states(), [message, message]);
  });
});

describe('the patch of a status', () => {
  const remote: PodStatus = {
    phase: 'Pending',
    podIPs: [{ ip: '10.0.0.1' }],
    conditions: [
      condition('PodScheduled', 'True'),
      condition('foreign', 'True'),
      condition('PodResizePending', 'True'),
    ],
  };
  const ours: PodStatus = {
    phase: 'Running',
    podIPs: [{ ip: '10.0.0.2' }],
    conditions: [condition('Ready', 'True'), condition('PodScheduled', 'True')],
  };
  const pod = podOf('u', { status: remote });

  it('has the uid of the pod, the changed conditions, their order and the deletions', () => {
    assert.deepEqual(statusPatch(pod, mergeStatus(remote, ours, false)), {
      metadata: { uid: 'u' },
      status: {
        phase: 'Running',
        '$setElementOrder/podIPs': [{ ip: '10.0.0.2' }],
        podIPs: [{ ip: '10.0.0.2' }, { ip: '10.0.0.1', $patch: 'delete' }],
        '$setElementOrder/conditions': [{ type: 'foreign' }, { type: 'Ready' }, { type: 'PodScheduled' }],
        conditions: [condition('Ready', 'True'), { type: 'PodResizePending', $patch: 'delete' }],
      },
    });
  });

  it('has no directives in new lists, because older API servers would store them', () => {
    const { podIPs = [], conditions = [] } = ours;
    assert.deepEqual(statusPatch(podOf('u', { status: {} }), { podIPs, conditions }), {
      metadata: { uid: 'u' },
      status: { podIPs, conditions },
    });
  });

  it('has only the order if addresses changed places', () => {
    const [first, second] = [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }];
    assert.deepEqual(statusPatch(podOf('u', { status: { podIPs: [first, second] } }), { podIPs: [second, first] }), {
      metadata: { uid: 'u' },
      status: { '$setElementOrder/podIPs': [second, first] },
    });
  });

  it('is empty if nothing changed', () => {
    assert.equal(statusPatch(pod, mergeStatus(remote, remote, false)), undefined);
  });

  it('removes what the resources of the pod no longer have, which a patch of an object keeps otherwise', () => {
    const resources = { limits: { cpu: '1', 'example.com/foo': '1' }, requests: { cpu: '1' } };
    const pod = podOf('u', { status: { resources, allocatedResources: { cpu: '1', 'example.com/foo': '1' } } });
    const changed = { resources: { limits: { cpu: '2' } }, allocatedResources: { cpu: '1', memory: '1Gi' } };
    assert.deepEqual(statusPatch(pod, changed as never)?.['status'], {
      resources: { limits: { cpu: '2', 'example.com/foo': null }, requests: null },
      allocatedResources: { memory: '1Gi', 'example.com/foo': null },
    });
  });

  it('shows why the agent ends a pod together with its final phase, and not before', () => {
    const disrupted = { ...ours, phase: 'Failed', conditions: [condition('DisruptionTarget', 'True')] };
    const shown = (mayStillRun: boolean): readonly string[] =>
      (mergeStatus(remote, disrupted, mayStillRun).conditions ?? []).map(({ type }) => type);
    assert.equal(shown(true).includes('DisruptionTarget'), false);
    assert.equal(shown(false).includes('DisruptionTarget'), true);
  });

  it('never reports a terminated pod as ready', () => {
    const merged = mergeStatus(remote, { ...ours, phase: 'Succeeded' }, false);
    const ready = merged.conditions?.find(({ type }) => type === 'Ready');
    assert.deepEqual([ready?.status, ready?.reason], ['False', 'PodCompleted']);
  });
});
