import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Container, Pod, PodStatus } from '../../../../../agent/base/model/pod.ts';
import type { ProbeResult } from '../../../../../agent/runtime/kuberuntime/probe-results.ts';
import { createProbeManager } from '../../../../../agent/pods/prober/probe-manager.ts';
import { withProbeResults } from '../../../../../agent/runtime/kuberuntime/readiness.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

type Probe = NonNullable<Container['livenessProbe']>;

const exec = (more: Partial<Probe> = {}): Probe => ({ exec: { command: ['check', '$(WHAT)'] }, ...more });

class TimedOut extends Error {}

function setUp(t: TestContext, container: Partial<Container>, podMore: Partial<Pod> = {}) {
  const clock = new FakeClock();
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [{ name: 'main', env: [{ name: 'WHAT', value: 'it' }], ...container }] },
    ...podMore,
  };
  const now = (): string => new Date(clock.now()).toISOString();
  const status: PodStatus = { phase: 'Running', podIP: '10.0.0.1', containerStatuses: [] };
  const run = (id: string): void => {
    status.containerStatuses = [
      {
        name: 'main',
        containerID: `fake://${id}`,
        image: '',
        imageID: '',
        ready: false,
        restartCount: 0,
        started: false,
        state: { running: { startedAt: now() } },
      },
    ];
  };
  run('1');
  const events: string[] = [];
  const commands: string[] = [];
  const changes: [string, string, ProbeResult][] = [];
  const answer: { value: number | Error; output: string; takesMs: number } = { value: 0, output: '', takesMs: 0 };
  const failures: object[] = [];
  const observed: { next?: () => void } = {};
  const results: string[] = [];
  const manager = createProbeManager({
    clock,
    logger: { error: (fields) => void failures.push(fields) },
    observe: ({ result }) => {
      results.push(result);
      observed.next?.();
    },
    random: () => 0,
    status: () => status,
    isTimeout: (error) => error instanceof TimedOut,
    events: {
      event: (_pod, type, reason, message, options) =>
        void events.push(`${type} ${reason} ${message} @${options?.fieldPath ?? ''}`),
    },
    exec: async (_id, command) => {
      commands.push(command.join(' '));
      await clock.sleep(answer.takesMs);
      if (answer.value instanceof Error) throw answer.value;
      return { exitCode: answer.value, output: answer.output };
    },
  });
  manager.onChange(({ kind, containerId, result }) => changes.push([kind, containerId, result]));
  t.after(() => manager.close());
  const previous: { status: PodStatus | undefined } = { status: pod.status };
  /** Computes the status from the results of the probes, as each sync of the pod does. */
  const update = (): { ready: boolean | undefined; started: boolean | undefined } => {
    const next = withProbeResults(pod, status, { probes: manager, previous: previous.status });
    Object.assign(status, next);
    previous.status = next;
    manager.probeSoon(pod.metadata.uid, next);
    const [first] = status.containerStatuses ?? [];
    return { ready: first?.ready, started: first?.started };
  };
  return { clock, pod, status, run, events, commands, changes, answer, manager, update, failures, observed, results };
}

describe('the prober', () => {
  it('leaves a container without probes started and ready while it runs', (t) => {
    const { update, status } = setUp(t, {});
    assert.deepEqual(update(), { ready: true, started: true });
    const [first] = status.containerStatuses ?? [];
    if (first !== undefined) first.state = { terminated: { exitCode: 0 } };
    assert.deepEqual(update(), { ready: false, started: false });
  });

  it('leaves a container with a postStart hook started and ready, because the hook has run before the container is read', (t) => {
    const { update } = setUp(t, { lifecycle: { postStart: { exec: { command: ['true'] } } } });
    assert.deepEqual(update(), { ready: true, started: true });
  });

  it('probes readiness as soon as the container has started, without waiting for a period', async (t) => {
    const { clock, pod, manager, update, commands } = setUp(t, { readinessProbe: exec({ periodSeconds: 60 }) });
    manager.addPod(pod);
    await clock.advance(0);
    assert.deepEqual(update(), { ready: false, started: true });
    await clock.advance(0);
    assert.deepEqual(update(), { ready: true, started: true });
    assert.deepEqual(commands, ['check it']);
  });

  it('records an unknown result when the probe cannot be executed, and continues', async (t) => {
    const { clock, pod, manager, update, events, results } = setUp(t, {
      livenessProbe: { tcpSocket: { port: 70_000, host: '127.0.0.1' }, periodSeconds: 10 },
    });
    update();
    manager.addPod(pod);
    await clock.advance(11_000);
    assert.equal(events.length, 2);
    assert.match(events[0] ?? '', /^Warning Unhealthy Liveness probe errored and resulted in unknown state: /);
    // The metrics count no such probe.
    assert.deepEqual(results, []);
  });

  it('logs an unexpected failure and continues', async (t) => {
    const { clock, pod, manager, update, commands, failures, observed } = setUp(t, {
      livenessProbe: exec({ periodSeconds: 10 }),
    });
    update();
    manager.addPod(pod);
    observed.next = () => {
      delete observed.next;
      throw new Error('boom');
    };
    await clock.advance(11_000);
    assert.deepEqual([failures.length, commands.length], [1, 2]);
  });

  it('waits for the initial delay', async (t) => {
    const { clock, pod, manager, update, commands } = setUp(t, {
      livenessProbe: exec({ initialDelaySeconds: 25, periodSeconds: 10 }),
    });
    update();
    manager.addPod(pod);
    await clock.advance(24_000);
    assert.equal(commands.length, 0);
    await clock.advance(6000);
    assert.equal(commands.length, 1);
  });

  it('applies the failure and success thresholds, and records an event for each failure', async (t) => {
    const { clock, pod, manager, update, answer, events } = setUp(t, {
      readinessProbe: exec({ periodSeconds: 1, failureThreshold: 3, successThreshold: 2 }),
    });
    update();
    manager.addPod(pod);
    await clock.advance(1000);
    assert.equal(update().ready, true);
    answer.value = 1;
    answer.output = 'no\n';
    await clock.advance(2000);
    assert.equal(update().ready, true);
    await clock.advance(1000);
    assert.equal(update().ready, false);
    assert.deepEqual(
      new Set(events),
      new Set(['Warning Unhealthy Readiness probe failed: no\n @spec.containers{main}']),
    );
    assert.equal(events.length, 3);
    answer.value = 0;
    await clock.advance(1000);
    assert.equal(update().ready, false);
    await clock.advance(1000);
    assert.equal(update().ready, true);
  });

  it('does not run liveness and readiness probes before the startup probe has succeeded', async (t) => {
    const { clock, pod, manager, update, answer, changes } = setUp(t, {
      startupProbe: exec({ periodSeconds: 1, failureThreshold: 30 }),
      readinessProbe: exec({ periodSeconds: 1 }),
      livenessProbe: exec({ periodSeconds: 1, failureThreshold: 1 }),
    });
    answer.value = 1;
    update();
    manager.addPod(pod);
    await clock.advance(10_000);
    assert.deepEqual(update(), { ready: false, started: false });
    assert.equal(manager.result('liveness', 'fake://1'), 'success');
    answer.value = 0;
    await clock.advance(1000);
    assert.deepEqual(update(), { ready: false, started: true });
    await clock.advance(1000);
    assert.deepEqual(update(), { ready: true, started: true });
    assert.ok(changes.some(([kind, , result]) => kind === 'startup' && result === 'success'));
  });

  it('stops probing after the liveness probe has failed, until the container is replaced', async (t) => {
    const { clock, pod, manager, update, answer, changes, commands, run } = setUp(t, {
      livenessProbe: exec({ periodSeconds: 1, failureThreshold: 2 }),
    });
    answer.value = 1;
    update();
    manager.addPod(pod);
    await clock.advance(20_000);
    assert.equal(commands.length, 2);
    assert.deepEqual(changes.at(-1), ['liveness', 'fake://1', 'failure']);
    answer.value = 0;
    run('2');
    update();
    await clock.advance(2000);
    assert.equal(manager.result('liveness', 'fake://1'), undefined);
    assert.equal(manager.result('liveness', 'fake://2'), 'success');
    assert.ok(commands.length > 2);
  });

  it('ignores a probe that failed to execute three times, and records an event', async (t) => {
    const { clock, pod, manager, update, answer, events, commands } = setUp(t, {
      livenessProbe: exec({ periodSeconds: 10, failureThreshold: 1 }),
    });
    answer.value = new Error('the runtime is unreachable');
    update();
    manager.addPod(pod);
    await clock.advance(1000);
    assert.equal(commands.length, 3);
    assert.deepEqual(events, [
      'Warning Unhealthy Liveness probe errored and resulted in unknown state: the runtime is unreachable @spec.containers{main}',
    ]);
    assert.equal(manager.result('liveness', 'fake://1'), 'success');
  });

  it('counts a command that exceeds its timeout as a failure', async (t) => {
    const { clock, pod, manager, update, answer, events } = setUp(t, { livenessProbe: exec({ timeoutSeconds: 2 }) });
    answer.value = new TimedOut();
    update();
    manager.addPod(pod);
    await clock.advance(1000);
    assert.deepEqual(events, [
      'Warning Unhealthy Liveness probe failed: command timed out: "check it" timed out after 2s @spec.containers{main}',
    ]);
  });

  it('keeps its period, however long a probe takes', async (t) => {
    const { clock, pod, manager, update, answer, commands } = setUp(t, { livenessProbe: exec({ periodSeconds: 5 }) });
    answer.takesMs = 4000;
    update();
    manager.addPod(pod);
    await clock.advance(21_000);
    assert.equal(commands.length, 5);
  });

  it('records an event for a port name that the container does not define', async (t) => {
    const { clock, pod, manager, update, events } = setUp(t, { livenessProbe: { httpGet: { port: 'web' } } });
    update();
    manager.addPod(pod);
    await clock.advance(0);
    assert.match(events[0] ?? '', /unknown state: strconv\.Atoi: parsing "web": invalid syntax/);
  });

  it('keeps a container ready that was ready before the agent restarted', async (t) => {
    const before = {
      name: 'main',
      containerID: 'fake://1',
      image: '',
      imageID: '',
      ready: true,
      started: true,
      restartCount: 0,
    };
    const { clock, pod, manager, update, run, answer } = setUp(
      t,
      { readinessProbe: exec({ periodSeconds: 1 }), startupProbe: exec() },
      { status: { containerStatuses: [before] } },
    );
    answer.value = 1;
    assert.deepEqual(update(), { ready: true, started: true });
    manager.addPod(pod);
    await clock.advance(1000);
    assert.deepEqual(update(), { ready: true, started: true });
    await clock.advance(1000);
    assert.deepEqual(update(), { ready: false, started: true });
    run('2');
    await clock.advance(1000);
    assert.deepEqual(update(), { ready: false, started: false });
  });

  it('continues only the readiness probes while the pod terminates', async (t) => {
    const { clock, pod, manager, update, commands } = setUp(t, {
      livenessProbe: exec({ periodSeconds: 1 }),
      readinessProbe: { exec: { command: ['ready'] }, periodSeconds: 1 },
    });
    update();
    manager.addPod(pod);
    await clock.advance(1000);
    manager.stopLivenessAndStartup('u');
    commands.length = 0;
    await clock.advance(3000);
    assert.deepEqual([...new Set(commands)], ['ready']);
    manager.cleanup(new Set());
    commands.length = 0;
    await clock.advance(3000);
    assert.deepEqual(commands, []);
    assert.equal(clock.pendingTimers, 0);
  });
});
