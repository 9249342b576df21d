/** Creates the claims of ephemeral volumes. A claim is owned by its pod and deleted with it. */
import type { PersistentVolumeClaim, Pod } from '../../../api/kinds/kinds.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import { persistentVolumeClaims, pods } from '../../../api/client/resources.ts';
import { keyOf, ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { controllerOf, controllerReference } from '../owner-references.ts';
import { isPodFinished } from '../pod-state.ts';

type Volume = NonNullable<NonNullable<Pod['spec']>['volumes']>[number];

/** Returns the claim of an ephemeral volume of the pod. Pure. */
function claimFor(pod: Pod, volume: Volume): PersistentVolumeClaim {
  const template = volume.ephemeral?.volumeClaimTemplate;
  const { labels, annotations } = template?.metadata ?? {};
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      name: `${pod.metadata.name}-${volume.name}`,
      namespace: pod.metadata.namespace ?? '',
      ...(labels === undefined ? {} : { labels: { ...labels } }),
      ...(annotations === undefined ? {} : { annotations: { ...annotations } }),
      ownerReferences: [controllerReference(pod, pods)],
    },
    ...(template?.spec === undefined ? {} : { spec: structuredClone(template.spec) }),
  };
}

const ephemeralVolumes = (pod: Pod): Volume[] =>
  (pod.spec?.volumes ?? []).filter(({ ephemeral }) => ephemeral !== undefined);

/** Creates the claims. An existing claim of another owner is not changed: the pod gets an event and is retried. */
export const runEphemeralVolumes: RunController = (environment, signal) => {
  const { client, informers, recorder } = environment;
  const podCache = informers.for(pods);
  const claims = informers.for(persistentVolumeClaims);
  const ensureClaim = async (pod: Pod, wanted: PersistentVolumeClaim): Promise<void> => {
    const { namespace = '', name = '' } = wanted.metadata;
    const existing = claims.get(namespace, name);
    if (existing !== undefined) {
      if (controllerOf(existing)?.uid === pod.metadata.uid) return;
      throw new Error(`PVC ${keyOf(existing)} was not created for pod ${keyOf(pod)} (pod is not owner)`);
    }
    try {
      await client.create(persistentVolumeClaims, namespace, wanted);
    } catch (error) {
      throw new Error(`create PVC ${name}: ${(error as Error).message}`, { cause: error });
    }
  };
  const loop = new ReconcileLoop(environment, {
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const pod = podCache.get(namespace, name);
      if (pod === undefined || pod.metadata.deletionTimestamp !== undefined || isPodFinished(pod)) return;
      for (const volume of ephemeralVolumes(pod)) {
        try {
          await ensureClaim(pod, claimFor(pod, volume));
        } catch (error) {
          const message = `ephemeral volume ${volume.name}: ${(error as Error).message}`;
          recorder.event(referenceTo(pod, pods), 'Warning', 'FailedBinding', message);
          throw error;
        }
      }
    },
  });
  const podChanged = (pod: Pod): void => {
    if (ephemeralVolumes(pod).length > 0) loop.enqueue(pod);
  };
  podCache.addHandler({ add: podChanged });
  claims.addHandler({
    delete(claim) {
      const owner = controllerOf(claim);
      if (owner?.kind === 'Pod') loop.queue.add(`${claim.metadata.namespace}/${owner.name}`);
    },
  });
  return loop.run(signal, podCache, claims);
};
