/**
 * Evaluates the claims of a pod for the scheduler. Bound claims restrict the pod to nodes. Unbound claims of classes that wait
 * for a consumer are matched with a free volume or left to a provisioner. Pure.
 */
import { fromLabelSelector } from '../../api/meta/selector.ts';
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../api/kinds/kinds.ts';
import type { VolumeLookup } from './cluster-state.ts';
import type { NodeInfo } from './node-info.ts';
import type { PodInfo } from './pod-info.ts';
import { matchesNodeSelector, type NodeSelector } from '../../api/kinds/node-selection.ts';
import { ownMember } from '../../api/meta/own-member.ts';
import { amountOf } from './pod-requests.ts';
import { SELECTED_NODE_ANNOTATION, BIND_COMPLETED_ANNOTATION } from '../../api/meta/well-known-labels.ts';

const NO_PROVISIONER = 'kubernetes.io/no-provisioner';

interface PodClaims {
  readonly bound: readonly PersistentVolumeClaim[];
  /** The unbound claims of classes that bind when a pod uses them. */
  readonly waiting: readonly PersistentVolumeClaim[];
}

/** The decision for the waiting claims of a pod on a node. */
export interface VolumeDecision {
  readonly matches: readonly { readonly claim: PersistentVolumeClaim; readonly volume: PersistentVolume }[];
  readonly provision: readonly PersistentVolumeClaim[];
}

/** Returns the claims, or a text that says why no node suits. */
export function claimsOf(pod: PodInfo, lookup: VolumeLookup): PodClaims | string {
  const bound: PersistentVolumeClaim[] = [];
  const waiting: PersistentVolumeClaim[] = [];
  let immediate = false;
  for (const name of pod.claimNames) {
    const claim = lookup.claim(pod.namespace, name);
    if (claim === undefined) return missing(pod, name);
    if (claim.metadata.deletionTimestamp !== undefined) return `persistentvolumeclaim "${name}" is being deleted`;
    if (claim.status?.phase === 'Lost') {
      return `persistentvolumeclaim "${name}" bound to non-existent persistentvolume "${claim.spec?.volumeName ?? ''}"`;
    }
    if (isBound(claim)) bound.push(claim);
    else if (waitsForConsumer(claim, lookup)) waiting.push(claim);
    else immediate = true;
  }
  return immediate ? 'pod has unbound immediate PersistentVolumeClaims' : { bound, waiting };
}

function missing(pod: PodInfo, name: string): string {
  const direct = pod.pod.spec?.volumes?.some((volume) => volume.persistentVolumeClaim?.claimName === name) === true;
  if (direct) return `persistentvolumeclaim "${name}" not found`;
  return `waiting for ephemeral volume controller to create the persistentvolumeclaim "${name}"`;
}

function isBound(claim: PersistentVolumeClaim): boolean {
  return (claim.spec?.volumeName ?? '') !== '' && claim.metadata.annotations?.[BIND_COMPLETED_ANNOTATION] !== undefined;
}

function classOf(claim: PersistentVolumeClaim, lookup: VolumeLookup): StorageClass | undefined {
  return lookup.storageClass(claim.spec?.storageClassName ?? '');
}

function waitsForConsumer(claim: PersistentVolumeClaim, lookup: VolumeLookup): boolean {
  return (claim.spec?.volumeName ?? '') === '' && classOf(claim, lookup)?.volumeBindingMode === 'WaitForFirstConsumer';
}

/** Whether the node affinity of the volume allows the node. */
export function volumeFitsNode(volume: PersistentVolume, node: NodeInfo): boolean {
  const required = volume.spec?.nodeAffinity?.required;
  return required === undefined || matchesNodeSelector(required as NodeSelector, node);
}

/**
 * Decides which volumes the claims get on a node. Returns `undefined` if there is neither a volume nor a provisioner for a
 * claim on the node, or if an earlier decision selected another node for a claim.
 */
export function decide(
  claims: readonly PersistentVolumeClaim[],
  node: NodeInfo,
  lookup: VolumeLookup,
): VolumeDecision | undefined {
  const matches: { claim: PersistentVolumeClaim; volume: PersistentVolume }[] = [];
  const provision: PersistentVolumeClaim[] = [];
  const taken = new Set<string>();
  for (const claim of claims) {
    const selected = claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION];
    if (selected !== undefined && selected !== node.name) return undefined;
    const volume = selected === undefined ? volumeFor(claim, node, lookup, taken) : undefined;
    if (volume !== undefined) {
      taken.add(volume.metadata.name ?? '');
      matches.push({ claim, volume });
    } else if (canProvision(classOf(claim, lookup), node)) provision.push(claim);
    else return undefined;
  }
  return { matches, provision };
}

function canProvision(storageClass: StorageClass | undefined, node: NodeInfo): boolean {
  if (storageClass === undefined || ['', NO_PROVISIONER].includes(storageClass.provisioner)) return false;
  const topologies = storageClass.allowedTopologies ?? [];
  if (topologies.length === 0) return true;
  return topologies.some((term) =>
    (term.matchLabelExpressions ?? []).every(({ key, values }) => values.includes(ownMember(node.labels, key) ?? '')),
  );
}

/**
 * Returns the volume that is reserved for the claim, or else the smallest one that suits it on the node. Returns `undefined` if
 * none suits, or if the node cannot use the reserved one.
 */
function volumeFor(
  claim: PersistentVolumeClaim,
  node: NodeInfo,
  lookup: VolumeLookup,
  taken: ReadonlySet<string>,
): PersistentVolume | undefined {
  let best: PersistentVolume | undefined;
  for (const volume of lookup.volumes()) {
    if (taken.has(volume.metadata.name ?? '') || !isUsable(volume, claim)) continue;
    // No other volume may be bound instead, so a reserved volume of another node excludes this one.
    if (isReservedFor(volume, claim)) return volumeFitsNode(volume, node) ? volume : undefined;
    if (!suits(volume, claim) || !volumeFitsNode(volume, node)) continue;
    if (best === undefined || capacityOf(volume) < capacityOf(best)) best = volume;
  }
  return best;
}

const capacityOf = (volume: PersistentVolume): number => amountOf('storage', volume.spec?.capacity?.['storage'] ?? '0');

function isReservedFor({ spec }: PersistentVolume, { metadata }: PersistentVolumeClaim): boolean {
  const owner = spec?.claimRef;
  if (owner?.name !== metadata.name || owner?.namespace !== metadata.namespace) return false;
  return (owner?.uid ?? '') === '' || owner?.uid === metadata.uid;
}

/** Whether the volume has the mode and the size that the claim requests, and is not being deleted. */
function isUsable(volume: PersistentVolume, claim: PersistentVolumeClaim): boolean {
  if (volume.metadata.deletionTimestamp !== undefined) return false;
  if ((volume.spec?.volumeMode ?? 'Filesystem') !== (claim.spec?.volumeMode ?? 'Filesystem')) return false;
  return capacityOf(volume) >= amountOf('storage', claim.spec?.resources?.requests?.['storage'] ?? '0');
}

/** Whether a volume that is not reserved may be bound to the claim. */
function suits({ spec, status, metadata }: PersistentVolume, { spec: wanted }: PersistentVolumeClaim): boolean {
  if (spec?.claimRef !== undefined || status?.phase !== 'Available') return false;
  if ((spec?.storageClassName ?? '') !== (wanted?.storageClassName ?? '')) return false;
  if (!(wanted?.accessModes ?? []).every((mode) => spec?.accessModes?.includes(mode))) return false;
  const selector = wanted?.selector as Parameters<typeof fromLabelSelector>[0];
  return selector === undefined || fromLabelSelector(selector).matches(metadata.labels);
}
