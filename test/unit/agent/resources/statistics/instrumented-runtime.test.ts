import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import type { Runtime, SandboxConfig } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';
import {
  imageVolumeMetrics,
  instrumentRuntime,
  startMetrics,
} from '../../../../../agent/resources/statistics/instrumented-runtime.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

test('starts of pods and containers are counted, and those that failed', () => {
  const metrics = new MetricsRegistry();
  const starts = startMetrics(metrics);
  const ofUsers = { spec: { hostUsers: false } } as Pod;
  for (const pod of [ofUsers, { spec: {} } as Pod, { spec: { hostUsers: true } } as Pod]) starts.pod(pod);
  starts.sandboxFailed();
  starts.podFailed(ofUsers);
  starts.podFailed({ spec: {} } as Pod);
  for (const kind of ['regular', 'init', 'init', 'ephemeral'] as const) starts.container(kind);
  for (const reason of ['ErrImagePull', 'ErrImagePull', 'RunContainerError']) starts.containerFailed('init', reason);
  const lines = metrics.text().match(/^kubelet_started_.*$/gm);
  assert.deepEqual(lines?.toSorted(), [
    'kubelet_started_containers_errors_total{code="ErrImagePull",container_type="init_container"} 2',
    'kubelet_started_containers_errors_total{code="RunContainerError",container_type="init_container"} 1',
    'kubelet_started_containers_total{container_type="container"} 1',
    'kubelet_started_containers_total{container_type="ephemeral_container"} 1',
    'kubelet_started_containers_total{container_type="init_container"} 2',
    'kubelet_started_pods_errors_total 1',
    'kubelet_started_pods_total 3',
    'kubelet_started_user_namespaced_pods_errors_total 1',
    'kubelet_started_user_namespaced_pods_total 1',
  ]);
});

test('sandboxes that fail are counted and measured by their handler', async () => {
  const metrics = new MetricsRegistry();
  const runtime = instrumentRuntime(
    { runSandbox: () => Promise.reject(new Error('no network')) } as unknown as Runtime,
    metrics,
    new FakeClock(),
  );
  await assert.rejects(runtime.runSandbox({ runtimeHandler: 'kata', namespaces: {} } as SandboxConfig));
  const lines = metrics.text().match(/^kubelet_run_podsandbox_(errors_total|duration_seconds_count)\{.*$/gm);
  assert.deepEqual(lines?.toSorted(), [
    'kubelet_run_podsandbox_duration_seconds_count{runtime_handler="kata"} 1',
    'kubelet_run_podsandbox_errors_total{runtime_handler="kata"} 1',
  ]);
});

test('durations of operations have the buckets of Go, digit by digit', async () => {
  const metrics = new MetricsRegistry();
  const runtime = instrumentRuntime(
    { startContainer: () => Promise.resolve() } as unknown as Runtime,
    metrics,
    new FakeClock(),
  );
  await runtime.startContainer('c' as ContainerId);
  const buckets = [...metrics.text().matchAll(/^kubelet_runtime_operations_duration_seconds_bucket\{.*le="([^"]+)"/gm)];
  assert.deepEqual(buckets.map(([, limit]) => limit).slice(-5), [
    '47.6837158203125',
    '119.20928955078125',
    '298.0232238769531',
    '745.0580596923828',
    '+Inf',
  ]);
});

test('image volumes are counted when their container was created, or could not be', () => {
  const metrics = new MetricsRegistry();
  const report = imageVolumeMetrics(metrics);
  report(2, 'mounted');
  report(1, 'failed');
  const lines = metrics.text().match(/^kubelet_image_volume_.*$/gm);
  assert.deepEqual(lines?.toSorted(), [
    'kubelet_image_volume_mounted_errors_total 1',
    'kubelet_image_volume_mounted_succeed_total 2',
    'kubelet_image_volume_requested_total 3',
  ]);
});
