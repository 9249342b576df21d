/**
 * Filters by the pod's claims and disks: their use by other pods, the nodes that bound volumes allow, those where unbound
 * claims can be bound, and the number of volumes that a node can hold.
 */
import { ownMember } from '../../../api/meta/own-member.ts';
import type { PersistentVolume } from '../../../api/kinds/kinds.ts';
import type { Cluster } from '../cluster-state.ts';
import type { NodeInfo } from '../node-info.ts';
import type { PodInfo } from '../pod-info.ts';
import { unresolvable, unschedulable, type FilterPlugin } from '../plugin.ts';
import { claimsOf, decide, volumeFitsNode } from '../volumes.ts';
import { BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL } from '../../../api/meta/well-known-labels.ts';

/**
 * Rejects all nodes if another pod uses a claim of the pod with mode ReadWriteOncePod, and nodes where another pod uses one
 * of its disks and at least one of the two pods may write to it.
 */
export const volumeRestrictions: FilterPlugin = {
  name: 'VolumeRestrictions',
  prepare(pod, cluster) {
    const oncePodClaims = pod.claimNames.filter((name) =>
      cluster.claim(pod.namespace, name)?.spec?.accessModes?.includes('ReadWriteOncePod'),
    );
    if (oncePodClaims.length === 0 && pod.disks.size === 0) return undefined;
    const uses = (other: PodInfo): boolean =>
      other.namespace === pod.namespace && other.claimNames.some((name) => oncePodClaims.includes(name));
    const isUsedOn = (node: NodeInfo): boolean => node.pods.values().some(uses);
    let users = 0;
    if (oncePodClaims.length > 0)
      for (const node of cluster.nodes) for (const other of node.pods.values()) if (uses(other)) users += 1;
    return {
      check(node) {
        if (pod.disks.size > 0 && node.pods.values().some((other) => haveConflict(pod, other)))
          return unschedulable('node(s) had no available disk');
        if (users === 0) return undefined;
        // One user of the volume excludes every node. Evicting it helps only on its own node.
        return isUsedOn(node) ? unschedulable(CLAIM_IN_USE) : unresolvable(CLAIM_IN_USE);
      },
      moved({ pod: other, by }) {
        if (uses(other)) users += by;
      },
    };
  },
};

const CLAIM_IN_USE =
  'node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod';

/** Whether both pods use the same disk, and at least one of them may write to it. */
function haveConflict(pod: PodInfo, other: PodInfo): boolean {
  if (other.disks.size === 0) return false;
  for (const [disk, readOnly] of pod.disks) {
    const otherReadOnly = other.disks.get(disk);
    if (otherReadOnly !== undefined && !(readOnly && otherReadOnly)) return true;
  }
  return false;
}

/** Rejects nodes on which a CSI driver of the pod's volumes would exceed its limit. Shared volumes count once. */
export const nodeVolumeLimits: FilterPlugin = {
  name: 'NodeVolumeLimits',
  prepare(pod, cluster) {
    const wanted = attachedBy(pod, cluster);
    if (wanted.size === 0) return undefined;
    const check = (node: NodeInfo) => {
      const drivers = cluster.csiNode(node.name)?.spec?.drivers ?? [];
      const limited = drivers.filter((driver) => driver.allocatable?.count !== undefined);
      if (limited.length === 0) return undefined;
      const handles = new Map(wanted);
      for (const other of node.pods.values())
        for (const [handle, driver] of attachedBy(other, cluster)) handles.set(handle, driver);
      for (const { name, allocatable } of limited) {
        if (![...wanted.values()].includes(name)) continue;
        const count = [...handles.values()].filter((driver) => driver === name).length;
        if (count > (allocatable?.count ?? Infinity)) return unschedulable('node(s) exceed max volume count');
      }
      return undefined;
    };
    return { check };
  },
};

/**
 * Returns the CSI driver of each volume of the pod's claims, by a key that is the same for all pods with this volume. An
 * unbound claim counts for the provisioner of its storage class.
 */
function attachedBy(pod: PodInfo, cluster: Cluster): Map<string, string> {
  const drivers = new Map<string, string>();
  for (const name of pod.claimNames) {
    const claim = cluster.claim(pod.namespace, name);
    const csi = cluster.volume(claim?.spec?.volumeName ?? '')?.spec?.csi;
    if (csi !== undefined) drivers.set(`${csi.driver}/${csi.volumeHandle}`, csi.driver);
    else if (claim !== undefined && (claim.spec?.volumeName ?? '') === '') {
      const driver = cluster.storageClass(claim.spec?.storageClassName ?? '')?.provisioner;
      if (driver !== undefined) drivers.set(`${driver}/${pod.namespace}/${name}`, driver);
    }
  }
  return drivers;
}

/**
 * Rejects nodes that a bound volume does not allow, or where an unbound claim finds no volume and none can be provisioned.
 * Refuses the pod as a whole if one of its claims cannot be used.
 */
export const volumeBinding: FilterPlugin = {
  name: 'VolumeBinding',
  prepare(pod, cluster) {
    if (pod.claimNames.length === 0) return undefined;
    const claims = claimsOf(pod, cluster);
    if (typeof claims === 'string') return unresolvable(claims);
    const check = (node: NodeInfo) => {
      const reasons = new Set<string>();
      for (const claim of claims.bound) {
        const volume = cluster.volume(claim.spec?.volumeName ?? '');
        if (volume === undefined)
          reasons.add('node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)');
        else if (!volumeFitsNode(volume, node)) reasons.add("node(s) didn't match PersistentVolume's node affinity");
      }
      if (decide(claims.waiting, node, cluster) === undefined) {
        reasons.add("node(s) didn't find available persistent volumes to bind");
      }
      return reasons.size === 0 ? undefined : unresolvable(...reasons);
    };
    return { check };
  },
};

/** Maps each label of zones and regions to its present name. Before Kubernetes 1.17 they had other names. */
const TOPOLOGY_LABELS: ReadonlyMap<string, string> = new Map([
  [BETA_ZONE_LABEL, ZONE_LABEL],
  [BETA_REGION_LABEL, REGION_LABEL],
  [ZONE_LABEL, ZONE_LABEL],
  [REGION_LABEL, REGION_LABEL],
]);

interface Topology {
  readonly key: string;
  readonly values: readonly string[];
}

/** Returns the zones and regions of a volume. A label with an empty zone in its list is ignored. */
function topologiesOf(volume: PersistentVolume | undefined): Topology[] {
  return [...TOPOLOGY_LABELS.keys()].flatMap((key) => {
    const values = ownMember(volume?.metadata.labels, key)
      ?.split('__')
      .map((zone) => zone.trim());
    return values === undefined || values.includes('') ? [] : [{ key, values }];
  });
}

/** Rejects nodes outside the zone and region in the labels of a bound volume. Nodes without any such label pass. */
export const volumeZone: FilterPlugin = {
  name: 'VolumeZone',
  prepare(pod, cluster) {
    const wanted = pod.claimNames.flatMap((name) =>
      topologiesOf(cluster.volume(cluster.claim(pod.namespace, name)?.spec?.volumeName ?? '')),
    );
    if (wanted.length === 0) return undefined;
    const isIn = ({ labels }: NodeInfo, { key, values }: Topology): boolean => {
      const value = ownMember(labels, key) ?? ownMember(labels, TOPOLOGY_LABELS.get(key) ?? key);
      return value !== undefined && values.includes(value);
    };
    // A node without topology labels is in a cluster of a single zone.
    const hasNoTopology = ({ labels }: NodeInfo): boolean =>
      [...TOPOLOGY_LABELS.keys()].every((key) => ownMember(labels, key) === undefined);
    return {
      check: (node) =>
        hasNoTopology(node) || wanted.every((one) => isIn(node, one))
          ? undefined
          : unresolvable('node(s) had no available volume zone'),
    };
  },
};
