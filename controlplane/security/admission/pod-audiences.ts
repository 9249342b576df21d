/**
 * Finds the audiences for which the node of a pod may request tokens of the pod's service account: those of its projected
 * volumes, and those that the drivers of its CSI volumes ask for.
 */
import type { Pod } from '../../../api/kinds/kinds.ts';
import {
  csiDrivers,
  persistentVolumeClaims,
  persistentVolumes,
  type ResourceOf,
} from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Listers } from '../../model/listers.ts';

/** Returns the check whether the node of a pod may request a token of an audience. The audience of the API server is `''`. */
export function podAudiences(listers: Listers): (pod: Pod, audience: string) => Promise<boolean> {
  const find = async <T extends KubeObject>(resource: ResourceOf<T>, namespace: string, name: string) => {
    const lister = listers.of(resource);
    return lister.get(namespace, name) ?? (await lister.live(namespace, name));
  };
  // An informer starts when it is requested, so all are requested before the first pod.
  for (const resource of [csiDrivers, persistentVolumeClaims, persistentVolumes])
    listers.of<KubeObject>(resource as ResourceOf<KubeObject>);
  const driverOfClaim = async (namespace: string, name: string): Promise<string | undefined> => {
    const claim = await find(persistentVolumeClaims, namespace, name);
    const volumeName = claim?.spec?.volumeName ?? '';
    if (claim === undefined || volumeName === '') return undefined;
    const volume = await find(persistentVolumes, '', volumeName);
    // A user may name any volume in a claim. Only a volume that is bound to the claim counts.
    return volume?.spec?.claimRef?.uid === claim.metadata.uid ? volume?.spec?.csi?.driver : undefined;
  };
  return async ({ metadata, spec }, audience) => {
    const namespace = metadata.namespace ?? '';
    for (const volume of spec?.volumes ?? []) {
      for (const { serviceAccountToken: token } of volume.projected?.sources ?? [])
        if (token !== undefined && token !== null && (token.audience ?? '') === audience) return true;
      const claimName =
        volume.ephemeral === undefined ? volume.persistentVolumeClaim?.claimName : `${metadata.name}-${volume.name}`;
      const driver =
        volume.csi?.driver ?? (claimName === undefined ? undefined : await driverOfClaim(namespace, claimName));
      if (driver === undefined) continue;
      const { tokenRequests = [] } = (await find(csiDrivers, '', driver))?.spec ?? {};
      if (tokenRequests.some((request) => (request.audience ?? '') === audience)) return true;
    }
    return false;
  };
}
