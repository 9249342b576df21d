import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { whenAborted } from '../../../../api/machinery/clock.ts';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import type { PodConfig, PodUpdate } from '../../../../agent/sources/pod-config.ts';
import { PodTable } from '../../../../agent/pods/pod-table.ts';
import type { PodEventRecorder } from '../../../../agent/base/model/pod-events.ts';
import { createPreemption } from '../../../../agent/pods/preemption.ts';
import { SyncLoop } from '../../../../agent/pods/sync-loop.ts';
import type { Refusal } from '../../../../agent/base/model/refusal.ts';
import { createPodAdmission } from '../../../../agent/pods/workers/pod-admission.ts';
import { PodManager } from '../../../../agent/pods/workers/pod-manager.ts';
import { createPodKiller } from '../../../../agent/pods/workers/kill-pod.ts';
import { type Ending, PodWorkers } from '../../../../agent/pods/workers/pod-workers.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function pod(name: string, cpu: string, spec: object = {}): Pod {
  return {
    metadata: { name, namespace: 'ns', uid: name },
    spec: { containers: [{ name: 'c', resources: { requests: { cpu } } }], ...spec },
  } as unknown as Pod;
}

const CRITICAL = { priority: 2_000_001_000 };
const NODE = { metadata: { name: 'n' }, status: { allocatable: { cpu: '2', pods: '10' } } };

type Allocation = Promise<Refusal | undefined> | undefined;

/** Returns a sync loop of a node with two CPUs, whose pods terminate only when the test lets them. */
function setUp({ allocate = () => undefined }: { readonly allocate?: (pod: Pod) => Allocation } = {}) {
  const clock = new FakeClock();
  const log: string[] = [];
  const held = new Map<string, PromiseWithResolvers<void>>();
  const desired = new PodManager();
  const workers = new PodWorkers({ clock, logger: silentLogger, resyncMs: 60_000, random: () => 0 });
  const table = new PodTable({
    desired,
    workers,
    statuses: { get: () => undefined },
    sources: { allSourcesReady: () => true },
  });
  let deliver: ((update: PodUpdate) => void) | undefined;
  const podConfig = {
    run: async (signal: AbortSignal, onUpdate: (update: PodUpdate) => void) => {
      deliver = onUpdate;
      await whenAborted(signal);
    },
  } as unknown as PodConfig;
  const events: PodEventRecorder = {
    event: (of, type, reason) => void log.push(`event ${of.metadata.name} ${type} ${reason}`),
  };
  const syncLoop = new SyncLoop({
    logger: silentLogger,
    table,
    desired,
    workers,
    statuses: {
      reconcile: (of, mirror) => void log.push(`reconcile ${of.metadata.uid} with ${mirror?.metadata.uid ?? 'itself'}`),
    },
    sync: {
      reject: (of, { reason, message }, { hasRun }) => {
        log.push(`reject ${of.metadata.name}${hasRun ? ', which has run' : ''}: ${reason}: ${message}`);
        return { reason, message };
      },
    },
    mirrors: {
      ensure: () => Promise.resolve(true),
      delete: (mirror) => Promise.resolve(void log.push(`delete ${mirror.metadata.uid}`)),
    },
    startups: { observed: () => undefined, rejected: () => undefined, forget: () => undefined },
    allocations: {
      allocated: (of: Pod) => of,
      requested: (before: Pod, after: Pod) =>
        void log.push(
          `change ${[before, after].map((of) => of.spec.containers[0]?.resources?.requests?.['cpu']).join(' to ')}`,
        ),
    } as never,
    resources: {
      admit: (of) => allocate(of),
      release: (uid) => void log.push(`release ${uid}`),
    },
    admission: createPodAdmission({
      node: () => NODE as never,
      allowedUnsafeSysctls: [],
      pressure: () => false,
      appArmor: () => false,
    }),
    preemption: createPreemption({
      workers,
      killer: createPodKiller({ workers, events, clock }),
      events,
      logger: silentLogger,
      onPreempted: (resource) => void log.push(`preempted for ${resource}`),
    }),
  });
  const abort = new AbortController();
  void workers.run(
    {
      sync: (of) => {
        log.push(`sync ${of.metadata.name}`);
        return Promise.resolve({ ended: false, errors: [], retryAtMs: undefined });
      },
      terminate: async (of, ending: Ending) => {
        log.push(`terminate ${of.metadata.name} ${ending.status?.reason ?? ''}`.trim());
        const hold = Promise.withResolvers<void>();
        held.set(of.metadata.name, hold);
        await hold.promise;
      },
      cleanUp: () => Promise.resolve(),
    },
    abort.signal,
  );
  void syncLoop.run(podConfig, abort.signal);
  return {
    clock,
    log,
    add: async (...pods: readonly Pod[]) => {
      deliver?.({ type: 'add', source: 'api', pods });
      await clock.advance(1);
    },
    update: async (pod: Pod) => {
      deliver?.({ type: 'update', source: 'api', pods: [pod] });
      await clock.advance(1);
    },
    change: async (pod: Pod) => {
      deliver?.({ type: 'reconcile', source: 'api', pods: [pod] });
      await clock.advance(1);
    },
    remove: async (pod: Pod) => {
      deliver?.({ type: 'remove', source: 'file', pods: [pod] });
      await clock.advance(1);
    },
    letGo: async (name: string) => {
      held.get(name)?.resolve();
      await clock.advance(1);
    },
    taken: () => log.splice(0),
  };
}

it('starts a critical pod after the pod that it preempts has terminated', async () => {
  const { add, letGo, taken } = setUp();
  await add(pod('small', '500m'), pod('large', '1500m'));
  assert.deepEqual(taken(), ['sync small', 'sync large']);
  await add(pod('critical', '1', CRITICAL));
  assert.deepEqual(taken(), ['event large Warning Preempting', 'terminate large Preempting']);
  await letGo('large');
  assert.deepEqual(taken(), ['preempted for cpu', 'sync critical']);
});

it('gives the room of a preemption to no other pod', async () => {
  const { add, letGo, taken } = setUp();
  await add(pod('small', '500m'), pod('large', '1500m'));
  await add(pod('critical', '1', CRITICAL));
  taken();
  await add(pod('late', '500m'));
  assert.match(taken().join(), /^reject late: OutOfcpu.*release late$/);
  // A second critical pod needs another victim than the first one.
  await add(pod('second', '1', CRITICAL));
  assert.deepEqual(taken(), ['event small Warning Preempting', 'terminate small Preempting']);
  await letGo('large');
  assert.deepEqual(taken(), ['preempted for cpu', 'sync critical']);
  await letGo('small');
  assert.deepEqual(taken(), ['preempted for cpu', 'sync second']);
});

it('rejects a pod that ran before the agent started and does not fit any more, and terminates it', async () => {
  const { add, taken } = setUp();
  const ran = (name: string, containerID?: string): Pod => {
    const container = { name: 'main', ...(containerID === undefined ? {} : { containerID }) };
    const status = { phase: 'Running', startTime: '2026-01-01T00:00:00Z', containerStatuses: [container] };
    return { ...pod(name, '1500m'), status } as unknown as Pod;
  };
  await add(ran('first', 'docker://1'), ran('second', 'docker://2'), ran('waiting'));
  assert.deepEqual(
    taken().map((line) => line.replace(/OutOfcpu: .*/, 'OutOfcpu')),
    [
      'sync first',
      'reject second, which has run: OutOfcpu',
      'terminate second OutOfcpu',
      'reject waiting: OutOfcpu',
      'release waiting',
    ],
  );
});

const REFUSED: Refusal = { reason: 'UnexpectedAdmissionError', message: 'Allocate failed' };

it('reports refused exclusive resources before resources that are short, and preempts nothing for them', async () => {
  const { add, taken } = setUp({
    allocate: ({ metadata }) => (metadata.name === 'small' ? undefined : Promise.resolve(REFUSED)),
  });
  await add(pod('small', '1500m'));
  taken();
  await add(pod('large', '10'), pod('critical', '1', CRITICAL));
  assert.deepEqual(taken(), [
    ...['reject large: UnexpectedAdmissionError: Allocate failed', 'release large'],
    ...['reject critical: UnexpectedAdmissionError: Allocate failed', 'release critical'],
  ]);
});

it('rejects and terminates a pod that ran before the agent started if its exclusive resources are refused', async () => {
  const { add, taken } = setUp({ allocate: () => Promise.resolve(REFUSED) });
  const containerStatuses = [{ name: 'main', containerID: 'docker://1' }];
  const status = { phase: 'Running', startTime: '2026-01-01T00:00:00Z', containerStatuses };
  await add({ ...pod('a', '1'), status } as unknown as Pod);
  assert.deepEqual(taken(), [
    'reject a, which has run: UnexpectedAdmissionError: Allocate failed',
    'terminate a UnexpectedAdmissionError',
  ]);
});

it('rejects a pod whose allocation fails unexpectedly, and gives its room to the next one', async () => {
  let failures = 1;
  const { add, taken } = setUp({
    allocate: () => ((failures -= 1) < 0 ? Promise.resolve(undefined) : Promise.reject(new Error('boom'))),
  });
  await add(pod('a', '1500m'));
  const why = 'Allocate failed due to boom, which is unexpected';
  assert.deepEqual(taken(), [`reject a: UnexpectedAdmissionError: ${why}`, 'release a']);
  await add(pod('b', '1500m'));
  assert.deepEqual(taken(), ['sync b']);
});

it('gives the room to the pod that came first, however long its exclusive resources take', async () => {
  const first = Promise.withResolvers<undefined>();
  const { add, clock, taken } = setUp({
    allocate: ({ metadata }) =>
      metadata.name === 'plain' ? undefined : metadata.name === 'first' ? first.promise : Promise.resolve(undefined),
  });
  await add(pod('first', '1500m'), pod('second', '1500m'), pod('plain', '1500m'));
  assert.deepEqual(
    taken().map((line) => line.replace(/OutOfcpu: .*/, 'OutOfcpu')),
    ['reject plain: OutOfcpu', 'release plain', 'reject second: OutOfcpu', 'release second'],
  );
  first.resolve(undefined);
  await clock.advance(1);
  assert.deepEqual(taken(), ['sync first']);
});

it('releases the exclusive resources of a pod that was removed while it got them', async () => {
  const allocation = Promise.withResolvers<undefined>();
  const { add, clock, remove, taken } = setUp({ allocate: () => allocation.promise });
  const gone = pod('gone', '1');
  await add(gone);
  await remove(gone);
  allocation.resolve(undefined);
  await clock.advance(1);
  assert.ok(taken().includes('release gone'));
});

it('starts a critical pod although the pod that it preempts does not terminate in time', async () => {
  const { add, clock, taken } = setUp();
  await add(pod('stuck', '2', { terminationGracePeriodSeconds: 20 }));
  await add(pod('critical', '1', CRITICAL));
  taken();
  await clock.advance(29_000);
  assert.deepEqual(taken(), []);
  await clock.advance(2_000);
  assert.deepEqual(taken(), ['event stuck Warning ExceededGracePeriod', 'sync critical']);
});

function staticPod(): { readonly own: Pod; readonly mirror: Pod } {
  const own = pod('static', '100m');
  own.metadata.annotations = { 'kubernetes.io/config.source': 'file', 'kubernetes.io/config.hash': 'h' };
  const annotations = { 'kubernetes.io/config.source': 'api', 'kubernetes.io/config.mirror': 'h' };
  return { own, mirror: { ...own, metadata: { ...own.metadata, uid: 'mirror', annotations } } };
}

it('leaves the mirror pod of a removed static pod until that has terminated and its last status has been sent', async () => {
  const { add, change, letGo, remove, taken } = setUp();
  const { own, mirror } = staticPod();
  await add(own);
  await add(mirror);
  taken();
  await remove(own);
  await change(mirror);
  assert.deepEqual(taken(), ['terminate static']);
  await letGo('static');
  assert.deepEqual(taken(), []);
  // The last status comes back from the API server.
  await change(mirror);
  assert.deepEqual(taken(), ['delete mirror']);
});

it('compares the status of a static pod with its mirror pod when that changes', async () => {
  const { add, change, taken } = setUp();
  const { own, mirror } = staticPod();
  await add(own);
  await add(mirror);
  taken();
  await change(mirror);
  assert.ok(taken().includes(`reconcile ${own.metadata.uid} with mirror`));
});

it('passes a changed specification on with the one before, so that requested resizes are counted', async () => {
  const { add, taken, update } = setUp();
  await add(pod('a', '500m'));
  taken();
  await update(pod('a', '1'));
  assert.deepEqual(taken(), ['change 500m to 1', 'sync a']);
});
