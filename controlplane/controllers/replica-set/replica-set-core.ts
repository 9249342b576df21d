/** Decides which pods of replica sets and replication controllers are created and deleted, and computes the status. Pure. */
import type { V1ReplicaSetStatus } from '@kubernetes/client-node';
import type { Pod, Wire } from '../../../api/kinds/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import {
  compareForDeletion,
  isPodActive,
  isPodAvailable,
  isPodReady,
  isPodTerminating,
  isPodFinished,
} from '../pod-state.ts';

/** The maximum number of pods that one reconciliation creates or deletes. */
const BURST = 500;

/** The status as it is stored. */
export type ReplicaStatus = Wire<V1ReplicaSetStatus>;

/** How many pods to create, or which to delete. */
interface ReplicaPlan {
  readonly create: number;
  readonly remove: readonly Pod[];
}

/**
 * Decides how many pods are created and which are deleted. `related` are the pods of all replica sets of the same deployment,
 * which count as crowding a node.
 */
export function computeReplicaPlan(options: {
  readonly replicas: number;
  readonly pods: readonly Pod[];
  readonly related: readonly Pod[];
  readonly nowMs: number;
}): ReplicaPlan {
  const active = options.pods.filter(isPodActive);
  const missing = options.replicas - active.length;
  if (missing >= 0) return { create: Math.min(missing, BURST), remove: [] };
  const surplus = Math.min(-missing, BURST);
  if (surplus >= active.length) return { create: 0, remove: active };
  const perNode = new Map<string, number>();
  for (const pod of options.related) {
    if (!isPodActive(pod)) continue;
    const node = pod.spec?.nodeName ?? '';
    perNode.set(node, (perNode.get(node) ?? 0) + 1);
  }
  const crowding = (pod: Pod): number => perNode.get(pod.spec?.nodeName ?? '') ?? 0;
  return {
    create: 0,
    remove: active.toSorted((a, b) => compareForDeletion(a, b, crowding, options.nowMs)).slice(0, surplus),
  };
}

interface StatusInput {
  readonly previous: ReplicaStatus | undefined;
  readonly generation: number;
  readonly minReadySeconds: number;
  readonly templateLabels: Readonly<Record<string, string>>;
  readonly pods: readonly Pod[];
  /** The error of creating or deleting pods, and which of the two failed. */
  readonly failure: { readonly reason: 'FailedCreate' | 'FailedDelete'; readonly message: string } | undefined;
  readonly now: string;
  readonly nowMs: number;
  /** Whether the status has `terminatingReplicas`, which replication controllers lack. */
  readonly withTerminating: boolean;
}

/** Computes the status. It has the condition ReplicaFailure as long as `failure` is given. */
export function computeReplicaStatus(input: StatusInput): ReplicaStatus {
  const active = input.pods.filter(isPodActive);
  const labels = Object.entries(input.templateLabels);
  const fullyLabeled = active.filter((pod) =>
    labels.every(([key, value]) => ownMember(pod.metadata.labels, key) === value),
  );
  const ready = active.filter(isPodReady);
  const available = ready.filter((pod) => isPodAvailable(pod, input.minReadySeconds, input.nowMs));
  const terminating = input.pods.filter((pod) => isPodTerminating(pod) && !isPodFinished(pod)).length;
  const others = (input.previous?.conditions ?? []).filter((condition) => condition.type !== 'ReplicaFailure');
  const present = input.previous?.conditions?.find((condition) => condition.type === 'ReplicaFailure');
  const conditions =
    input.failure === undefined
      ? others
      : [
          ...others,
          present ?? { type: 'ReplicaFailure', status: 'True', lastTransitionTime: input.now, ...input.failure },
        ];
  return {
    replicas: active.length,
    ...nonZero('fullyLabeledReplicas', fullyLabeled.length),
    ...nonZero('readyReplicas', ready.length),
    ...nonZero('availableReplicas', available.length),
    ...(input.withTerminating ? { terminatingReplicas: terminating } : {}),
    observedGeneration: input.generation,
    ...(conditions.length === 0 ? {} : { conditions }),
  };
}

function nonZero<Key extends string>(key: Key, value: number): { [K in Key]?: number } {
  return value === 0 ? {} : ({ [key]: value } as { [K in Key]?: number });
}

/** Returns the milliseconds until the next ready pod becomes available, or `undefined` if none is waiting. */
export function nextAvailabilityMs(pods: readonly Pod[], minReadySeconds: number, nowMs: number): number | undefined {
  if (minReadySeconds === 0) return undefined;
  let next: number | undefined;
  for (const pod of pods) {
    if (!isPodActive(pod) || !isPodReady(pod) || isPodAvailable(pod, minReadySeconds, nowMs)) continue;
    const ready = pod.status?.conditions?.find((condition) => condition.type === 'Ready');
    const waitMs = Date.parse(ready?.lastTransitionTime ?? '') + minReadySeconds * 1000 - nowMs;
    if (Number.isFinite(waitMs) && (next === undefined || waitMs < next)) next = waitMs;
  }
  return next;
}
