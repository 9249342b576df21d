/**
 * Pure rules of pod statuses: merges the agent's status with that of the API server, and computes the patch between them. The
 * agent owns some conditions. All others belong to their writers and stay.
 */
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import type { Pod, PodCondition, PodStatus } from '../../base/model/pod.ts';

/** Conditions that the agent replaces, whoever wrote them: before a pod is bound, the scheduler writes `PodScheduled`. */
const OWNED_CONDITIONS: ReadonlySet<string> = new Set([
  'PodScheduled',
  'Initialized',
  'Ready',
  'ContainersReady',
  'PodReadyToStartContainers',
  'PodResizePending',
  'PodResizeInProgress',
  'AllContainersRestarting',
]);

/** Conditions that the agent and others write. */
const SHARED_CONDITIONS: ReadonlySet<string> = new Set(['DisruptionTarget']);

/** Whether the phase is final: such a pod never runs again. */
export function isTerminalPhase(phase: string | undefined): boolean {
  return phase === 'Succeeded' || phase === 'Failed';
}

function condition(status: PodStatus | undefined, type: string): PodCondition | undefined {
  return status?.conditions?.find((candidate) => candidate.type === type);
}

/**
 * Normalizes a status before it is stored: a condition of the agent whose status did not change keeps its transition time,
 * and the start time never changes.
 */
export function normalize(next: PodStatus, previous: PodStatus | undefined, now: string): PodStatus {
  const conditions = next.conditions?.map((entry) => {
    if (!OWNED_CONDITIONS.has(entry.type) && !SHARED_CONDITIONS.has(entry.type)) return entry;
    const before = condition(previous, entry.type);
    const lastTransitionTime =
      before !== undefined && before.status === entry.status
        ? (before.lastTransitionTime ?? now)
        : (entry.lastTransitionTime ?? now);
    return { ...entry, lastTransitionTime };
  });
  const startTime = previous?.startTime ?? next.startTime ?? now;
  return { ...next, startTime, ...(conditions === undefined ? {} : { conditions }) } as PodStatus;
}

/**
 * Returns the status that the API server should have: the agent's status, with the conditions of others. While a container may
 * still run, the phase is not final unless that of the API server is, and a pod with a final phase is not ready.
 */
export function mergeStatus(remote: PodStatus | undefined, ours: PodStatus, mayStillRun: boolean): PodStatus {
  const becomesFinal = isTerminalPhase(ours.phase) && !isTerminalPhase(remote?.phase) && !mayStillRun;
  // Shared conditions are sent with the final phase only.
  const isOurs = ({ type }: PodCondition): boolean =>
    OWNED_CONDITIONS.has(type) || (becomesFinal && SHARED_CONDITIONS.has(type) && condition(ours, type) !== undefined);
  const foreign = (remote?.conditions ?? []).filter((entry) => !isOurs(entry));
  const owned = (ours.conditions ?? []).filter(isOurs);
  const merged: PodStatus = { ...ours, conditions: [...foreign, ...owned] };
  // The phase is not reported as final while a container may still run, because a controller would replace the pod.
  if (mayStillRun && isTerminalPhase(ours.phase) && !isTerminalPhase(remote?.phase)) {
    if (remote?.phase === undefined) delete merged.phase;
    else merged.phase = remote.phase;
    for (const field of ['reason', 'message'] as const) {
      if (remote?.[field] === undefined) delete merged[field];
      else merged[field] = remote[field];
    }
  }
  return isTerminalPhase(merged.phase)
    ? { ...merged, conditions: (merged.conditions ?? []).map((entry) => unready(entry, merged.phase)) }
    : merged;
}

/**
 * Returns the condition as not ready, because a terminated pod is never reported as ready, whatever its last container statuses
 * are.
 */
function unready(entry: PodCondition, phase: string | undefined): PodCondition {
  if ((entry.type !== 'Ready' && entry.type !== 'ContainersReady') || entry.status !== 'True') return entry;
  const { lastTransitionTime: _time, ...fields } = entry;
  return { ...fields, status: 'False', reason: phase === 'Succeeded' ? 'PodCompleted' : 'PodFailed' } as PodCondition;
}

/** Fields of a status that the agent never writes. */
const FOREIGN_FIELDS: ReadonlySet<string> = new Set([
  'nominatedNodeName',
  'resourceClaimStatuses',
  'extendedResourceClaimStatus',
]);

/** The merge keys of lists that merge. */
const MERGE_KEYS: ReadonlyMap<string, string> = new Map(
  Object.entries({ conditions: 'type', podIPs: 'ip', hostIPs: 'ip' }),
);

type Entry = Readonly<Record<string, JsonValue>>;

/**
 * Returns the strategic merge patch from the pod's status to `merged`, or `undefined` if they are equal. Only lists that exist
 * get directives, because older API servers would store them as entries of a new list. The pod's uid keeps the patch from
 * changing another pod with this name.
 */
export function statusPatch(pod: Pod, merged: PodStatus): Record<string, JsonValue> | undefined {
  const remote = (pod.status ?? {}) as Record<string, JsonValue>;
  const next = merged as Record<string, JsonValue | undefined>;
  const changes: Record<string, JsonValue> = {};
  for (const key of new Set([...Object.keys(remote), ...Object.keys(next)])) {
    if (FOREIGN_FIELDS.has(key)) continue;
    const value = next[key];
    if (jsonEqual(remote[key], value)) continue;
    const mergeKey = MERGE_KEYS.get(key);
    const before = remote[key];
    if (value === undefined) changes[key] = null;
    else if (isJsonObject(before) && isJsonObject(value)) changes[key] = objectChanges(before, value);
    else if (mergeKey === undefined || before === undefined) changes[key] = value;
    else Object.assign(changes, listChanges(key, mergeKey, before as Entry[], value as Entry[]));
  }
  if (Object.keys(changes).length === 0) return undefined;
  return { metadata: { uid: pod.metadata.uid }, status: changes };
}

/** Returns the changed members. A removed member is null, because a patch keeps the members that it does not name. */
function objectChanges(before: JsonObject, after: JsonObject): Record<string, JsonValue> {
  const changes: Record<string, JsonValue> = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [was, is] = [before[key], after[key]];
    if (jsonEqual(was, is)) continue;
    changes[key] = isJsonObject(was) && isJsonObject(is) ? objectChanges(was, is) : (is ?? null);
  }
  return changes;
}

/** Returns changed entries, deletions and the new order. */
function listChanges(
  list: string,
  mergeKey: string,
  before: readonly Entry[],
  after: readonly Entry[],
): Record<string, JsonValue> {
  // Of entries with the same key the first one counts.
  const byKey = (entries: readonly Entry[]): ReadonlyMap<JsonValue | undefined, Entry> =>
    new Map(entries.map((entry) => [entry[mergeKey], entry] as const).toReversed());
  const [previous, next] = [byKey(before), byKey(after)];
  const entries: JsonValue[] = [];
  for (const entry of after) {
    const old = previous.get(entry[mergeKey]);
    if (old !== undefined && jsonEqual(old, entry)) continue;
    const removedKeys = Object.keys(old ?? {}).filter((key) => entry[key] === undefined);
    entries.push({ ...entry, ...Object.fromEntries(removedKeys.map((key) => [key, null])) });
  }
  for (const entry of before) {
    const key = entry[mergeKey] ?? null;
    if (!next.has(key)) entries.push({ [mergeKey]: key, $patch: 'delete' });
  }
  if (entries.length === 0 && list === 'conditions') return {};
  const order = after.map((entry) => ({ [mergeKey]: entry[mergeKey] ?? null }));
  return { [`$setElementOrder/${list}`]: order, ...(entries.length === 0 ? {} : { [list]: entries }) };
}
