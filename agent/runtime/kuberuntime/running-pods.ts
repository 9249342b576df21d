/** Lists the pods that run according to the container runtime, including those that the agent does not manage. */
import type { Pod } from '../../base/model/pod.ts';
import type { Runtime } from '../runtime.ts';

/** Returns the running pods. Each has its name, namespace, uid and running containers, and nothing else. */
export async function runningPods(runtime: Pick<Runtime, 'listSandboxes' | 'listContainers'>): Promise<readonly Pod[]> {
  const byUid = new Map<string, Pod>();
  const sandboxes = await runtime.listSandboxes();
  const containers = (await runtime.listContainers()).filter(({ state }) => state === 'running');
  const bySandbox = Map.groupBy(containers, ({ sandboxId }) => sandboxId);
  for (const sandbox of sandboxes) {
    const members = bySandbox.get(sandbox.id) ?? [];
    if ((sandbox.state !== 'ready' && members.length === 0) || byUid.has(sandbox.pod.uid)) continue;
    byUid.set(sandbox.pod.uid, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: sandbox.pod.name, namespace: sandbox.pod.namespace, uid: sandbox.pod.uid },
      spec: {
        containers: members.map((container) => ({ name: container.name, image: container.imageId, resources: {} })),
      },
      status: {},
    } as unknown as Pod);
  }
  return [...byUid.values()];
}
