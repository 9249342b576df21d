import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import type { Logind } from '../../../../../agent/node/shutdown/logind.ts';
import { NodeShutdown, type NodeShutdownOptions } from '../../../../../agent/node/shutdown/node-shutdown.ts';
import { graceSeconds, groupByPriority, shutdownPeriods } from '../../../../../agent/node/shutdown/shutdown-order.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const podOf = (name: string, priority?: number, grace?: number): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'ns', uid: name },
  spec: {
    containers: [{ name: 'main' }],
    ...(priority === undefined ? {} : { priority }),
    ...(grace === undefined ? {} : { terminationGracePeriodSeconds: grace }),
  },
});

const CRITICAL = 2_000_000_000;
const flags = (all: number, critical: number, byPriority: Record<string, string> = {}) => ({
  shutdownGracePeriod: all,
  shutdownGracePeriodCriticalPods: critical,
  shutdownGracePeriodByPodPriority: byPriority,
});

describe('the order of a shutdown', () => {
  it('has two periods, or those by priority, lowest first', () => {
    assert.deepEqual(shutdownPeriods(flags(30_000, 10_000)), [
      { priority: 0, seconds: 20 },
      { priority: CRITICAL, seconds: 10 },
    ]);
    assert.deepEqual(shutdownPeriods(flags(0, 0)), []);
    assert.deepEqual(shutdownPeriods(flags(30_000, 10_000, { 1000: '5', '-5': '7' })), [
      { priority: -5, seconds: 7 },
      { priority: 1000, seconds: 5 },
    ]);
  });

  it('puts a pod into the highest period that is not above it, and the lowest of all otherwise', () => {
    const periods = [
      { priority: 10, seconds: 3 },
      { priority: 100, seconds: 2 },
      { priority: 1000, seconds: 1 },
    ];
    const groups = groupByPriority(periods, [
      podOf('below', 1),
      podOf('at', 100),
      podOf('between', 999),
      podOf('none'),
      podOf('above', CRITICAL),
    ]);
    assert.deepEqual(
      groups.map(({ priority, pods }) => [priority, pods.map((pod) => pod.metadata.name)]),
      [
        [10, ['below', 'none']],
        [100, ['at', 'between']],
        [1000, ['above']],
      ],
    );
  });

  it("takes the pod's own grace where that is shorter", () => {
    const group = { priority: 0, seconds: 20 };
    assert.deepEqual(
      [podOf('a'), podOf('b', 0, 5), podOf('c', 0, 60)].map((pod) => graceSeconds(pod, group)),
      [20, 5, 20],
    );
  });
});

class FakeLogind implements Logind {
  delayMs = 60_000;
  raisedTo: number | undefined;
  held = 0;
  notify: (goingDown: boolean) => void = () => undefined;
  broken = Promise.withResolvers<never>();

  inhibitDelayMs(): Promise<number> {
    return Promise.resolve(this.delayMs);
  }

  raiseInhibitDelay(ms: number): Promise<void> {
    this.raisedTo = ms;
    this.delayMs = ms;
    return Promise.resolve();
  }

  inhibit(): ReturnType<Logind['inhibit']> {
    this.held += 1;
    return Promise.resolve({
      release: () => {
        this.held -= 1;
        return Promise.resolve();
      },
    });
  }

  listen(onShutdown: (goingDown: boolean) => void, signal: AbortSignal): ReturnType<Logind['listen']> {
    this.notify = onShutdown;
    this.broken = Promise.withResolvers<never>();
    signal.addEventListener('abort', () => this.broken.reject(new Error('stopped')), { once: true });
    return Promise.resolve({ ended: this.broken.promise });
  }
}

async function setUp(
  t: TestContext,
  pods: readonly Pod[],
  { logind = new FakeLogind(), ...more }: Partial<NodeShutdownOptions> & { readonly logind?: FakeLogind } = {},
) {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const killed: string[] = [];
  const ends = new Map(pods.map((pod) => [pod.metadata.name, Promise.withResolvers<void>()]));
  /** The pods whose volumes are not unmounted yet. */
  const unmounts = new Map<string, PromiseWithResolvers<void>>();
  const nodeEvents: string[] = [];
  const times: { startSeconds: number; endSeconds: number }[] = [];
  const stateFile = join(directory, 'graceful_node_shutdown_state');
  const shutdown = new NodeShutdown({
    periods: [
      { priority: 0, seconds: 20 },
      { priority: CRITICAL, seconds: 10 },
    ],
    logind,
    clock,
    logger: silentLogger,
    activePods: () => pods,
    killer: {
      kill(pod, ending) {
        assert.equal(ending.status?.reason, 'Terminated');
        assert.equal(ending.status?.message, 'Pod was terminated in response to imminent node shutdown.');
        killed.push(`${pod.metadata.name} ${ending.gracePeriodSeconds}`);
        return ends.get(pod.metadata.name)?.promise ?? Promise.resolve();
      },
      cleanedUp: (pod) => unmounts.get(pod.metadata.name)?.promise ?? Promise.resolve(),
    },
    nodeEvent: (reason, message) => void nodeEvents.push(`${reason}: ${message}`),
    nodeChanged: () => undefined,
    stateFile,
    onTimes: (time) => void times.push(time),
    ...more,
  });
  const stop = new AbortController();
  const running = shutdown.run(stop.signal);
  t.after(async () => {
    stop.abort(new Error('over'));
    await running;
  });
  /** Waits in real time, because the virtual clock does not wait for the work on files. */
  const until = async (what: string, isMet: () => boolean): Promise<void> => {
    const limitMs = performance.now() + 60_000;
    while (!isMet() && performance.now() < limitMs) await clock.settle();
    assert.ok(isMet(), what);
  };
  await until('a lock', () => shutdown.isShuttingDown() || logind.held > 0 || more.periods?.length === 0);
  return { clock, logind, killed, ends, unmounts, nodeEvents, times, shutdown, stateFile, until, stop, running };
}

describe('a node whose host shuts down', () => {
  it('holds a lock, terminates pods by priority, each group in its time, and then releases the lock', async (t) => {
    const { clock, logind, killed, ends, nodeEvents, times, shutdown, stateFile, until } = await setUp(t, [
      podOf('critical', CRITICAL),
      podOf('plain'),
      podOf('slow', 0, 100),
      podOf('quick', 0, 2),
    ]);
    assert.equal(logind.held, 1);
    assert.equal(shutdown.refusal(), undefined);
    logind.notify(true);
    await until('the first group', () => killed.length === 3);
    assert.deepEqual(killed, ['plain 20', 'slow 20', 'quick 2']);
    assert.equal(shutdown.isShuttingDown(), true);
    assert.deepEqual(shutdown.refusal(), {
      reason: 'NodeShutdown',
      message: 'Pod was rejected as the node is shutting down.',
    });
    assert.equal(logind.held, 1);
    ends.get('plain')?.resolve();
    ends.get('quick')?.resolve();
    // One pod takes too long, and the next group terminates nevertheless.
    await clock.advance(20_000);
    await until('the second group', () => killed.length === 4);
    assert.equal(killed[3], 'critical 10');
    assert.equal(logind.held, 1);
    ends.get('critical')?.resolve();
    await until('the release', () => logind.held === 0);
    assert.deepEqual(nodeEvents, ['Shutdown: Shutdown manager detected shutdown event']);
    const kept = JSON.parse(await readFile(stateFile, 'utf8')) as { startTime: string; endTime: string };
    assert.equal(Date.parse(kept.endTime) - Date.parse(kept.startTime), 20_000);
    assert.deepEqual(
      times.map(({ endSeconds }) => endSeconds > 0),
      [false, true],
    );
  });

  it('terminates the next group when the volumes of the former are unmounted', async (t) => {
    const pods = [podOf('critical', CRITICAL), podOf('plain')];
    const { clock, ends, killed, logind, unmounts, until } = await setUp(t, pods);
    const unmount = Promise.withResolvers<void>();
    unmounts.set('plain', unmount);
    logind.notify(true);
    await until('the first group', () => killed.length === 1);
    ends.get('plain')?.resolve();
    await clock.settle();
    assert.deepEqual(killed, ['plain 20']);
    unmount.resolve();
    await until('the second group', () => killed.length === 2);
    ends.get('critical')?.resolve();
    await until('the release', () => logind.held === 0);
  });

  it('acquires the lock again when the shutdown is cancelled', async (t) => {
    const { logind, nodeEvents, shutdown, until } = await setUp(t, []);
    logind.notify(true);
    await until('the release', () => logind.held === 0);
    logind.notify(false);
    await until('a new lock', () => logind.held === 1);
    assert.equal(shutdown.isShuttingDown(), false);
    assert.equal(nodeEvents[1], 'Shutdown: Shutdown manager detected shutdown cancellation');
  });

  it('keeps the lock when the shutdown is cancelled while pods terminate', async (t) => {
    const { ends, killed, logind, stateFile, until } = await setUp(t, [podOf('plain')]);
    logind.notify(true);
    await until('the first group', () => killed.length === 1);
    logind.notify(false);
    ends.get('plain')?.resolve();
    await until('the end', () => readFileSync(stateFile, 'utf8').includes('endTime'));
    // The pods of the next shutdown terminate while the lock is held.
    ends.set('plain', Promise.withResolvers());
    logind.notify(true);
    await until('the next shutdown', () => killed.length === 2);
    assert.equal(logind.held, 1);
    ends.get('plain')?.resolve();
    await until('the release', () => logind.held === 0);
  });

  it('has the login manager allow the time that pods need', async (t) => {
    const logind = new FakeLogind();
    logind.delayMs = 5000;
    await setUp(t, [], { logind, periods: [{ priority: 0, seconds: 30 }] });
    assert.equal(logind.raisedTo, 30_000);
    assert.equal(logind.held, 1);
  });

  it('monitors again and takes the lock again after the bus was unavailable', async (t) => {
    const { clock, logind, until } = await setUp(t, []);
    const before = logind.notify;
    logind.broken.reject(new Error('the bus is gone'));
    await clock.settle();
    await clock.advance(1000);
    await until('another listener', () => logind.notify !== before);
    assert.equal(logind.held, 1);
  });

  it('leaves the lock when the agent stops', async (t) => {
    const { logind, running, stop } = await setUp(t, []);
    stop.abort(new Error('over'));
    await running;
    assert.equal(logind.held, 0);
  });
});

describe('a user who stops a node', () => {
  it('has its pods ended in the same order, also without a login manager', async (t) => {
    const { clock, ends, killed, logind, shutdown, until } = await setUp(
      t,
      [podOf('critical', CRITICAL), podOf('plain', 0, 5)],
      { periods: [] },
    );
    const stopped = shutdown.stopPods();
    await until('the first group', () => killed.length === 1);
    ends.get('plain')?.resolve();
    await until('the second group', () => killed.length === 2);
    ends.get('critical')?.resolve();
    await stopped;
    await clock.settle();
    assert.deepEqual(killed, ['plain 5', 'critical 10']);
    assert.equal(logind.held, 0);
    assert.equal(shutdown.isShuttingDown(), true);
  });
});
