/**
 * Decides the next steps of a stateful set, ordered or parallel, and computes the identities of its pods and its status. Pure.
 */
import type { V1StatefulSetStatus } from '@kubernetes/client-node';
import { scaledValue } from '../../../api/meta/intstr.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import type { PersistentVolumeClaim, Pod, StatefulSet, Wire } from '../../../api/kinds/kinds.ts';
import { REVISION_HASH } from '../controller-revisions.ts';
import { isPodAvailable, isPodReady, isPodTerminating } from '../pod-state.ts';

type StatefulSetStatus = Wire<V1StatefulSetStatus>;

/** The label of a pod with its own name, by which a service can select it. */
export const POD_NAME_LABEL = 'statefulset.kubernetes.io/pod-name';
const POD_INDEX_LABEL = 'apps.kubernetes.io/pod-index';

/** Returns the ordinal in the name of the pod; `undefined` if the name is not one of the set. */
export function ordinalOf(set: StatefulSet, pod: Pod): number | undefined {
  const prefix = `${set.metadata.name}-`;
  const name = pod.metadata.name ?? '';
  const text = name.startsWith(prefix) ? name.slice(prefix.length) : '';
  return /^(0|[1-9][0-9]*)$/.test(text) ? Number(text) : undefined;
}

const firstOrdinal = (set: StatefulSet): number => set.spec?.ordinals?.start ?? 0;

const replicasOf = (set: StatefulSet): number => set.spec?.replicas ?? 1;

/** Whether the set has a member with that ordinal. */
export function isMember(set: StatefulSet, ordinal: number): boolean {
  return ordinal >= firstOrdinal(set) && ordinal < firstOrdinal(set) + replicasOf(set);
}

/** Returns the name of the claim of a template for the pod with that ordinal. */
function claimName(template: string, set: StatefulSet, ordinal: number): string {
  return `${template}-${set.metadata.name}-${ordinal}`;
}

/** Returns the claims of the pod with that ordinal. They have the labels of their template and of the set's selector. */
export function claimsOf(set: StatefulSet, ordinal: number): PersistentVolumeClaim[] {
  return (set.spec?.volumeClaimTemplates ?? []).map((template) => ({
    ...structuredClone(template),
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      ...template.metadata,
      name: claimName(template.metadata?.name ?? '', set, ordinal),
      namespace: set.metadata.namespace ?? '',
      labels: { ...template.metadata?.labels, ...set.spec?.selector.matchLabels },
    },
  }));
}

/** Sets the identity of a pod that was created from the template. */
export function withIdentity(set: StatefulSet, pod: Pod, ordinal: number, revision: string): Pod {
  const name = `${set.metadata.name}-${ordinal}`;
  const templates = set.spec?.volumeClaimTemplates ?? [];
  const claimed = templates.map((template) => ({
    name: template.metadata?.name ?? '',
    persistentVolumeClaim: { claimName: claimName(template.metadata?.name ?? '', set, ordinal) },
  }));
  const otherVolumes = (pod.spec?.volumes ?? []).filter(
    (volume) => !claimed.some((other) => other.name === volume.name),
  );
  const volumes = [...claimed, ...otherVolumes];
  const subdomain = set.spec?.serviceName ?? '';
  return {
    ...pod,
    metadata: {
      ...pod.metadata,
      name,
      labels: {
        ...pod.metadata.labels,
        [POD_NAME_LABEL]: name,
        [POD_INDEX_LABEL]: String(ordinal),
        [REVISION_HASH]: revision,
      },
    },
    spec: {
      containers: [],
      ...pod.spec,
      hostname: name,
      ...(subdomain === '' ? {} : { subdomain }),
      ...(volumes.length === 0 ? {} : { volumes }),
    },
  };
}

/** The next step of a set. */
export type Action =
  /** Creates claims of a pending pod that are missing. */
  | { readonly kind: 'claims'; readonly ordinal: number }
  /** Sets the label with the pod's name, which an adopted pod may lack. */
  | { readonly kind: 'identify'; readonly pod: Pod }
  | { readonly kind: 'create'; readonly ordinal: number; readonly revision: 'current' | 'update' }
  | { readonly kind: 'delete'; readonly pod: Pod; readonly why: 'failed' | 'succeeded' | 'scale-down' | 'update' };

/** What all decisions read. */
export interface PlanInput {
  readonly set: StatefulSet;
  readonly pods: readonly Pod[];
  readonly currentRevision: string;
  readonly updateRevision: string;
  readonly nowMs: number;
}

/** The maximum number of pods that one reconciliation creates. */
const MAX_CREATES = 500;

const partitionOf = (set: StatefulSet): number => set.spec?.updateStrategy?.rollingUpdate?.partition ?? 0;
const isMonotonic = (set: StatefulSet): boolean => set.spec?.podManagementPolicy !== 'Parallel';

/** Returns the next actions. */
export function planActions(input: PlanInput): Action[] {
  const { set, nowMs } = input;
  const byOrdinal = new Map<number, Pod>();
  for (const pod of input.pods) {
    const ordinal = ordinalOf(set, pod);
    if (ordinal !== undefined) byOrdinal.set(ordinal, pod);
  }
  const monotonic = isMonotonic(set);
  const minReady = set.spec?.minReadySeconds ?? 0;
  const healthy = (pod: Pod | undefined): boolean =>
    pod !== undefined &&
    pod.status?.phase === 'Running' &&
    !isPodTerminating(pod) &&
    isPodAvailable(pod, minReady, nowMs);
  const actions: Action[] = [];
  let creates = 0;
  for (let ordinal = firstOrdinal(set); isMember(set, ordinal); ordinal += 1) {
    const pod = byOrdinal.get(ordinal);
    if (pod === undefined) {
      actions.push({ kind: 'create', ordinal, revision: revisionFor(input, ordinal) });
      creates += 1;
      if (monotonic) return actions;
      if (creates === MAX_CREATES) break;
    } else if ((pod.status?.phase === 'Failed' || pod.status?.phase === 'Succeeded') && !isPodTerminating(pod)) {
      actions.push({ kind: 'delete', pod, why: pod.status.phase === 'Failed' ? 'failed' : 'succeeded' });
      if (monotonic) return actions;
    } else {
      if (pod.status?.phase === 'Pending') actions.push({ kind: 'claims', ordinal });
      if (monotonic && !healthy(pod)) return actions;
      if (ownMember(pod.metadata.labels, POD_NAME_LABEL) !== pod.metadata.name) actions.push({ kind: 'identify', pod });
    }
  }
  const condemned = [...byOrdinal].filter(([ordinal]) => !isMember(set, ordinal)).toSorted(([a], [b]) => b - a);
  // Of the unhealthy pods, an ordered set deletes only the one with the lowest ordinal, and waits for the others.
  const firstUnhealthy = condemned.findLast(([, pod]) => !healthy(pod))?.[1];
  for (const [, pod] of condemned) {
    if (isPodTerminating(pod)) {
      if (monotonic) return actions;
      continue;
    }
    if (monotonic && !healthy(pod) && pod !== firstUnhealthy) return actions;
    actions.push({ kind: 'delete', pod, why: 'scale-down' });
    if (monotonic) return actions;
  }
  if (set.spec?.updateStrategy?.type === 'OnDelete' || set.metadata.deletionTimestamp !== undefined) return actions;
  return [...actions, ...planUpdates(input, byOrdinal, healthy)];
}

/** Updates members from the highest ordinal down to the partition, as many at a time as may be unavailable. */
function planUpdates(
  input: PlanInput,
  byOrdinal: ReadonlyMap<number, Pod>,
  healthy: (pod: Pod | undefined) => boolean,
): Action[] {
  const { set } = input;
  const configured = set.spec?.updateStrategy?.rollingUpdate?.maxUnavailable;
  const maxUnavailable =
    configured === undefined ? 1 : Math.max(1, scaledValue(configured, replicasOf(set), { roundUp: false }));
  const members = [...byOrdinal].filter(([ordinal]) => isMember(set, ordinal)).toSorted(([a], [b]) => b - a);
  let unavailable = replicasOf(set) - members.filter(([, pod]) => healthy(pod)).length;
  const actions: Action[] = [];
  for (const [ordinal, pod] of members) {
    if (ordinal < firstOrdinal(set) + partitionOf(set)) break;
    if (pod.metadata.labels?.[REVISION_HASH] !== input.updateRevision && !isPodTerminating(pod)) {
      if (configured !== undefined && healthy(pod) && unavailable >= maxUnavailable) break;
      if (healthy(pod)) unavailable++;
      actions.push({ kind: 'delete', pod, why: 'update' });
      if (configured === undefined || actions.length >= maxUnavailable) break;
    } else if (configured === undefined && !healthy(pod)) break;
  }
  return actions;
}

/** Decides from which revision a missing pod is created. */
function revisionFor({ set, currentRevision, updateRevision, pods }: PlanInput, ordinal: number): 'current' | 'update' {
  if (currentRevision === updateRevision || set.spec?.updateStrategy?.type === 'OnDelete') return 'update';
  if (set.spec?.updateStrategy?.rollingUpdate === undefined) {
    const currents = pods.filter((pod) => pod.metadata.labels?.[REVISION_HASH] === currentRevision).length;
    return ordinal < firstOrdinal(set) + currents ? 'current' : 'update';
  }
  return ordinal < firstOrdinal(set) + partitionOf(set) ? 'current' : 'update';
}

/** Computes the status. `names` are the names of the two revisions, which it reports. */
export function computeStatus(
  input: PlanInput,
  names: { readonly current: string; readonly update: string },
): StatefulSetStatus {
  const { set, pods, nowMs } = input;
  const minReady = set.spec?.minReadySeconds ?? 0;
  const created = pods.filter((pod) => (pod.status?.phase ?? '') !== '' || pod.metadata.uid !== undefined);
  const ready = created.filter((pod) => pod.status?.phase === 'Running' && isPodReady(pod));
  const ofRevision = (revision: string): number =>
    created.filter((pod) => !isPodTerminating(pod) && pod.metadata.labels?.[REVISION_HASH] === revision).length;
  const updated = ofRevision(input.updateRevision);
  const replicas = replicasOf(set);
  const done =
    input.currentRevision === input.updateRevision ||
    (set.spec?.updateStrategy?.type !== 'OnDelete' &&
      updated === replicas &&
      ready.length === replicas &&
      created.length === replicas);
  const current = ofRevision(input.currentRevision);
  const collisionCount = set.status?.collisionCount;
  return {
    observedGeneration: set.metadata.generation ?? 0,
    replicas: created.length,
    ...(ready.length === 0 ? {} : { readyReplicas: ready.length }),
    availableReplicas: ready.filter((pod) => isPodAvailable(pod, minReady, nowMs)).length,
    ...(done ? { currentReplicas: updated } : current === 0 ? {} : { currentReplicas: current }),
    ...(updated === 0 ? {} : { updatedReplicas: updated }),
    currentRevision: done ? names.update : names.current,
    updateRevision: names.update,
    collisionCount: collisionCount ?? 0,
  };
}
