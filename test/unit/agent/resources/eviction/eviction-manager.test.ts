import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { pause } from '../../../../../api/machinery/clock.ts';
import { NodePressure } from '../../../../../agent/resources/eviction/node-pressure.ts';
import { EvictionManager } from '../../../../../agent/resources/eviction/eviction-manager.ts';
import { type Observation, parseThresholds, type Signal } from '../../../../../agent/resources/eviction/thresholds.ts';
import type { PodStorage } from '../../../../../agent/resources/statistics/storage-usage.ts';
import { NO_USAGE, type UsageSnapshot } from '../../../../../agent/resources/statistics/usage.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { pod } from './pods.ts';

const MI = 1024 * 1024;
const filesystem = {
  capacityBytes: 1000 * MI,
  availableBytes: 500 * MI,
  usedBytes: 500 * MI,
  inodes: 1000,
  inodesFree: 900,
  device: 1,
};
const nothing = { usedBytes: 0, inodesUsed: 0 };

interface World {
  readonly pods: Pod[];
  readonly observations: Map<Signal, Observation>;
  readonly memory: Map<string, number>;
  readonly storage: Map<string, PodStorage>;
  /** The greatest ages of storage usage that the manager accepts. */
  readonly ages: number[];
  readonly done: string[];
  readonly disruptions: boolean[];
  readonly signals: string[];
  readonly ranked: string[];
  /** How long it takes to measure the pods. */
  usageTakesMs: number;
  readonly manager: EvictionManager;
  readonly clock: FakeClock;
  readonly pressure: NodePressure;
  onImagesDeleted: () => void;
  /** Whether evicted pods terminate at once. */
  isQuick: boolean;
}

interface Given {
  readonly soft?: Record<string, string>;
  readonly minimumReclaim?: Record<string, string>;
  readonly maxPodGracePeriodSeconds?: number;
}

function world(
  hard: Record<string, string>,
  { soft = {}, minimumReclaim = {}, maxPodGracePeriodSeconds = 20 }: Given = {},
): World {
  const clock = new FakeClock();
  const made: Omit<World, 'manager' | 'pressure'> = {
    pods: [],
    observations: new Map(),
    memory: new Map(),
    storage: new Map(),
    ages: [],
    done: [],
    disruptions: [],
    signals: [],
    ranked: [],
    usageTakesMs: 0,
    clock,
    onImagesDeleted: () => undefined,
    isQuick: true,
  };
  const snapshot = (): UsageSnapshot => ({
    timeMs: clock.now(),
    node: NO_USAGE,
    nodeNanoCores: 0,
    allPods: undefined,
    qosClasses: [],
    pods: made.pods.map((one) => {
      const usage = {
        ...NO_USAGE,
        memory: { ...NO_USAGE.memory, workingSetBytes: made.memory.get(one.metadata.name) ?? 0 },
      };
      return {
        pod: one,
        cgroup: '',
        timeMs: clock.now(),
        usage,
        nanoCores: 0,
        interfaces: [],
        containers: [{ name: 'main', id: 'c', image: 'x', startedAtMs: 0, cgroup: '', timeMs: 0, usage, nanoCores: 0 }],
      };
    }),
  });
  const record = (text: string) => (): Promise<void> => {
    made.done.push(text);
    return Promise.resolve();
  };
  const pressure = new NodePressure();
  const manager = new EvictionManager({
    pressure,
    settings: {
      thresholds: parseThresholds({
        hard,
        soft,
        softGracePeriod: Object.fromEntries(Object.keys(soft).map((name) => [name, '30s'])),
        minimumReclaim,
        enforcePods: false,
      }),
      transitionPeriodMs: 60_000,
      maxPodGracePeriodSeconds,
      localStorage: true,
    },
    clock,
    logger: silentLogger,
    observe: () =>
      Promise.resolve({
        observations: new Map(made.observations),
        storage: { root: filesystem, images: { filesystem, used: nothing }, containers: { filesystem, used: nothing } },
      }),
    usage: async () => {
      if (made.usageTakesMs > 0) await clock.advance(made.usageTakesMs);
      return snapshot();
    },
    storage: (maxAgeMs) => {
      made.ages.push(maxAgeMs);
      return Promise.resolve(made.storage);
    },
    activePods: () => made.pods,
    evict(one, { gracePeriodSeconds, message, isDisruption }) {
      made.done.push(`evict ${one.metadata.name} within ${gracePeriodSeconds}s: ${message}`);
      made.disruptions.push(isDisruption);
      made.pods.splice(made.pods.indexOf(one), 1);
      return made.isQuick ? Promise.resolve() : new Promise(() => undefined);
    },
    async cleanedUp(_one, { withinMs, signal }) {
      if (!made.isQuick) await pause(clock, withinMs, signal);
    },
    events: { event: (one, type, reason) => void made.done.push(`${type} ${reason} ${one.metadata.name}`) },
    onRanked: (signal, ageMs) => void made.ranked.push(`${signal} ${ageMs}`),
    onEviction: (signal) => void made.signals.push(signal),
    nodeEvent: (reason, message) => void made.done.push(`node ${reason}: ${message}`),
    deleteDeadContainers: record('delete dead containers'),
    deleteUnusedImages: () => {
      made.onImagesDeleted();
      return record('delete unused images')();
    },
    onConditionsChange: () => void made.done.push('conditions changed'),
  });
  return Object.assign(made, { manager, pressure });
}

describe('the eviction manager', () => {
  it('does nothing while nothing is short', async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 500 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'a' }));
    assert.equal(await it_.manager.synchronize(), false);
    assert.deepEqual(it_.done, []);
  });

  it('ends at once although an evicted pod terminates slowly, and leaves no timer after a fast one', async () => {
    for (const isQuick of [false, true]) {
      const it_ = world({ 'memory.available': '100Mi' });
      it_.observations.set('memory.available', { available: 50 * MI, capacity: 1000 * MI });
      it_.pods.push(pod({ name: 'a' }));
      it_.isQuick = isQuick;
      const stop = new AbortController();
      const running = it_.manager.run(stop.signal);
      await it_.clock.advance(100);
      stop.abort();
      await running;
      assert.ok(it_.done.some((line) => line.startsWith('evict a')));
      assert.deepEqual(it_.disruptions, [true]);
      assert.equal(it_.clock.pendingTimers, 0);
    }
  });

  it('reports the age of its measurements when it has ranked the pods by them', async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 50 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'a' }));
    it_.usageTakesMs = 700;
    await it_.manager.synchronize();
    assert.deepEqual(it_.ranked, ['memory.available 700']);
  });

  it("evicts the first pod of the ranking, one at a time, with the kubelet's message", async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 50 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'within', memory: '400Mi' }), pod({ name: 'above', memory: '100Mi' }));
    it_.memory.set('within', 300 * MI).set('above', 200 * MI);
    assert.equal(await it_.manager.synchronize(), true);
    assert.deepEqual(it_.done, [
      'conditions changed',
      'node EvictionThresholdMet: Attempting to reclaim memory',
      'Warning Evicted above',
      'evict above within 1s: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container main was using 200Mi, request is 100Mi, has larger consumption of memory. ',
    ]);
    assert.equal(it_.pressure.has('memory'), true);
    assert.equal(it_.pressure.has('disk'), false);
  });

  it('gives pods of a soft threshold their own grace period up to the maximum', async () => {
    for (const [most, own, granted] of [
      [20, 5, 5],
      [3, 5, 3],
      // The kubelet means to take the pod's own, and takes the shortest.
      [-1, 5, 1],
      [0, 5, 1],
    ] as const) {
      const it_ = world({}, { soft: { 'memory.available': '100Mi' }, maxPodGracePeriodSeconds: most });
      it_.observations.set('memory.available', { available: 50 * MI, capacity: 1000 * MI });
      it_.pods.push(pod({ name: 'a', graceSeconds: own }));
      await it_.manager.synchronize();
      await it_.clock.advance(30_000);
      await it_.manager.synchronize();
      assert.match(it_.done.at(-1) ?? '', new RegExp(`^evict a within ${granted}s`));
    }
  });

  it('does not evict static and critical pods even if there are no others', async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 50 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'static', isStatic: true }), pod({ name: 'critical', priority: 2_000_000_000 }));
    assert.equal(await it_.manager.synchronize(), false);
    assert.equal(it_.pods.length, 2);
  });

  it("frees disk by the node's own means first, and evicts nobody when that is enough", async () => {
    const it_ = world({ 'nodefs.available': '10%' });
    it_.observations.set('nodefs.available', { available: 50, capacity: 1000 });
    it_.onImagesDeleted = () => it_.observations.set('nodefs.available', { available: 500, capacity: 1000 });
    it_.pods.push(pod({ name: 'a' }));
    assert.equal(await it_.manager.synchronize(), false);
    assert.deepEqual(it_.done.slice(2), ['delete dead containers', 'delete unused images']);
    assert.equal(it_.pods.length, 1);
  });

  it('evicts a pod although the node is above the threshold again, until the minimum is reclaimed', async () => {
    const it_ = world({ 'nodefs.available': '10%' }, { minimumReclaim: { 'nodefs.available': '10%' } });
    it_.observations.set('nodefs.available', { available: 50, capacity: 1000 });
    it_.onImagesDeleted = () => it_.observations.set('nodefs.available', { available: 150, capacity: 1000 });
    it_.pods.push(pod({ name: 'a' }));
    assert.equal(await it_.manager.synchronize(), true);
    assert.match(it_.done.at(-1) ?? '', /^evict a within 1s/);
  });

  it('takes the thresholds of writable layers from the filesystem that holds them', async () => {
    const it_ = world({ 'nodefs.available': '10%', 'containerfs.available': '90%' });
    it_.observations.set('nodefs.available', { available: 500, capacity: 1000 });
    it_.observations.set('containerfs.available', { available: 500, capacity: 1000 });
    it_.pods.push(pod({ name: 'a' }));
    assert.equal(await it_.manager.synchronize(), false);
    assert.deepEqual(it_.done, []);
    it_.observations.set('containerfs.available', { available: 50, capacity: 1000 });
    assert.equal(await it_.manager.synchronize(), true);
    assert.deepEqual(it_.signals, ['containerfs.available']);
  });

  it("evicts for disk when the node's own means are not enough", async () => {
    const it_ = world({ 'nodefs.available': '10%' });
    it_.observations.set('nodefs.available', { available: 50, capacity: 1000 });
    it_.pods.push(pod({ name: 'a' }));
    assert.equal(await it_.manager.synchronize(), true);
    assert.match(
      it_.done.at(-1) ?? '',
      /^evict a within 1s: The node was low on resource: ephemeral-storage\. Threshold quantity: 100, available: 50\. /,
    );
  });

  for (const [name, shape, storage, message, signal] of [
    [
      'an emptyDir above its limit',
      { emptyDirLimit: '5Mi' },
      {
        volumes: [
          {
            name: 'scratch',
            usage: { usedBytes: 6 * MI, inodesUsed: 1 },
            filesystem,
            ephemeral: true,
            memory: false,
            claim: '',
          },
        ],
        ephemeral: nothing,
      },
      'Usage of EmptyDir volume "scratch" exceeds the limit "5Mi". ',
      'emptydirfs.limit',
    ],
    [
      'a pod above the sum of its limits',
      { storageLimit: '10Mi' },
      { volumes: [], ephemeral: { usedBytes: 11 * MI, inodesUsed: 1 } },
      'Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ',
      'ephemeralpodfs.limit',
    ],
  ] as const) {
    it(`evicts a pod for ${name}, whatever the node has left`, async () => {
      const it_ = world({});
      it_.pods.push(pod({ name: 'a', ...shape }), pod({ name: 'other' }));
      it_.storage.set('uid-a', { containers: new Map(), ...storage });
      assert.equal(await it_.manager.synchronize(), true);
      assert.deepEqual(it_.done, ['Warning Evicted a', `evict a within 1s: ${message}`]);
      assert.deepEqual(it_.disruptions, [false]);
      assert.deepEqual(it_.signals, [signal]);
      // Limits are checked as often as the signals are read.
      assert.deepEqual(it_.ages, [10_000]);
    });
  }

  it('explains a supposed pressure without doing anything', async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 500 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'a', memory: '10Mi' }), pod({ name: 'static', isStatic: true }));
    it_.memory.set('a', 30 * MI);
    const report = await it_.manager.explain({ signal: 'memory.available' });
    assert.deepEqual(
      report.ranking.map(({ pod: name, verdict, why }) => [name, verdict, why]),
      [
        ['default/a', 'first', 'uses 30Mi of memory, 20Mi above its request of 10Mi; priority 0'],
        ['default/static', 'spared', 'static and system-critical pods are never evicted'],
      ],
    );
    assert.deepEqual(report.pressure, {
      signal: 'memory.available',
      resource: 'memory',
      condition: 'MemoryPressure',
      supposed: true,
    });
    assert.deepEqual(it_.done, []);
  });

  it('explains the thresholds of writable layers by the filesystem that holds the layers', async () => {
    const it_ = world({ 'nodefs.available': '10%' });
    it_.observations.set('containerfs.available', { available: 50, capacity: 1000 });
    it_.pods.push(pod({ name: 'a' }));
    const report = await it_.manager.explain({ signal: 'containerfs.available' });
    assert.deepEqual(report.signals[0]?.thresholds, [
      { value: '10%', quantity: '100', kind: 'hard', gracePeriodSeconds: 0, met: true },
    ]);
    assert.match(report.ranking[0]?.message ?? '', /Threshold quantity: 100, available: 50\. /);
  });

  it('explains that no pod is evicted while no resource is short', async () => {
    const it_ = world({ 'memory.available': '100Mi' });
    it_.observations.set('memory.available', { available: 500 * MI, capacity: 1000 * MI });
    it_.pods.push(pod({ name: 'a' }));
    const report = await it_.manager.explain({ signal: undefined });
    assert.deepEqual([report.pressure.signal, report.ranking], ['', []]);
    assert.deepEqual(report.signals[0], {
      signal: 'memory.available',
      available: '500Mi',
      capacity: '1000Mi',
      thresholds: [{ value: '100Mi', quantity: '100Mi', kind: 'hard', gracePeriodSeconds: 0, met: false }],
    });
  });
});
