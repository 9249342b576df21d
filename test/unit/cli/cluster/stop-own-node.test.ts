/** Stops the node of `orchlet up`, with a control plane in memory. The test completes the deletion of pods like the agent. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { Client } from '../../../../api/client/client.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { nodes, pods } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { openNode, stopPods } from '../../../../cli/cluster/stop-own-node.ts';
import { type ControlPlane, startControlPlane } from '../../../../controlplane/main.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';

interface Node {
  readonly spec: {
    readonly unschedulable?: boolean;
    readonly taints?: readonly { readonly key: string; readonly value?: string }[];
  };
}

describe('the node of orchlet up at its stop', () => {
  let plane: ControlPlane;
  before(async () => {
    plane = await startControlPlane({
      memory: true,
      flags: { controllers: ['-*'], scheduler: false, disableAdmissionPlugins: ['ServiceAccount'] },
    });
  });
  after(() => plane.close());

  const createNode = (name: string): Promise<KubeObject> =>
    plane.client.create(nodes, '', { apiVersion: 'v1', kind: 'Node', metadata: { name } } as unknown as KubeObject);
  const nodeOf = async (name: string): Promise<Node> => (await plane.client.get(nodes, '', name)) as unknown as Node;
  const createPod = (name: string, nodeName: string, annotations: Record<string, string> = {}): Promise<KubeObject> =>
    plane.client.create(pods, 'default', {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: 'default', annotations },
      spec: {
        nodeName,
        automountServiceAccountToken: false,
        terminationGracePeriodSeconds: 60,
        containers: [{ name: 'c', image: 'i' }],
      },
    } as unknown as KubeObject);
  const metadataOf = async (name: string): Promise<KubeObject['metadata']> =>
    (await plane.client.get(pods, 'default', name)).metadata;
  const remove = (name: string): Promise<unknown> =>
    plane.client.delete(pods, 'default', name, { gracePeriodSeconds: 0 });

  it('takes no pods while its own end, within a short grace period each', async () => {
    await createNode('n1');
    await createPod('own', 'n1');
    await createPod('ending', 'n1');
    await plane.client.delete(pods, 'default', 'ending', { gracePeriodSeconds: 60 });
    await createPod('of-a-file', 'n1', { 'kubernetes.io/config.mirror': 'hash' });
    await createPod('elsewhere', 'n2');

    const stopped = stopPods(plane.client, 'n1', { clock: systemClock, logger: silentLogger });
    for (const name of ['own', 'ending'])
      await until(`a short grace period of ${name}`, async () => {
        const { deletionGracePeriodSeconds } = await metadataOf(name);
        return deletionGracePeriodSeconds === 3;
      });
    const { spec } = await nodeOf('n1');
    assert.equal(spec.unschedulable, true);
    const taint = spec.taints?.find(({ key }) => key === 'orchlet.local/stopping');
    assert.equal(taint?.value, 'open', 'a pod that tolerates unschedulable nodes stays away too');

    await remove('own');
    await remove('ending');
    await stopped;
    for (const name of ['of-a-file', 'elsewhere'])
      assert.equal((await metadataOf(name)).deletionTimestamp, undefined, `${name} is not stopped`);

    await openNode(plane.client, 'n1');
    const { unschedulable, taints = [] } = (await nodeOf('n1')).spec;
    assert.deepEqual([unschedulable, taints.some(({ key }) => key === 'orchlet.local/stopping')], [undefined, false]);
  });

  it('stays cordoned where the administrator had cordoned it', async () => {
    await createNode('n3');
    await plane.client.patch(nodes, '', 'n3', { type: 'strategic', body: { spec: { unschedulable: true } } });
    await stopPods(plane.client, 'n3', { clock: systemClock, logger: silentLogger });
    await openNode(plane.client, 'n3');
    assert.equal((await nodeOf('n3')).spec.unschedulable, true);
  });

  it('waits no longer than eight seconds for pods that do not end', async () => {
    await createNode('n4');
    await createPod('stuck', 'n4');
    const clock = new FakeClock();
    const started = clock.monotonic();
    let isOver = false;
    const stopped = stopPods(plane.client, 'n4', { clock, logger: silentLogger }).then(() => (isOver = true));
    for (let turns = 0; !isOver; turns += 1) {
      assert.ok(turns < 10_000, 'it still waits');
      await clock.advance(100);
      await setImmediate();
    }
    await stopped;
    const waitedMs = clock.monotonic() - started;
    assert.ok(waitedMs >= 8000, `${waitedMs} ms`);
    assert.equal((await metadataOf('stuck')).deletionGracePeriodSeconds, 3);
    await remove('stuck');
  });

  it('continues to stop when the API server does not respond, and logs the reason', async () => {
    const lines: unknown[] = [];
    const logger = { ...silentLogger, warn: (fields: unknown, message: string) => lines.push([message, fields]) };
    const client = { ...unanswered } as Client;
    await stopPods(client, 'n1', { clock: systemClock, logger });
    assert.deepEqual(lines, [['Not all pods could be stopped', { err: 'no answer' }]]);
  });
});

const unanswered: Partial<Client> = { get: () => Promise.reject(new Error('no answer')) };
