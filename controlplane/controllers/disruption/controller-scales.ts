/**
 * Finds the number of replicas that the controllers of pods want: from informers for built-in kinds, and from the scale
 * subresource for others.
 */
import { parseApiVersion, type KubeObject, type OwnerReference } from '../../../api/meta/object.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { Informers } from '../../../api/client/informer.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import {
  deployments,
  groupVersion,
  replicaSets,
  replicationControllers,
  statefulSets,
} from '../../../api/client/resources.ts';
import type { ControllerEnvironment } from '../controller.ts';
import { controllerOf } from '../owner-references.ts';
import { groupResourceName } from '../../../api/meta/group-resource.ts';

interface ControllerScale {
  readonly uid: string;
  readonly replicas: number;
}

interface Scale extends KubeObject {
  readonly spec?: { readonly replicas?: number };
}

/**
 * Returns the scale of the controller of pods; `undefined` if it does not exist. Rejects if the kind is not served or has no
 * scale.
 */
type ScaleOf = (reference: OwnerReference, namespace: string) => Promise<ControllerScale | undefined>;

/** Returns the informers of the built-in kinds whose replicas count. */
export function scaledOwners(informers: Informers) {
  return [
    informers.for(replicaSets),
    informers.for(deployments),
    informers.for(statefulSets),
    informers.for(replicationControllers),
  ] as const;
}

/** Returns the lookup by owner reference. `owners` are the informers of the built-in controllers. */
export function controllerScales(
  { client, catalog }: Pick<ControllerEnvironment, 'client' | 'catalog'>,
  owners: ReturnType<typeof scaledOwners>,
): ScaleOf {
  const builtIn = ({ apiVersion, kind, name, uid }: OwnerReference, namespace: string): ControllerScale | undefined => {
    const { group = '' } = parseApiVersion(apiVersion) ?? {};
    const informer = owners.find(({ resource: one }) => one.kind === kind && one.group === group);
    const owner = informer?.get(namespace, name);
    return owner?.metadata.uid === uid ? { uid, replicas: owner.spec?.replicas ?? 1 } : undefined;
  };
  const byScale = async (
    { apiVersion, kind, name, uid }: OwnerReference,
    namespace: string,
  ): Promise<ControllerScale | undefined> => {
    const gv = parseApiVersion(apiVersion);
    const info = catalog
      .resources()
      .find((one) => one.kind === kind && one.group === gv?.group && one.version === gv.version);
    if (info === undefined) throw new Error(`no matches for kind "${kind}" in version "${apiVersion}"`);
    if (!info.subresources.some((subresource) => subresource.name === 'scale'))
      throw new Error(`${groupResourceName(info)} does not implement the scale subresource`);
    const found = groupVersion(info.group, info.version).namespaced<Scale>(info.resource, info.kind);
    const scale = await tolerate(client.get(found, namespace, name, { subresource: 'scale' }), isNotFound);
    return scale === undefined || scale.metadata.uid !== uid ? undefined : { uid, replicas: scale.spec?.replicas ?? 0 };
  };
  return async (reference, namespace) => {
    const found = builtIn(reference, namespace);
    if (found === undefined) return byScale(reference, namespace);
    const [sets] = owners;
    const setOwner =
      reference.kind === 'ReplicaSet'
        ? controllerOf(sets.get(namespace, reference.name) ?? { metadata: {} })
        : undefined;
    // The replicas of a deployment count, and not those of its replica sets. Owners of any other kind leave that to their sets.
    return (setOwner?.kind === 'Deployment' ? builtIn(setOwner, namespace) : undefined) ?? found;
  };
}

/**
 * Resolves to the sum of the replicas of all controllers of the pods. Pods without a controller do not count. Rejects if a
 * controller does not exist or has no scale.
 */
export async function totalScale(members: readonly Pod[], scaleOf: ScaleOf): Promise<number> {
  const scales = new Map<string, number>();
  const counted = new Set<string>();
  for (const pod of members) {
    const reference = controllerOf(pod);
    if (reference === undefined || counted.has(reference.uid)) continue;
    counted.add(reference.uid);
    const scale = await scaleOf(reference, pod.metadata.namespace ?? '');
    if (scale === undefined) throw new Error(`found no controllers for pod "${pod.metadata.name}"`);
    scales.set(scale.uid, scale.replicas);
  }
  return [...scales.values()].reduce((sum, replicas) => sum + replicas, 0);
}
