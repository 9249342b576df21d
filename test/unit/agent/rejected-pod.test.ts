/** A pod that is bound to a node on which it does not fit is rejected, as by the kubelet. */
import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
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

interface Status {
  readonly phase?: string;
}

test('the status of a rejected pod has the reason and the QoS class, and neither conditions nor containers', async () => {
  const directory = temporaryFolder();
  const plane = await startControlPlane({ memory: true, flags: { scheduler: false } });
  const kubeconfig = join(directory, 'kubeconfig');
  await writeFile(kubeconfig, plane.kubeconfig);
  const agent = await startAgentInMemory(directory, { kubeconfig });
  const { client } = plane;
  try {
    await until('the node', () => client.get(nodes, '', 'n1').catch(() => undefined));
    await until('the service account', () => client.get(serviceAccounts, 'default', 'default').catch(() => undefined));
    await client.create(pods, 'default', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'big' },
      spec: { containers: [{ name: 'c', image: 'shell:1', resources: { requests: { cpu: '1000000000000' } } }] },
    } as unknown as KubeObject);
    const binding = { metadata: { name: 'big', namespace: 'default' }, target: { kind: 'Node', name: 'n1' } };
    await client.create(pods, 'default', binding as unknown as KubeObject, { name: 'big', subresource: 'binding' });
    const status = await until('the rejection of the pod', async () => {
      const found = (await client.get(pods, 'default', 'big'))['status'] as Status | undefined;
      return found?.phase === 'Failed' ? found : undefined;
    });
    const { startTime, message, ...rest } = status as unknown as Record<string, unknown>;
    assert.match(String(startTime), /^\d{4}-/);
    assert.match(
      String(message),
      /^Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000000000000,/,
    );
    assert.deepEqual(rest, { phase: 'Failed', reason: 'OutOfcpu', qosClass: 'Burstable', observedGeneration: 1 });
  } finally {
    await agent.close();
    await plane.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
});
