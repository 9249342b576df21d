/** Deletes all files of a released volume with the deprecated policy Recycle, by a pod. */
import type { PersistentVolume, Pod } from '../../../api/kinds/kinds.ts';
import { pods } from '../../../api/client/resources.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import { isAlreadyExists, isNotFound, tolerate } from '../../../api/meta/status-error.ts';

const NAMESPACE = 'default';
const IMAGE = 'registry.k8s.io/build-image/debian-base:bookworm-v1.0.6';
const SCRUB = 'test -e /scrub && find /scrub -mindepth 1 -delete && test -z "$(ls -A /scrub)" || exit 1';
const TIMEOUT_SECONDS = 60;

/** What became of the pod that deletes the files. */
type Recycling = 'scrubbing' | 'scrubbed' | { readonly failed: string };

/** Starts the pod or returns its progress; it is called again until the pod has finished. */
export async function recycle(client: TypedClient, volume: PersistentVolume): Promise<Recycling> {
  const source = volume.spec?.nfs === undefined ? { hostPath: volume.spec?.hostPath } : { nfs: volume.spec.nfs };
  if (source.hostPath === undefined && !('nfs' in source))
    return { failed: 'No recycler plugin found for the volume!' };
  const name = `recycler-for-${volume.metadata.name}`;
  const pod = await find(client, name);
  if (pod === undefined) {
    await start(client, name, source);
    return 'scrubbing';
  }
  switch (pod.status?.phase) {
    case 'Succeeded':
      await remove(client, name);
      return 'scrubbed';
    case 'Failed':
      await remove(client, name);
      return { failed: `Recycle failed: ${pod.status.message ?? 'pod failed, pod.Status.Message unknown'}` };
    default:
      return 'scrubbing';
  }
}

async function find(client: TypedClient, name: string): Promise<Pod | undefined> {
  const { items } = await client.list(pods, { namespace: NAMESPACE, fieldSelector: `metadata.name=${name}` });
  return items[0];
}

async function start(client: TypedClient, name: string, source: object): Promise<void> {
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: NAMESPACE },
    spec: {
      restartPolicy: 'Never',
      activeDeadlineSeconds: TIMEOUT_SECONDS,
      volumes: [{ name: 'vol', ...source }],
      containers: [
        {
          name: 'pv-recycler',
          image: IMAGE,
          command: ['/bin/sh', '-c', SCRUB],
          volumeMounts: [{ name: 'vol', mountPath: '/scrub' }],
        },
      ],
    },
  };
  await tolerate(client.create(pods, NAMESPACE, pod as Pod), isAlreadyExists);
}

async function remove(client: TypedClient, name: string): Promise<void> {
  await tolerate(client.delete(pods, NAMESPACE, name), isNotFound);
}
