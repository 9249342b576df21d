import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { resourceValue } from '../../../../../agent/runtime/kuberuntime/downward-api.ts';
import {
  linuxResources,
  podResources,
  limitsOf,
  qosClass,
  requestsOf,
} from '../../../../../agent/runtime/kuberuntime/resources.ts';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';

interface Parts {
  readonly whole?: object;
  readonly containers?: readonly object[];
  readonly initContainers?: readonly object[];
  readonly overhead?: object;
}

const named = (list: readonly object[], of: string): Container[] =>
  list.map((rest, index) => ({ name: `${of}${index}`, ...rest }) as unknown as Container);

function podOf({ whole, containers = [{}], initContainers = [], overhead }: Parts): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: {
      containers: named(containers, 'c'),
      initContainers: named(initContainers, 'i'),
      ...(whole === undefined ? {} : { resources: whole }),
      ...(overhead === undefined ? {} : { overhead }),
    },
  } as unknown as Pod;
}

const GIB = 2 ** 30;
const facts = { memoryCapacityBytes: 10 * GIB, cpuQuota: true, cpuPeriodUs: 100_000 };
const of = (pod: Pod, index = 0): ReturnType<typeof linuxResources> => {
  const container = pod.spec.containers[index];
  assert.ok(container !== undefined);
  return linuxResources(pod, container, facts);
};
const same = { requests: { cpu: '1', memory: '1Gi' }, limits: { cpu: '1', memory: '1Gi' } };

describe('resources of a pod as a whole', () => {
  it('decide its QoS class, regardless of its containers', () => {
    assert.equal(qosClass(podOf({ whole: same, containers: [{}, {}] })), 'Guaranteed');
    assert.equal(
      qosClass(podOf({ whole: { requests: { cpu: '1' } }, containers: [{ resources: same }] })),
      'Burstable',
    );
    assert.equal(qosClass(podOf({ whole: {}, containers: [{ resources: same }] })), 'BestEffort');
    assert.equal(qosClass(podOf({ containers: [{}] })), 'BestEffort');
  });
  it('stand in place of the sum of its containers, with the overhead on top', () => {
    const pod = podOf({
      whole: { requests: { cpu: '2' }, limits: { memory: '3Gi' } },
      containers: [{ resources: { requests: { cpu: '1', memory: '1Gi' }, limits: { cpu: '1' } } }],
      overhead: { cpu: '100m', memory: '10Mi' },
    });
    assert.deepEqual(podResources(pod, requestsOf), { cpu: '2100m', memory: '1034Mi' });
    // The overhead is no limit for a resource without limits.
    assert.deepEqual(podResources(pod, limitsOf), { cpu: '1100m', memory: '3082Mi' });
  });
  it('hold a container that has no limits of its own', () => {
    const limits = { cpu: '2', memory: '1Gi' };
    const pod = podOf({ whole: { limits }, containers: [{}, { resources: { limits: { cpu: '500m' } } }] });
    assert.deepEqual([of(pod).cpuQuotaUs, of(pod).cpuShares, of(pod).memoryLimitBytes], [200_000, 2048, GIB]);
    assert.deepEqual([of(pod, 1).cpuQuotaUs, of(pod, 1).cpuShares, of(pod, 1).memoryLimitBytes], [50_000, 512, GIB]);
  });
  it('are shared by its containers when memory is short', () => {
    const containers = [{ resources: { requests: { memory: '1Gi' } } }, {}];
    const pod = podOf({ whole: { requests: { memory: '3Gi' } }, containers });
    assert.deepEqual([of(pod).oomScoreAdj, of(pod, 1).oomScoreAdj], [800, 900]);
  });
  it('are what the downward API shows of a container without limits', () => {
    const pod = podOf({ whole: { limits: { cpu: '2' } } });
    const [container] = pod.spec.containers;
    assert.ok(container !== undefined);
    const node = { cpu: '8', memory: '10Gi', 'hugepages-2Mi': '4Mi' };
    const valueOf = (resource: string, divisor = '1'): string =>
      resourceValue(pod, container, { resource, divisor }, node);
    assert.equal(valueOf('limits.cpu'), '2');
    assert.equal(valueOf('limits.memory', '1Gi'), '10');
    assert.equal(valueOf('limits.hugepages-2Mi'), '0');
    assert.equal(valueOf('requests.cpu'), '0');
  });
});

describe('the settings of the kernel', () => {
  it('ends a sidecar no sooner than those that it serves', () => {
    const pod = podOf({
      containers: [{ resources: { requests: { memory: '1Gi' } } }, { resources: { requests: { memory: '3Gi' } } }],
      initContainers: [{ restartPolicy: 'Always' }, {}],
    });
    const scores = (pod.spec.initContainers ?? []).map((entry) => linuxResources(pod, entry, facts).oomScoreAdj);
    assert.deepEqual(scores, [900, 999]);
  });
  it('protects pods that are critical to their node from the OOM killer, but not those critical to the cluster alone', () => {
    const pod = podOf({ containers: [{ resources: { requests: { memory: '1Gi' } } }] });
    const score = (priorityClassName: string): number =>
      of({ ...pod, spec: { ...pod.spec, priority: 2_000_000_000, priorityClassName } }).oomScoreAdj;
    assert.deepEqual([score('system-node-critical'), score('system-cluster-critical')], [-997, 900]);
  });
  it('has the OOM killer end a container as a whole where the host can', () => {
    const container = { name: 'c', image: 'i' } as Container;
    const of = {
      metadata: { name: 'p', namespace: 'd', uid: 'u' },
      spec: { containers: [container] },
    } as unknown as Pod;
    const unified = (more: object): object =>
      linuxResources(of, container, { memoryCapacityBytes: GIB, cpuQuota: true, cpuPeriodUs: 100_000, ...more })
        .unified;
    assert.deepEqual(unified({ oomGroup: true }), { 'memory.oom.group': '1' });
    assert.deepEqual(unified({ oomGroup: false }), {});
  });
  it('lets containers swap as the node is configured', () => {
    const swap = { behavior: 'LimitedSwap', capacityBytes: 5 * GIB };
    const pod = podOf({
      containers: [
        { resources: { requests: { memory: '1Gi' } } },
        { resources: { requests: { memory: '1Gi' }, limits: { memory: '1Gi' } } },
        {},
      ],
    });
    const swapLimits = (more: object, of = pod): unknown[] =>
      of.spec.containers.map((entry) => {
        const { unified, memorySwapLimitBytes } = linuxResources(of, entry, { ...facts, ...more });
        return unified['memory.swap.max'] ?? memorySwapLimitBytes;
      });
    // A container with a tenth of the memory gets a tenth of the swap.
    assert.deepEqual(swapLimits({ swap }), [String(GIB / 2), '0', '0']);
    assert.deepEqual(swapLimits({ swap: { ...swap, behavior: 'NoSwap' } }), ['0', '0', '0']);
    const critical = { ...pod, spec: { ...pod.spec, priority: 2_000_000_000 } };
    assert.deepEqual(swapLimits({ swap }, critical), ['0', '0', '0']);
    // On cgroup v1, the swap limit includes the memory, so the same value means no swap.
    assert.deepEqual(swapLimits({}), [0, GIB, 0]);
  });
  it('gives no huge pages of a size that is not requested', () => {
    const pod = podOf({ containers: [{ resources: { limits: { 'hugepages-2Mi': '4Mi' } } }] });
    const [container] = pod.spec.containers;
    assert.ok(container !== undefined);
    assert.deepEqual(linuxResources(pod, container, { ...facts, hugePageSizes: ['2Mi', '1Gi'] }).hugepageLimits, [
      { pageSize: '2MB', limitBytes: 4 * 2 ** 20 },
      { pageSize: '1GB', limitBytes: 0 },
    ]);
    const whole = podOf({ whole: { limits: { 'hugepages-2Mi': '6Mi' } } });
    assert.deepEqual(of(whole).hugepageLimits, [{ pageSize: '2MB', limitBytes: 6 * 2 ** 20 }]);
  });
});
