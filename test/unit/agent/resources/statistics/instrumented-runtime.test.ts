import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  ContainerConfig,
  ContainerId,
  Runtime,
  SandboxConfig,
  SandboxId,
} from '../../../../../agent/runtime/runtime.ts';
import {
  instrumentRuntime,
  startErrorMetrics,
} from '../../../../../agent/resources/statistics/instrumented-runtime.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

test('started containers are counted by their type', async () => {
  const metrics = new MetricsRegistry();
  const runtime = instrumentRuntime(
    {
      createContainer: (_sandbox: SandboxId, _config: SandboxConfig, { kind }: ContainerConfig) =>
        Promise.resolve(kind),
      startContainer: () => Promise.resolve(),
    } as unknown as Runtime,
    metrics,
    new FakeClock(),
  );
  for (const kind of ['regular', 'init', 'init', 'ephemeral'] as const) {
    await runtime.createContainer('s' as SandboxId, {} as SandboxConfig, { kind, annotations: {} } as ContainerConfig);
    await runtime.startContainer(kind as string as ContainerId);
  }
  const lines = metrics.text().match(/^kubelet_started_containers_total\{.*$/gm);
  assert.deepEqual(lines?.toSorted(), [
    'kubelet_started_containers_total{container_type="container"} 1',
    'kubelet_started_containers_total{container_type="ephemeral_container"} 1',
    'kubelet_started_containers_total{container_type="init_container"} 2',
  ]);
});

test('failed starts are counted by their reason, failed sandboxes by their handler', async () => {
  const metrics = new MetricsRegistry();
  const failed = startErrorMetrics(metrics);
  for (const reason of ['ErrImagePull', 'ErrImagePull', 'RunContainerError']) failed('init', reason);
  const runtime = instrumentRuntime(
    { runSandbox: () => Promise.reject(new Error('no network')) } as unknown as Runtime,
    metrics,
    new FakeClock(),
  );
  await assert.rejects(runtime.runSandbox({ runtimeHandler: 'kata', namespaces: {} } as SandboxConfig));
  const lines = metrics.text().match(/^kubelet_(started_containers|run_podsandbox)_errors_total\{.*$/gm);
  assert.deepEqual(lines?.toSorted(), [
    'kubelet_run_podsandbox_errors_total{runtime_handler="kata"} 1',
    'kubelet_started_containers_errors_total{container_type="init_container",code="ErrImagePull"} 2',
    'kubelet_started_containers_errors_total{container_type="init_container",code="RunContainerError"} 1',
  ]);
});
