/** The metrics of resizes have the kubelet's names, labels and buckets, and count what it counts. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { PodAllocations } from '../../../../../agent/pods/workers/pod-allocation.ts';
import { followResizes, resizeMetrics } from '../../../../../agent/pods/metrics/resize-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';

function podOf(resources: object, { uid = 'u', generation = 1, initContainers = [] as object[] } = {}): Pod {
  return {
    metadata: {
      name: 'p',
      namespace: 'd',
      uid,
      generation,
      annotations: { 'kubernetes.io/config.source': 'api' },
    },
    spec: { initContainers, containers: [{ name: 'c', image: 'i', resources }] },
  } as unknown as Pod;
}

function setUp({ others = [] as Pod[], cpuManagerPolicy = 'none' } = {}) {
  const metrics = new MetricsRegistry();
  const allocations = new PodAllocations({
    node: () => ({ status: { allocatable: { cpu: '4', memory: '4Gi' } } }) as unknown as NodeObject,
    events: { event: () => undefined },
    others: () => others,
    cpuManagerPolicy,
    memoryManagerPolicy: 'None',
    observe: resizeMetrics(metrics),
  });
  const lines = (name: string): string[] =>
    metrics
      .text()
      .split('\n')
      .filter((line) => line.startsWith(name));
  return { allocations, lines, metrics };
}

describe('the metrics of resizes', () => {
  it('count each amount of a container that a client has changed, by resource, requirement and operation', () => {
    const { allocations, lines } = setUp();
    const sidecar = (cpu: string): object => ({
      name: 's',
      image: 'i',
      restartPolicy: 'Always',
      resources: { requests: { cpu } },
    });
    const init = (cpu: string): object => ({ name: 'i', image: 'i', resources: { requests: { cpu } } });
    allocations.requested(
      podOf(
        { requests: { cpu: '1', memory: '1Gi' }, limits: { memory: '2Gi' } },
        { initContainers: [sidecar('1'), init('1')] },
      ),
      podOf(
        { requests: { cpu: '2', memory: '1024Mi' }, limits: { cpu: '3', memory: '1Gi' } },
        { initContainers: [sidecar('500m'), init('2')] },
      ),
    );
    assert.deepEqual(lines('kubelet_container_requested_resizes_total').toSorted(), [
      'kubelet_container_requested_resizes_total{operation="add",requirement="limits",resource="cpu"} 1',
      'kubelet_container_requested_resizes_total{operation="decrease",requirement="limits",resource="memory"} 1',
      'kubelet_container_requested_resizes_total{operation="decrease",requirement="requests",resource="cpu"} 1',
      'kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1',
    ]);
  });

  it('count a deferred resize when it fits, by whether the pod was changed again', () => {
    const others = [podOf({ requests: { cpu: '2500m' } }, { uid: 'o' })];
    const { allocations, lines } = setUp({ others });
    allocations.decide(podOf({ requests: { cpu: '1' } }));
    allocations.decide(podOf({ requests: { cpu: '2' } }, { generation: 2 }));
    assert.deepEqual(lines('kubelet_pod_deferred_accepted'), []);
    others.pop();
    allocations.decide(podOf({ requests: { cpu: '2' } }, { generation: 2 }));
    allocations.decide(podOf({ requests: { cpu: '5' } }, { generation: 3 }));
    allocations.decide(podOf({ requests: { cpu: '3' } }, { generation: 4 }));
    assert.deepEqual(lines('kubelet_pod_deferred_accepted'), [
      'kubelet_pod_deferred_accepted_resizes_total{retry_trigger="periodic_retry"} 1',
      'kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pod_updated"} 1',
    ]);
  });

  it('count an infeasible resize once, by its reason', () => {
    const { allocations, lines } = setUp({ cpuManagerPolicy: 'static' });
    const guaranteed = (cpu: string, generation: number): Pod =>
      podOf({ requests: { cpu, memory: '1Gi' }, limits: { cpu, memory: '1Gi' } }, { generation });
    allocations.decide(guaranteed('1', 1));
    allocations.decide(guaranteed('2', 2));
    allocations.decide(guaranteed('2', 2));
    assert.deepEqual(lines('kubelet_pod_infeasible_resizes_total'), [
      'kubelet_pod_infeasible_resizes_total{reason_detail="guaranteed_pod_cpu_manager_static_policy"} 1',
    ]);
  });

  it('measure attempts in milliseconds, and show pods whose resize waits', () => {
    const { allocations, lines, metrics } = setUp();
    allocations.attempted({ tookMs: 70, isDone: true });
    assert.ok(lines('kubelet_pod_resize_duration_milliseconds_bucket{success="true",le="50"} 0').length === 1);
    assert.ok(lines('kubelet_pod_resize_duration_milliseconds_bucket{success="true",le="100"} 1').length === 1);
    const condition = (type: string, reason?: string): Pod =>
      ({ status: { conditions: [{ type, status: 'True', reason }] } }) as unknown as Pod;
    let pods = [condition('PodResizePending', 'Deferred'), condition('PodResizeInProgress')];
    followResizes(metrics, () => pods);
    assert.deepEqual(lines('kubelet_pod_pending_resizes'), ['kubelet_pod_pending_resizes{reason="deferred"} 1']);
    assert.deepEqual(lines('kubelet_pod_in_progress_resizes'), ['kubelet_pod_in_progress_resizes 1']);
    pods = [];
    assert.deepEqual(lines('kubelet_pod_pending_resizes'), []);
  });
});
