/**
 * Computes a deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure in
 * kube-controller-manager's words. Pure.
 */
import type { V1DeploymentCondition, V1DeploymentStatus } from '@kubernetes/client-node';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Deployment, ReplicaSet, Wire } from '../../../api/kinds/kinds.ts';
import { maxUnavailableOf, sizeOf, totalOf } from './replica-sets.ts';
import { INT32_MAX } from '../../../api/meta/integers.ts';

/** A condition as it is stored. */
export type DeploymentCondition = Wire<V1DeploymentCondition>;
/** The status as it is stored. */
export type DeploymentStatus = Wire<V1DeploymentStatus>;

/** The `progressDeadlineSeconds` that stands for no deadline, as in kube-controller-manager. */
const NO_DEADLINE = INT32_MAX;

/** Returns the condition of that type, or undefined. */
export function conditionOf(status: DeploymentStatus | undefined, type: string): DeploymentCondition | undefined {
  return status?.conditions?.find((condition) => condition.type === type);
}

/** A condition without its times. */
type ConditionText = Record<'type' | 'status' | 'reason' | 'message', string>;

/** Returns the condition with `nowMs` as both of its times. */
export function newCondition(condition: ConditionText, nowMs: number): DeploymentCondition {
  const now = formatTime(nowMs);
  const { type, status, reason, message } = condition;
  return { type, status, lastUpdateTime: now, lastTransitionTime: now, reason, message };
}

/** Returns the list with the condition in it. A condition with the same status and reason stays, message included. */
export function withCondition(
  conditions: readonly DeploymentCondition[],
  condition: DeploymentCondition,
): DeploymentCondition[] {
  const present = conditions.find((other) => other.type === condition.type);
  if (present?.status === condition.status && present.reason === condition.reason) return [...conditions];
  const next =
    present?.status === condition.status
      ? { ...condition, lastTransitionTime: present.lastTransitionTime ?? '' }
      : condition;
  return [...conditions.filter((other) => other.type !== condition.type), next as DeploymentCondition];
}

/** The replica sets that a deployment controls. */
interface OwnSets {
  readonly all: readonly ReplicaSet[];
  /** The one with the current template. `undefined` before it exists. */
  readonly newSet: ReplicaSet | undefined;
}

/** Computes the status from all replica sets of the deployment. */
export function computeStatus(deployment: Deployment, { all, newSet }: OwnSets, nowMs: number): DeploymentStatus {
  const available = totalOf(all, (set) => set.status?.availableReplicas ?? 0);
  const ready = totalOf(all, (set) => set.status?.readyReplicas ?? 0);
  const replicas = totalOf(all, (set) => set.status?.replicas ?? 0);
  const updated = newSet?.status?.replicas ?? 0;
  const terminating = totalOf(all, (set) => set.status?.terminatingReplicas ?? 0);
  const unavailable = Math.max(0, totalOf(all, sizeOf) - available);
  const enough = available >= (deployment.spec?.replicas ?? 1) - maxUnavailableOf(deployment);
  const condition = newCondition(
    enough
      ? {
          type: 'Available',
          status: 'True',
          reason: 'MinimumReplicasAvailable',
          message: 'Deployment has minimum availability.',
        }
      : {
          type: 'Available',
          status: 'False',
          reason: 'MinimumReplicasUnavailable',
          message: 'Deployment does not have minimum availability.',
        },
    nowMs,
  );
  const collisionCount = deployment.status?.collisionCount;
  return {
    observedGeneration: deployment.metadata.generation ?? 0,
    ...positive({
      replicas,
      updatedReplicas: updated,
      readyReplicas: ready,
      availableReplicas: available,
      unavailableReplicas: unavailable,
    }),
    terminatingReplicas: terminating,
    ...(collisionCount === undefined ? {} : { collisionCount }),
    conditions: withCondition(deployment.status?.conditions ?? [], condition),
  };
}

function positive<T extends Record<string, number>>(counts: T): Partial<T> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0)) as Partial<T>;
}

/** Whether the rollout may time out. The largest signed 32-bit number stands for no deadline. */
export function hasDeadline(deployment: Deployment): boolean {
  const seconds = deployment.spec?.progressDeadlineSeconds;
  return seconds !== undefined && seconds !== NO_DEADLINE;
}

/** Whether the status is of the current generation, and all replicas run the current template and are available. */
export function isComplete(deployment: Deployment, status: DeploymentStatus): boolean {
  const wanted = deployment.spec?.replicas ?? 1;
  return (
    (status.updatedReplicas ?? 0) === wanted &&
    (status.replicas ?? 0) === wanted &&
    (status.availableReplicas ?? 0) === wanted &&
    (status.observedGeneration ?? 0) >= (deployment.metadata.generation ?? 0)
  );
}

function isProgressing(before: DeploymentStatus | undefined, now: DeploymentStatus): boolean {
  const old = (status: DeploymentStatus | undefined): number =>
    (status?.replicas ?? 0) - (status?.updatedReplicas ?? 0);
  return (
    (now.updatedReplicas ?? 0) > (before?.updatedReplicas ?? 0) ||
    old(now) < old(before) ||
    (now.readyReplicas ?? 0) > (before?.readyReplicas ?? 0) ||
    (now.availableReplicas ?? 0) > (before?.availableReplicas ?? 0)
  );
}

/** Whether the rollout made no progress for `progressDeadlineSeconds`, or its condition already reports that. */
export function hasTimedOut(deployment: Deployment, status: DeploymentStatus, nowMs: number): boolean {
  const condition = conditionOf(status, 'Progressing');
  if (condition === undefined || condition.reason === 'NewReplicaSetAvailable') return false;
  if (condition.reason === 'ProgressDeadlineExceeded') return true;
  const since = Date.parse(condition.lastUpdateTime ?? '');
  return since + (deployment.spec?.progressDeadlineSeconds ?? 0) * 1000 < nowMs;
}

/** Returns the status with the conditions of the rollout. */
export function withProgress(
  deployment: Deployment,
  computed: DeploymentStatus,
  { all, newSet }: OwnSets,
  nowMs: number,
): DeploymentStatus {
  let conditions = [...(computed.conditions ?? [])];
  if (!hasDeadline(deployment)) conditions = conditions.filter((condition) => condition.type !== 'Progressing');
  const current = conditionOf(deployment.status, 'Progressing');
  const settled =
    (computed.replicas ?? 0) === (computed.updatedReplicas ?? 0) && current?.reason === 'NewReplicaSetAvailable';
  if (hasDeadline(deployment) && !settled) {
    const subject =
      newSet === undefined ? `Deployment "${deployment.metadata.name}"` : `ReplicaSet "${newSet.metadata.name}"`;
    const progressing = (status: string, reason: string, predicate: string): DeploymentCondition =>
      newCondition({ type: 'Progressing', status, reason, message: `${subject} ${predicate}` }, nowMs);
    if (isComplete(deployment, computed)) {
      conditions = withCondition(
        conditions,
        progressing('True', 'NewReplicaSetAvailable', 'has successfully progressed.'),
      );
    } else if (isProgressing(deployment.status, computed)) {
      const condition = progressing('True', 'ReplicaSetUpdated', 'is progressing.');
      const since =
        current?.status === 'True'
          ? (current.lastTransitionTime ?? condition.lastTransitionTime)
          : condition.lastTransitionTime;
      // Each step of progress restarts the deadline, so the old condition is always replaced.
      conditions = [
        ...conditions.filter((other) => other.type !== 'Progressing'),
        { ...condition, ...(since === undefined ? {} : { lastTransitionTime: since }) },
      ];
    } else if (hasTimedOut(deployment, computed, nowMs)) {
      conditions = withCondition(
        conditions,
        progressing('False', 'ProgressDeadlineExceeded', 'has timed out progressing.'),
      );
    }
  }
  const failure = replicaFailure(all, newSet);
  conditions =
    failure === undefined
      ? conditions.filter((condition) => condition.type !== 'ReplicaFailure')
      : withCondition(conditions, failure);
  return { ...computed, conditions };
}

/** Returns the condition `ReplicaFailure` of the new replica set or, if it has none, of the first old one that has it. */
function replicaFailure(all: readonly ReplicaSet[], newSet: ReplicaSet | undefined): DeploymentCondition | undefined {
  for (const set of newSet === undefined ? all : [newSet, ...all]) {
    const failure = set.status?.conditions?.find((condition) => condition.type === 'ReplicaFailure');
    if (failure === undefined) continue;
    const { type, status, reason, message, lastTransitionTime } = failure;
    return {
      type,
      status,
      ...(lastTransitionTime === undefined ? {} : { lastUpdateTime: lastTransitionTime, lastTransitionTime }),
      ...(reason === undefined ? {} : { reason }),
      ...(message === undefined ? {} : { message }),
    };
  }
  return undefined;
}
