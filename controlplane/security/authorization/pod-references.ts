/** Collects the objects that a pod's spec, and the resource claims of its status, refer to in its own namespace. */
import type { Pod } from '../../../api/kinds/kinds.ts';

/** Names in the pod's own namespace. */
interface PodReferences {
  readonly secrets: ReadonlySet<string>;
  readonly configMaps: ReadonlySet<string>;
  readonly claims: ReadonlySet<string>;
  readonly resourceClaims: ReadonlySet<string>;
}

type Volume = NonNullable<NonNullable<Pod['spec']>['volumes']>[number];

interface Names {
  readonly secrets: Set<string>;
  readonly configMaps: Set<string>;
  readonly claims: Set<string>;
  readonly resourceClaims: Set<string>;
}

/** Returns the names of the objects that the volumes, environments, image pulls and resource claims of a pod refer to. */
export function podReferences(pod: Pod): PodReferences {
  const names: Names = { secrets: new Set(), configMaps: new Set(), claims: new Set(), resourceClaims: new Set() };
  const { spec } = pod;
  if (spec === undefined) return names;
  for (const pull of spec.imagePullSecrets ?? []) add(names.secrets, pull.name);
  for (const list of [spec.initContainers, spec.containers, spec.ephemeralContainers]) {
    for (const container of list ?? []) {
      for (const source of container.envFrom ?? []) {
        add(names.secrets, source.secretRef?.name);
        add(names.configMaps, source.configMapRef?.name);
      }
      for (const variable of container.env ?? []) {
        add(names.secrets, variable.valueFrom?.secretKeyRef?.name);
        add(names.configMaps, variable.valueFrom?.configMapKeyRef?.name);
      }
    }
  }
  for (const volume of spec.volumes ?? []) addVolume(names, volume, pod.metadata.name ?? '');
  for (const claim of spec.resourceClaims ?? []) add(names.resourceClaims, claim.resourceClaimName);
  for (const claim of pod.status?.resourceClaimStatuses ?? []) add(names.resourceClaims, claim.resourceClaimName);
  add(names.resourceClaims, pod.status?.extendedResourceClaimStatus?.resourceClaimName);
  return names;
}

function add(set: Set<string>, name: string | null | undefined): void {
  if (name !== undefined && name !== null && name !== '') set.add(name);
}

function addVolume(names: Names, volume: Volume, podName: string): void {
  add(names.secrets, volume.secret?.secretName);
  add(names.configMaps, volume.configMap?.name);
  add(names.claims, volume.persistentVolumeClaim?.claimName);
  if (volume.ephemeral !== undefined && volume.ephemeral !== null) names.claims.add(`${podName}-${volume.name}`);
  add(names.secrets, volume.csi?.nodePublishSecretRef?.name);
  add(names.secrets, volume.flexVolume?.secretRef?.name);
  add(names.secrets, volume.azureFile?.secretName);
  for (const source of [volume.cephfs, volume.rbd, volume.iscsi, volume.scaleIO, volume.storageos])
    add(names.secrets, source?.secretRef?.name);
  for (const source of volume.projected?.sources ?? []) {
    add(names.secrets, source.secret?.name);
    add(names.configMaps, source.configMap?.name);
  }
}
