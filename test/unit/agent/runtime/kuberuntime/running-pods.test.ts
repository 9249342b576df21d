import assert from 'node:assert/strict';
import { it } from 'node:test';
import { runningPods } from '../../../../../agent/runtime/kuberuntime/running-pods.ts';
import type { ContainerStatus, SandboxStatus } from '../../../../../agent/runtime/runtime.ts';

it('lists running pods with the ids of the images that their containers run, as the kubelet does', async () => {
  const pod = { uid: 'u', name: 'web', namespace: 'default' };
  const container = { name: 'main', sandboxId: 's', image: 'example.org/web:1', imageId: 'sha256:1', state: 'running' };
  const [found] = await runningPods({
    listSandboxes: () => Promise.resolve([{ id: 's', pod, state: 'ready' } as unknown as SandboxStatus]),
    listContainers: () =>
      Promise.resolve([container, { ...container, name: 'gone', state: 'exited' }] as unknown as ContainerStatus[]),
  });
  assert.deepEqual(found?.spec.containers, [{ name: 'main', image: 'sha256:1', resources: {} }]);
});
