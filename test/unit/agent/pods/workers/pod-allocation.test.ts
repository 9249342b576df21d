/**
 * In-place resizes are allocated if they fit. Otherwise they are deferred or refused with the kubelet's messages, and the pod
 * keeps its allocation.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { PodAllocations } from '../../../../../agent/pods/workers/pod-allocation.ts';

function pod(uid: string, cpu: string, more: { generation?: number; memory?: string; status?: object } = {}): Pod {
  const { generation = 1, memory = '100Mi', status } = more;
  return {
    metadata: { name: uid, namespace: 'd', uid, generation, annotations: { 'kubernetes.io/config.source': 'api' } },
    spec: { containers: [{ name: 'c', image: 'i', resources: { requests: { cpu, memory } } }] },
    ...(status === undefined ? {} : { status }),
  } as unknown as Pod;
}

const node = { status: { allocatable: { cpu: '4', memory: '4Gi', pods: '110' } } } as unknown as NodeObject;

function setUp(
  options: {
    others?: Pod[];
    cpuManagerPolicy?: string;
    mayUseSwap?: boolean;
    onRoom?: (deferred: readonly string[]) => void;
  } = {},
): {
  allocations: PodAllocations;
  events: string[];
} {
  const events: string[] = [];
  const allocations = new PodAllocations({
    node: () => node,
    events: { event: (_pod, type, reason, message) => void events.push(`${type} ${reason} ${message}`) },
    others: () => options.others ?? [],
    mayUseSwap: () => options.mayUseSwap === true,
    cpuManagerPolicy: options.cpuManagerPolicy ?? 'none',
    memoryManagerPolicy: 'None',
    ...(options.onRoom === undefined ? {} : { onRoom: options.onRoom }),
  });
  return { allocations, events };
}

const cpuOf = (of: Pod): string | undefined =>
  of.spec.containers[0]?.resources?.requests?.['cpu'] as string | undefined;

describe('a resize', () => {
  it('that fits is taken up, in progress until the runtime has done it', () => {
    const { allocations, events } = setUp();
    allocations.decide(pod('u', '1'));
    const desired = pod('u', '2', { generation: 2 });
    assert.equal(cpuOf(allocations.decide(desired)), '2');
    assert.deepEqual(allocations.conditions('u'), { inProgress: { generation: 2 } });
    allocations.actuated(desired, { left: 1 });
    assert.deepEqual(allocations.conditions('u'), { inProgress: { generation: 2 } });
    allocations.actuated(desired, { left: 0 });
    assert.deepEqual(allocations.conditions('u'), {});
    const details =
      '{"containers":[{"name":"c","resources":{"requests":{"cpu":"2","memory":"100Mi"}}}],"generation":2}';
    assert.deepEqual(events, [
      `Normal ResizeStarted Pod resize started: ${details}`,
      `Normal ResizeCompleted Pod resize completed: ${details}`,
    ]);
  });

  it('that fails is logged once, and is retried', () => {
    const { allocations, events } = setUp();
    allocations.decide(pod('u', '1'));
    const desired = pod('u', '2', { generation: 2 });
    allocations.decide(desired);
    for (let round = 0; round < 2; round++) allocations.actuated(desired, { left: 1, error: 'no' });
    assert.deepEqual(allocations.conditions('u'), { inProgress: { generation: 2, error: 'no' } });
    assert.equal(events.filter((event) => event.startsWith('Warning ResizeError')).length, 1);
  });

  it('above the capacity of the node is deferred as well, and the pod stays unchanged', () => {
    const { allocations, events } = setUp();
    allocations.decide(pod('u', '1'));
    for (let round = 0; round < 2; round++)
      assert.equal(cpuOf(allocations.decide(pod('u', '5', { generation: 2 }))), '1');
    assert.deepEqual(allocations.conditions('u'), {
      pending: {
        reason: 'Deferred',
        message: "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000",
        generation: 2,
      },
    });
    assert.equal(events.length, 1);
    assert.match(events[0] ?? '', /^Warning ResizeDeferred Pod resize OutOfcpu: \{.*"error":"Node didn't/);
  });

  it('that does not fit beside the others is deferred until they go', () => {
    const others = [pod('o', '2500m')];
    const { allocations } = setUp({ others });
    allocations.decide(pod('u', '1'));
    assert.equal(cpuOf(allocations.decide(pod('u', '2', { generation: 2 }))), '1');
    assert.equal(
      allocations.conditions('u').pending?.message,
      "Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 4000",
    );
    assert.deepEqual(allocations.deferred(), ['u']);
    others.pop();
    assert.equal(cpuOf(allocations.decide(pod('u', '2', { generation: 2 }))), '2');
    assert.deepEqual(allocations.deferred(), []);
  });

  it('that is deferred is tried again when another one makes room, by priority and in the order of deferral', () => {
    const rooms: (readonly string[])[] = [];
    const others = [pod('o', '3')];
    const { allocations } = setUp({ others, onRoom: (deferred) => void rooms.push(deferred) });
    const important = pod('high', '2', { generation: 2 });
    important.spec.priority = 10;
    for (const uid of ['first', 'second', 'high', 'other']) allocations.decide(pod(uid, '1'));
    for (const one of [pod('second', '2', { generation: 2 }), pod('first', '2', { generation: 2 }), important])
      allocations.decide(one);
    assert.deepEqual(rooms, []);
    allocations.decide(pod('other', '500m', { generation: 2 }));
    assert.deepEqual(rooms, [['high', 'second', 'first']]);
    others.pop();
    allocations.decide(pod('second', '2', { generation: 2 }));
    assert.deepEqual(rooms[1], ['high', 'first']);
    allocations.forget(new Set(['first']));
    assert.deepEqual(allocations.deferred(), ['first']);
  });

  it('that asks for less is taken up however full the node is', () => {
    const { allocations } = setUp({ others: [pod('o', '4')] });
    allocations.decide(pod('u', '1'));
    assert.equal(cpuOf(allocations.decide(pod('u', '500m', { generation: 2 }))), '500m');
  });

  it('that is taken back leaves nothing behind', () => {
    const { allocations } = setUp();
    allocations.decide(pod('u', '1'));
    allocations.decide(pod('u', '5', { generation: 2 }));
    assert.equal(cpuOf(allocations.decide(pod('u', '1', { generation: 3 }))), '1');
    assert.deepEqual(allocations.conditions('u'), {});
  });

  it('is not for guaranteed pods whose processors are pinned', () => {
    const { allocations } = setUp({ cpuManagerPolicy: 'static' });
    const guaranteed = (cpu: string): Pod => {
      const made = pod('u', cpu);
      const resources = { requests: { cpu, memory: '1Gi' }, limits: { cpu, memory: '1Gi' } };
      return { ...made, spec: { containers: [{ name: 'c', image: 'i', resources }] } } as unknown as Pod;
    };
    allocations.decide(guaranteed('1'));
    allocations.decide(guaranteed('2'));
    assert.equal(
      allocations.conditions('u').pending?.message,
      'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
    );
  });

  it('that was under way before a restart of the agent is known by the status', () => {
    const { allocations } = setUp({ others: [pod('o', '2500m')] });
    const status = {
      containerStatuses: [
        { name: 'c', containerID: 'x://1', resources: { requests: { cpu: '1000m', memory: '100Mi' } } },
      ],
    };
    const running = allocations.decide(pod('u', '2', { generation: 2, status }));
    assert.equal(cpuOf(running), '1000m');
    assert.equal(allocations.conditions('u').pending?.reason, 'Deferred');
    // The same amount in another notation is no change.
    const same = pod('v', '1', { status });
    assert.equal(allocations.decide(same), same);
  });

  it('of a pod as a whole is allocated, and the limit of the pod stands in its status after a restart of the agent', () => {
    const { allocations } = setUp();
    const whole = (cpu: string, more: object = {}): Pod =>
      ({
        ...pod('u', '100m', { generation: 2 }),
        ...more,
        spec: {
          overhead: { cpu: '100m' },
          resources: { requests: { cpu }, limits: { cpu: '3' } },
          containers: [{ name: 'c', image: 'i' }],
        },
      }) as unknown as Pod;
    allocations.decide(whole('1'));
    assert.deepEqual(allocations.decide(whole('2')).spec.resources?.requests, { cpu: '2' });
    assert.deepEqual(allocations.conditions('u'), { inProgress: { generation: 2 } });
    assert.deepEqual(allocations.decide(whole('5')).spec.resources?.requests, { cpu: '2' });
    assert.match(allocations.conditions('u').pending?.message ?? '', /^Node didn't have enough resource: cpu/);

    const restarted = setUp().allocations;
    const status = {
      containerStatuses: [{ name: 'c', containerID: 'x://1', resources: {} }],
      resources: { limits: { cpu: '3' }, requests: { cpu: '2' } },
      allocatedResources: { cpu: '2' },
    };
    assert.deepEqual(restarted.allocated(whole('5', { status })).spec.resources, {
      requests: { cpu: '2' },
      limits: { cpu: '3' },
    });
  });

  it('lists init containers of their own in its events, as the kubelet does', () => {
    const { allocations, events } = setUp();
    const withInit = (cpu: string): Pod => {
      const made = pod('u', cpu, { generation: 2 });
      return { ...made, spec: { ...made.spec, initContainers: [{ name: 'i', image: 'i' }] } } as Pod;
    };
    allocations.decide(withInit('1'));
    allocations.decide(withInit('2'));
    assert.deepEqual(events, [
      'Normal ResizeStarted Pod resize started: {"initContainers":[{"name":"i","resources":{}}],' +
        '"containers":[{"name":"c","resources":{"requests":{"cpu":"2","memory":"100Mi"}}}],"generation":2}',
    ]);
  });

  it('of the memory of a container that may use swap needs a restart of the container', () => {
    const { allocations } = setUp({ mayUseSwap: true });
    allocations.decide(pod('u', '1', { memory: '100Mi' }));
    allocations.decide(pod('u', '1', { memory: '200Mi' }));
    assert.equal(
      allocations.conditions('u').pending?.message,
      'In-place resize of containers with swap is not supported.',
    );
    allocations.decide(pod('v', '1', { memory: '100Mi' }));
    const restarting = pod('v', '1', { memory: '200Mi' });
    Object.assign(restarting.spec.containers[0] ?? {}, {
      resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }],
    });
    allocations.decide(restarting);
    assert.equal(allocations.conditions('v').pending, undefined);
  });

  it('of the memory of a sidecar that may use swap is infeasible as well', () => {
    const { allocations } = setUp({ mayUseSwap: true });
    const withSidecar = (memory: string): Pod => {
      const whole = pod('u', '1');
      const sidecar = { name: 'sidecar', restartPolicy: 'Always', resources: { requests: { memory } } };
      return { ...whole, spec: { ...whole.spec, initContainers: [sidecar] } } as unknown as Pod;
    };
    allocations.decide(withSidecar('1Gi'));
    allocations.decide(withSidecar('1024Mi'));
    assert.equal(allocations.conditions('u').pending, undefined);
    allocations.decide(withSidecar('2Gi'));
    assert.equal(allocations.conditions('u').pending?.reason, 'Infeasible');
  });
});
