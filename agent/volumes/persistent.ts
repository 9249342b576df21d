/**
 * Persistent volume claims on this node: from the claim to its volume, and where that stands on the host. hostPath and local
 * volumes are used in place, NFS is mounted; CSI volumes go through their driver (`csi/`).
 */
import type { Client } from '../../api/machinery/client.ts';
import { persistentVolumeClaims, persistentVolumes } from '../../api/machinery/resources.ts';
import type { Wire, Pod } from '../core-types.ts';
import type { V1PersistentVolume, V1PersistentVolumeClaim } from '@kubernetes/client-node';

export type PersistentVolume = Omit<Wire<V1PersistentVolume>, 'metadata'> & {
  metadata: { name: string; annotations?: Record<string, string> };
};
type Claim = Omit<Wire<V1PersistentVolumeClaim>, 'metadata'> & { metadata: { name: string; uid: string } };

export interface BoundVolume {
  readonly volume: PersistentVolume;
  readonly readOnly: boolean;
}

/** The volume of a claim that a pod names. Throws with the reference's words while it is not bound. */
export async function resolveClaim(
  client: Client | undefined,
  pod: Pod,
  claimName: string,
  readOnly: boolean,
): Promise<BoundVolume> {
  if (client === undefined) throw new Error('there is no API server to ask for persistent volume claims');
  const namespace = pod.metadata.namespace;
  const claim = (await client.get(persistentVolumeClaims, namespace, claimName)) as unknown as Claim;
  const volumeName = claim.spec?.volumeName ?? '';
  if (volumeName === '' || claim.status?.phase !== 'Bound') {
    throw new Error(
      `PVC ${namespace}/${claimName} has non-bound phase ("${claim.status?.phase ?? ''}") or empty pvc.Spec.VolumeName ("${volumeName}")`,
    );
  }
  const volume = (await client.get(persistentVolumes, '', volumeName)) as unknown as PersistentVolume;
  const reference = volume.spec?.claimRef;
  if (reference?.uid !== claim.metadata.uid) {
    throw new Error(`PV ${volumeName} is not bound to PVC ${namespace}/${claimName}: its claimRef has another UID`);
  }
  return { volume, readOnly: readOnly || volume.spec?.accessModes?.every((mode) => mode === 'ReadOnlyMany') === true };
}
