/**
 * Implements the writes of scheduling decisions: bindings, volumes, device claims, conditions, nominations and evictions of
 * victims.
 */
import { isConflict, isNotFound } from '../../api/meta/status-error.ts';
import { formatTime, type Clock } from '../../api/machinery/clock.ts';
import type { PersistentVolumeClaim, Pod, ResourceClaim } from '../../api/kinds/kinds.ts';
import { persistentVolumeClaims, persistentVolumes, pods } from '../../api/client/resources.ts';
import type { TypedClient } from '../../api/client/typed-client.ts';
import { claimWrites } from './devices/claim-writes.ts';
import type { ReservedClaim } from './devices/pod-devices.ts';
import type { PodInfo } from './pod-info.ts';
import type { VolumeDecision } from './volumes.ts';
import { SELECTED_NODE_ANNOTATION } from '../../api/meta/well-known-labels.ts';

interface SchedulingFailure {
  readonly reason: string;
  readonly message: string;
  readonly nominated: string | undefined;
}

/** Each method rejects with the error of the API, unless it says otherwise. */
export interface PodWrites {
  bind(pod: PodInfo, node: string): Promise<void>;
  bindVolumes(decision: VolumeDecision, node: string): Promise<void>;
  /**
   * Writes the condition PodScheduled. `nominated` also sets the nomination, and an empty text clears it. Nothing is written if
   * nothing changes.
   */
  markUnschedulable(pod: Pod, failure: SchedulingFailure): Promise<void>;
  /** Writes which node the pod will probably run on. An empty text means none. Nothing is written if nothing changes. */
  nominate(pod: Pod, node: string): Promise<void>;
  /**
   * Sets the condition DisruptionTarget and deletes the pod, unless it is being deleted already. A pod that is gone, or was
   * replaced, is no error.
   */
  evict(victim: PodInfo): Promise<void>;
  /**
   * Writes the allocation of a claim if it is new, and reserves the claim for the pod. A claim for extended resources is
   * created first, and the status of the pod names it. Rejects with a plain `Error` if the claim was replaced, deleted,
   * allocated or deallocated meanwhile.
   */
  reserve(claim: ReservedClaim, pod: Pod): Promise<ResourceClaim>;
  /** Writes nothing if the claim is gone, or is not reserved for the pod. Deletes a claim for extended resources. */
  unreserve(claim: ResourceClaim, pod: Pod): Promise<void>;
  /**
   * Removes the allocation and the reservations of a claim, unless the claim has changed meanwhile. Deletes a claim for
   * extended resources.
   */
  free(claim: ResourceClaim): Promise<void>;
}

/** Returns the writes through a client that acts as the scheduler. */
export function podWrites(client: TypedClient, clock: Clock): PodWrites {
  const now = (): string => formatTime(clock.now());
  return {
    async bind({ pod }, node) {
      const { name = '', namespace = '', uid = '' } = pod.metadata;
      const binding = {
        apiVersion: 'v1',
        kind: 'Binding',
        metadata: { name, namespace, uid },
        target: { apiVersion: 'v1', kind: 'Node', name: node },
      };
      await client.untyped.create(pods, namespace, binding, { name, subresource: 'binding' });
    },

    bindVolumes: (decision, node) => bindVolumes(client, decision, node),
    markUnschedulable: (pod, failure) => markUnschedulable(client, pod, failure, now()),
    async nominate(pod, node) {
      if (node === (pod.status?.nominatedNodeName ?? '')) return;
      await patchStatus(client, pod, { nominatedNodeName: node === '' ? null : node });
    },

    ...claimWrites(client, clock),

    async evict({ pod }) {
      if (pod.metadata.deletionTimestamp !== undefined) return;
      const condition = {
        type: 'DisruptionTarget',
        status: 'True',
        reason: 'PreemptionByScheduler',
        message: 'default-scheduler: preempting to accommodate a higher priority pod',
        observedGeneration: pod.metadata.generation,
        lastTransitionTime: now(),
      };
      const { name = '', namespace = '', uid } = pod.metadata;
      try {
        await patchStatus(client, pod, { conditions: [condition] });
        await client.delete(pods, namespace, name, uid === undefined ? {} : { preconditions: { uid } });
      } catch (error) {
        if (!isNotFound(error) && !isConflict(error)) throw error;
      }
    },
  };
}

/** Reserves the matched volumes for their claims, and requests volumes on `node` for the other claims from provisioners. */
async function bindVolumes(client: TypedClient, { matches, provision }: VolumeDecision, node: string): Promise<void> {
  for (const { claim, volume } of matches) {
    const patch = {
      metadata: {
        resourceVersion: volume.metadata.resourceVersion,
        annotations: { 'pv.kubernetes.io/bound-by-controller': 'yes' },
      },
      spec: { claimRef: referenceTo(claim) },
    };
    await client.patch(persistentVolumes, '', volume.metadata.name ?? '', { type: 'merge', body: patch });
  }
  for (const { metadata } of provision) {
    const patch = { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: node } } };
    await client.patch(persistentVolumeClaims, metadata.namespace ?? '', metadata.name ?? '', {
      type: 'merge',
      body: patch,
    });
  }
}

async function markUnschedulable(
  client: TypedClient,
  pod: Pod,
  { reason, message, nominated }: SchedulingFailure,
  now: string,
): Promise<void> {
  const present = pod.status?.conditions?.find((condition) => condition.type === 'PodScheduled');
  const isSame = present?.status === 'False' && present.reason === reason && present.message === message;
  const nominates = nominated !== undefined && nominated !== (pod.status?.nominatedNodeName ?? '');
  if (isSame && !nominates) return;
  const condition = {
    type: 'PodScheduled',
    status: 'False',
    reason,
    message,
    observedGeneration: pod.metadata.generation,
    lastProbeTime: null,
    lastTransitionTime: present?.status === 'False' ? present.lastTransitionTime : now,
  };
  await patchStatus(client, pod, {
    conditions: [condition],
    ...(nominates ? { nominatedNodeName: nominated === '' ? null : nominated } : {}),
  });
}

async function patchStatus(client: TypedClient, { metadata }: Pod, status: object): Promise<void> {
  const { name = '', namespace = '', uid } = metadata;
  await client.patch(pods, namespace, name, {
    type: 'strategic',
    body: { metadata: { uid }, status },
    subresource: 'status',
  });
}

function referenceTo({ metadata }: PersistentVolumeClaim) {
  const { name, namespace, uid, resourceVersion } = metadata;
  return { apiVersion: 'v1', kind: 'PersistentVolumeClaim', name, namespace, uid, resourceVersion };
}
