/**
 * Determines which replica set of a deployment is the new one, and the revisions, sizes and annotations of its replica sets.
 * Pure.
 */
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { scaledValue } from '../../../api/meta/intstr.ts';
import type { Deployment, ReplicaSet } from '../../../api/kinds/kinds.ts';
import type { PodTemplate } from '../pod-control.ts';
import { equalAs, POD_TEMPLATE } from '../../../api/schema/semantic-equality.ts';
import { LAST_APPLIED_ANNOTATION } from '../../../api/meta/well-known-labels.ts';

/** The annotation with the number of the rollout. */
export const REVISION = 'deployment.kubernetes.io/revision';
const REVISION_HISTORY = 'deployment.kubernetes.io/revision-history';
/** The annotation with the deployment's replicas, by which a scaled deployment is recognized. */
export const DESIRED_REPLICAS = 'deployment.kubernetes.io/desired-replicas';
/** The annotation with the sum of the deployment's replicas and surge, for proportional scaling. */
export const MAX_REPLICAS = 'deployment.kubernetes.io/max-replicas';
/** The label by which a replica set selects its pods. */
export const TEMPLATE_HASH = 'pod-template-hash';

const NOT_COPIED = new Set([
  LAST_APPLIED_ANNOTATION,
  REVISION,
  REVISION_HISTORY,
  DESIRED_REPLICAS,
  MAX_REPLICAS,
  'deprecated.deployment.rollback.to',
]);

/** Whether two templates are semantically equal apart from the label with their hash. */
export function equalIgnoringHash(a: PodTemplate | undefined, b: PodTemplate | undefined): boolean {
  return equalAs(POD_TEMPLATE, withoutHash(a), withoutHash(b));
}

function withoutHash(template: PodTemplate | undefined): unknown {
  if (template?.metadata?.labels?.[TEMPLATE_HASH] === undefined) return template;
  const { [TEMPLATE_HASH]: _, ...labels } = template.metadata.labels;
  return { ...template, metadata: { ...template.metadata, labels } };
}

/** Orders replica sets from the oldest to the newest; the name decides between equal times. */
export function byAge(a: ReplicaSet, b: ReplicaSet): number {
  const at = (set: ReplicaSet): number => Date.parse(set.metadata.creationTimestamp ?? '') || 0;
  return at(a) - at(b) || ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1);
}

/** Returns the oldest replica set with the deployment's template, or `undefined` if none has it. */
export function findNewReplicaSet(deployment: Deployment, sets: readonly ReplicaSet[]): ReplicaSet | undefined {
  return sets.toSorted(byAge).find((set) => equalIgnoringHash(set.spec?.template, deployment.spec?.template));
}

/** Returns the revision in the annotation, or 0. It is a bigint, because revisions have 64 bits. */
export function revisionOf(object: { metadata: { annotations?: Record<string, string> } } | undefined): bigint {
  return parseRevision(object?.metadata.annotations?.[REVISION]);
}

const parseRevision = (text = ''): bigint => (/^[0-9]+$/.test(text) ? BigInt(text) : 0n);

/** Returns the highest revision of the replica sets, and 0 if none has a revision. */
export function maxRevision(sets: readonly ReplicaSet[]): bigint {
  return sets.map(revisionOf).reduce((highest, revision) => (revision > highest ? revision : highest), 0n);
}

/** Returns the desired replicas of a replica set; 1 is the default of the API. */
export function sizeOf(set: ReplicaSet): number {
  return set.spec?.replicas ?? 1;
}

/** Sums a number over replica sets; missing ones count as 0. */
export function totalOf(sets: readonly (ReplicaSet | undefined)[], numberOf: (set: ReplicaSet) => number): number {
  return sets.reduce((sum, set) => sum + (set === undefined ? 0 : numberOf(set)), 0);
}

/** Whether the deployment has the strategy RollingUpdate, as one without a strategy has. */
export const isRollingUpdate = (deployment: Deployment): boolean => deployment.spec?.strategy?.type !== 'Recreate';

/**
 * Returns the numbers of pods that may be surplus and unavailable during a rolling update. They are both zero only for another
 * strategy and for a deployment without replicas.
 */
export function surgeAndUnavailable(deployment: Deployment): { readonly surge: number; readonly unavailable: number } {
  const replicas = deployment.spec?.replicas ?? 1;
  if (!isRollingUpdate(deployment) || replicas === 0) return { surge: 0, unavailable: 0 };
  const rolling = deployment.spec?.strategy?.rollingUpdate;
  const surge = scaledValue(rolling?.maxSurge ?? '25%', replicas, { roundUp: true });
  let unavailable = scaledValue(rolling?.maxUnavailable ?? '25%', replicas, { roundUp: false });
  if (surge === 0 && unavailable === 0) unavailable = 1;
  return { surge, unavailable: Math.min(unavailable, replicas) };
}

/** Returns `maxUnavailable` as a number of pods, with the rounding of Kubernetes. */
export function maxUnavailableOf(deployment: Deployment): number {
  return surgeAndUnavailable(deployment).unavailable;
}

/** Returns the size that the new replica set may have now. */
export function newSetSize(deployment: Deployment, all: readonly (ReplicaSet | undefined)[], current: number): number {
  const replicas = deployment.spec?.replicas ?? 1;
  if (!isRollingUpdate(deployment)) return replicas;
  const total = totalOf(all, sizeOf);
  const maxTotal = replicas + surgeAndUnavailable(deployment).surge;
  if (total >= maxTotal) return current;
  return current + Math.min(maxTotal - total, replicas - current);
}

/** Returns the annotations with which a replica set records the size of its deployment. */
export function sizeAnnotations(deployment: Deployment): Record<string, string> {
  const replicas = deployment.spec?.replicas ?? 1;
  return {
    [DESIRED_REPLICAS]: String(replicas),
    [MAX_REPLICAS]: String(replicas + surgeAndUnavailable(deployment).surge),
  };
}

/**
 * Returns the annotations of the replica set that becomes revision `revision`, apart from its sizes; the same object if nothing
 * changes.
 */
export function newSetAnnotations(
  deployment: Deployment,
  current: Readonly<Record<string, string>>,
  revision: bigint,
): Readonly<Record<string, string>> {
  const next: Record<string, string> = { ...current };
  for (const [key, value] of Object.entries(deployment.metadata.annotations ?? {})) {
    if (!NOT_COPIED.has(key)) next[key] = value;
  }
  const old = current[REVISION];
  if (parseRevision(old) < revision) {
    next[REVISION] = String(revision);
    // A revision that a rollback restores keeps its previous numbers in an annotation.
    if (old !== undefined && old !== '') {
      const history = current[REVISION_HISTORY];
      next[REVISION_HISTORY] = history === undefined || history === '' ? old : `${history},${old}`;
    }
  }
  return semanticEqual(next, current) ? current : next;
}
