/** Builds pods that request resources, for tests of the resource managers. */
import type { Pod } from '../../agent/base/model/pod.ts';

type Amounts = Readonly<Record<string, string>>;

export interface ResourcePodContainer {
  readonly name?: string;
  readonly limits: Amounts;
  readonly requests?: Amounts;
  readonly sidecar?: true;
}

const container = ({ name = 'main', limits, requests, sidecar }: ResourcePodContainer) => ({
  name,
  image: 'image',
  resources: { limits: { ...limits }, requests: { ...(requests ?? limits) } },
  ...(sidecar === undefined ? {} : { restartPolicy: 'Always' }),
});

/** Returns a pod with this uid, which is its name as well. */
export function resourcePod(
  uid: string,
  containers: readonly ResourcePodContainer[],
  initContainers: readonly ResourcePodContainer[] = [],
): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: uid, namespace: 'default', uid },
    spec: { containers: containers.map(container), initContainers: initContainers.map(container) },
  };
}

/** Returns a Guaranteed pod with this number of exclusive CPUs. */
export const exclusivePod = (uid: string, cpus: number | string, memory = '1Gi'): Pod =>
  resourcePod(uid, [{ limits: { cpu: String(cpus), memory } }]);
