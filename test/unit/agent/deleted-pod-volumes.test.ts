/** A deleted pod is over when its containers are, and is removed from the API server after its volumes, as on the kubelet. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { keepAlive } from '../../../api/machinery/clock.ts';
import { nodes, pods, serviceAccounts } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { startControlPlane } from '../../../controlplane/main.ts';
import { startAgentInMemory } from '../../fakes/agent-in-memory.ts';
import { until } from '../../until.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const alive = keepAlive();
after(() => alive.cancel());

const FINALIZER = 'example.com/hold';
const phaseOf = (pod: KubeObject): string => (pod['status'] as { phase?: string } | undefined)?.phase ?? '';

test('the final phase of a deleted pod is sent before its volumes are removed, and its deletion afterwards', async () => {
  const directory = temporaryFolder();
  const plane = await startControlPlane({ memory: true });
  const kubeconfig = join(directory, 'kubeconfig');
  await writeFile(kubeconfig, plane.kubeconfig);
  const agent = await startAgentInMemory(directory, { kubeconfig });
  const { client } = plane;
  const stop = new AbortController();
  try {
    await until('the node', () => client.get(nodes, '', 'n1').catch(() => undefined));
    await until('the service account', () => client.get(serviceAccounts, 'default', 'default').catch(() => undefined));
    const created = await client.create(pods, 'default', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'a', finalizers: [FINALIZER] },
      spec: {
        terminationGracePeriodSeconds: 1,
        containers: [
          {
            name: 'c',
            image: 'shell:1',
            imagePullPolicy: 'Never',
            command: ['sleep', '1000'],
            volumeMounts: [{ name: 'data', mountPath: '/data' }],
          },
        ],
        volumes: [{ name: 'data', emptyDir: {} }],
      },
    } as unknown as KubeObject);
    const get = (): Promise<KubeObject> => client.get(pods, 'default', 'a');
    await until('the pod', async () => (phaseOf(await get()) === 'Running' ? true : undefined));
    const volume = join(directory, 'root/pods', created.metadata.uid ?? '', 'volumes/kubernetes.io~empty-dir/data');
    assert.ok(existsSync(volume));
    // Removing many files takes longer than a request.
    for (let folder = 0; folder < 100; folder++) {
      await mkdir(join(volume, String(folder)));
      await Promise.all(
        Array.from({ length: 100 }, (_none, file) => writeFile(join(volume, String(folder), String(file)), 'x')),
      );
    }
    await client.delete(pods, 'default', 'a', { gracePeriodSeconds: 1 });
    const seen: (readonly [string, boolean])[] = [];
    for await (const { object } of client.watch(pods, { namespace: 'default', signal: stop.signal })) {
      if (phaseOf(object) !== 'Failed') continue;
      const isDeleted = object.metadata.deletionGracePeriodSeconds === 0;
      seen.push([isDeleted ? 'deleted' : 'failed', existsSync(volume)]);
      if (isDeleted) break;
    }
    assert.deepEqual(seen, [
      ['failed', true],
      ['deleted', false],
    ]);
    await client.patch(pods, 'default', 'a', { type: 'merge', body: { metadata: { finalizers: null } } });
    await until('the deletion of the pod', () =>
      get().then(
        () => undefined,
        () => true,
      ),
    );
  } finally {
    stop.abort();
    await agent.close();
    await plane.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
