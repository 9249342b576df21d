/**
 * Protects storage objects that are in use, with a finalizer: claims until no pod uses them, volumes until no claim is bound to
 * them, and volume attributes classes until no claim or volume refers to them.
 */
import type { KubeObject } from '../../../api/meta/object.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { PersistentVolume, PersistentVolumeClaim, Pod } from '../../../api/kinds/kinds.ts';
import {
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  volumeAttributesClasses,
  type ResourceOf,
} from '../../../api/client/resources.ts';
import { ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { isPodFinished } from '../pod-state.ts';

const CLAIM_FINALIZER = 'kubernetes.io/pvc-protection';
const VOLUME_FINALIZER = 'kubernetes.io/pv-protection';
const ATTRIBUTES_FINALIZER = 'kubernetes.io/vac-protection';

/** Returns the claims that a pod mounts, including those of its ephemeral volumes. */
export function claimNames(pod: Pod): string[] {
  return (pod.spec?.volumes ?? []).flatMap((volume) => {
    if (volume.persistentVolumeClaim !== undefined) return [volume.persistentVolumeClaim.claimName];
    return volume.ephemeral === undefined ? [] : [`${pod.metadata.name}-${volume.name}`];
  });
}

/**
 * Runs the controller that keeps claims while pods use them. A pod uses its claims from its binding to a node until it has
 * finished.
 */
export const runClaimProtection: RunController = (environment, signal) => {
  const podCache = environment.informers.for(pods);
  podCache.addIndex('claims', (pod) => claimNames(pod).map((claim) => `${pod.metadata.namespace}/${claim}`));
  // Whether a pod uses the claim. A pod without a node does not use its claims yet.
  const isUsed = (claim: KubeObject): boolean =>
    podCache
      .byIndex('claims', `${claim.metadata.namespace}/${claim.metadata.name}`)
      .some((pod) => (pod.spec?.nodeName ?? '') !== '' && !isPodFinished(pod));
  const { loop, cache } = protect(environment, persistentVolumeClaims, CLAIM_FINALIZER, isUsed);
  const podChanged = (pod: Pod): void => {
    for (const claim of claimNames(pod)) loop.queue.add(`${pod.metadata.namespace}/${claim}`);
  };
  podCache.addHandler({ update: (_, pod) => (isPodFinished(pod) ? podChanged(pod) : undefined), delete: podChanged });
  return loop.run(signal, cache, podCache);
};

/** Runs the controller that keeps volumes while they are in use. A volume is in use while its phase is Bound. */
export const runVolumeProtection: RunController = (environment, signal) => {
  const { loop, cache } = protect(
    environment,
    persistentVolumes,
    VOLUME_FINALIZER,
    (volume: PersistentVolume) => volume.status?.phase === 'Bound',
  );
  return loop.run(signal, cache);
};

/**
 * Runs the controller that keeps VolumeAttributesClasses while they are in use. A class is in use while a claim or volume
 * names it, as current or as target.
 */
export const runAttributesClassProtection: RunController = (environment, signal) => {
  const claims = environment.informers.for(persistentVolumeClaims);
  const volumes = environment.informers.for(persistentVolumes);
  const namedByClaim = ({ spec, status }: PersistentVolumeClaim): string[] => {
    const { currentVolumeAttributesClassName: current, modifyVolumeStatus } = status ?? {};
    return [spec?.volumeAttributesClassName, current, modifyVolumeStatus?.targetVolumeAttributesClassName].filter(
      (name): name is string => (name ?? '') !== '',
    );
  };
  const namedByVolume = ({ spec }: PersistentVolume): string[] =>
    (spec?.volumeAttributesClassName ?? '') === '' ? [] : [spec?.volumeAttributesClassName ?? ''];
  claims.addIndex('attributes-class', namedByClaim);
  volumes.addIndex('attributes-class', namedByVolume);
  const isUsed = ({ metadata: { name = '' } }: KubeObject): boolean =>
    claims.byIndex('attributes-class', name).length > 0 || volumes.byIndex('attributes-class', name).length > 0;
  const { loop, cache } = protect(environment, volumeAttributesClasses, ATTRIBUTES_FINALIZER, isUsed);
  const freed = (names: readonly string[]): void => names.forEach((name) => loop.queue.add(name));
  claims.addHandler({
    update: (previous) => freed(namedByClaim(previous)),
    delete: (claim) => freed(namedByClaim(claim)),
  });
  volumes.addHandler({
    update: (previous) => freed(namedByVolume(previous)),
    delete: (volume) => freed(namedByVolume(volume)),
  });
  return loop.run(signal, cache, claims, volumes);
};

/** Returns a loop that adds the finalizer to each object, and removes it from a deleted one that is not used. */
function protect<T extends KubeObject>(
  environment: ControllerEnvironment,
  resource: ResourceOf<T>,
  finalizer: string,
  isUsed: (object: T) => boolean,
): { readonly loop: ReconcileLoop; readonly cache: Informer<T> } {
  const { client, informers } = environment;
  const cache = informers.for(resource);
  const loop = new ReconcileLoop(environment, {
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const object = cache.get(namespace, name);
      if (object === undefined) return;
      const { finalizers = [], deletionTimestamp } = object.metadata;
      let wanted = finalizers;
      if (deletionTimestamp === undefined && !finalizers.includes(finalizer)) wanted = [...finalizers, finalizer];
      else if (deletionTimestamp !== undefined && finalizers.includes(finalizer) && !isUsed(object))
        wanted = finalizers.filter((other) => other !== finalizer);
      if (wanted === finalizers) return;
      await tolerate(
        client.update(resource, { ...object, metadata: { ...object.metadata, finalizers: wanted } }),
        isNotFound,
      );
    },
  });
  loop.follow(cache);
  return { loop, cache };
}
