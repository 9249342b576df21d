/** Metrics of pods, their cgroups, volumes and the PLEG have the label values of the kubelet. */
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { PodCgroups } from '../../../../../agent/host/cgroups/pod-cgroups.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { measuredSyncer, relistMetrics } from '../../../../../agent/pods/metrics/measured-syncer.ts';
import { measuredCgroups, podEventMetrics } from '../../../../../agent/pods/metrics/state-metrics.ts';
import { volumeMeasureMetrics } from '../../../../../agent/resources/statistics/storage-metrics.ts';
import { StorageUsage } from '../../../../../agent/resources/statistics/storage-usage.ts';
import { volumeMetrics } from '../../../../../agent/volumes/volume-metrics.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [] } } as unknown as Pod;

function setUp() {
  const metrics = new MetricsRegistry();
  /** Returns the series of a name, without those of buckets. */
  const shown = (name: string): string[] =>
    metrics
      .text()
      .split('\n')
      .filter((line) => line.startsWith(name) && !line.includes('_bucket{') && !line.includes('_sum'));
  return { metrics, clock: new FakeClock(), shown };
}

describe('the metrics of the agent', () => {
  it('show restarted pods from the start on', () => {
    const { metrics, shown } = setUp();
    podEventMetrics(metrics);
    assert.deepEqual(shown('kubelet_restarted_pods_total'), [
      'kubelet_restarted_pods_total{static=""} 0',
      'kubelet_restarted_pods_total{static="true"} 0',
    ]);
  });

  it('distinguish the creation of the cgroup of a pod from its updates', async () => {
    const { metrics, clock, shown } = setUp();
    const done = (): Promise<void> => Promise.resolve();
    const cgroups = measuredCgroups({ ensure: done, remove: done } as unknown as PodCgroups, metrics, clock);
    await cgroups.ensure(pod, { keepRoom: false });
    await cgroups.ensure(pod, { keepRoom: false });
    await cgroups.remove(pod);
    await cgroups.ensure(pod, { keepRoom: false });
    assert.deepEqual(shown('kubelet_cgroup_manager_duration_seconds_count'), [
      'kubelet_cgroup_manager_duration_seconds_count{operation_type="create"} 2',
      'kubelet_cgroup_manager_duration_seconds_count{operation_type="destroy"} 1',
      'kubelet_cgroup_manager_duration_seconds_count{operation_type="update"} 1',
    ]);
  });

  it('measure the clean-up of terminated pods', async () => {
    const { metrics, clock, shown } = setUp();
    const syncer = measuredSyncer(
      {
        sync: () => Promise.resolve({ ended: true, errors: [], retryAtMs: undefined }),
        terminate: () => Promise.resolve(),
        cleanUp: () => clock.advance(300),
      },
      { metrics, clock, status: () => undefined, startups: { workerStarted: () => undefined } },
    );
    await syncer.cleanUp(pod, new AbortController().signal);
    assert.deepEqual(shown('kubelet_pod_worker_duration_seconds_count'), [
      'kubelet_pod_worker_duration_seconds_count{operation_type="terminated"} 1',
    ]);
    assert.match(
      metrics.text(),
      /operation_type="terminated",le="0.25"\} 0\n.*operation_type="terminated",le="0.5"\} 1/,
    );
  });

  it('measure mounts as a whole and readings of single pods', () => {
    const { metrics, clock, shown } = setUp();
    volumeMetrics(metrics).mounted({ name: 'v', emptyDir: {} } as never, { tookMs: 10, isDone: true });
    assert.deepEqual(shown('volume_operation_total_seconds_count'), [
      'volume_operation_total_seconds_count{operation_name="overall_volume_mount",plugin_name="kubernetes.io/empty-dir"} 1',
    ]);
    relistMetrics(metrics, clock).onPodRead(5);
    assert.deepEqual(shown('kubelet_pleg_pod_relist_duration_seconds_count'), [
      'kubelet_pleg_pod_relist_duration_seconds_count 1',
    ]);
  });

  it('measure how long volumes take to be measured, by a walk or by their driver', async () => {
    const { metrics, clock, shown } = setUp();
    const root = temporaryFolder();
    await mkdir(join(root, 'v'));
    const measured = { capacityBytes: 1, availableBytes: 1, usedBytes: 0, inodes: 1, inodesFree: 1, inodesUsed: 0 };
    const usage = new StorageUsage({
      runtime: {
        containerStats: () => Promise.resolve([]),
        imageFilesystems: () => Promise.resolve({ images: [], containers: [] }),
      },
      clock,
      logger: silentLogger,
      rootDirectory: root,
      podLogsDirectory: join(root, 'logs'),
      volumes: {
        podVolumes: () => [
          { name: 'walked', path: join(root, 'v'), ephemeral: true },
          {
            name: 'asked',
            path: '/v',
            ephemeral: false,
            measure: () => Promise.resolve({ driver: 'csi.example.com', ...measured }),
          },
        ],
      },
      pods: () => [pod],
      periodMs: 60_000,
      onVolume: volumeMeasureMetrics(metrics),
    });
    await usage.pods();
    assert.deepEqual(shown('kubelet_volume_metric_collection_duration_seconds_count'), [
      'kubelet_volume_metric_collection_duration_seconds_count{metric_source="csi.example.com"} 1',
      'kubelet_volume_metric_collection_duration_seconds_count{metric_source="du"} 1',
    ]);
  });
});
