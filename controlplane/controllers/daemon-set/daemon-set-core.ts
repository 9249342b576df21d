/** Decides which nodes get a pod of a daemon set and which pods are created and deleted, and computes the status. Pure. */
import type { V1Toleration } from '@kubernetes/client-node';
import { podSelectsNode, toleratesTaint } from '../../../api/kinds/node-selection.ts';
import { scaledValue } from '../../../api/meta/intstr.ts';
import type { DaemonSet, Node, Pod } from '../../../api/kinds/kinds.ts';
import { REVISION_HASH } from '../controller-revisions.ts';
import { isPodAvailable, isPodFinished, isPodReady, isPodTerminating } from '../pod-state.ts';
import {
  DISK_PRESSURE_TAINT,
  MEMORY_PRESSURE_TAINT,
  NETWORK_UNAVAILABLE_TAINT,
  NOT_READY_TAINT,
  PID_PRESSURE_TAINT,
  UNREACHABLE_TAINT,
  UNSCHEDULABLE_TAINT,
} from '../../../api/meta/well-known-labels.ts';

const ALWAYS_TOLERATED: readonly V1Toleration[] = [
  { key: NOT_READY_TAINT, operator: 'Exists', effect: 'NoExecute' },
  { key: UNREACHABLE_TAINT, operator: 'Exists', effect: 'NoExecute' },
  { key: DISK_PRESSURE_TAINT, operator: 'Exists', effect: 'NoSchedule' },
  { key: MEMORY_PRESSURE_TAINT, operator: 'Exists', effect: 'NoSchedule' },
  { key: PID_PRESSURE_TAINT, operator: 'Exists', effect: 'NoSchedule' },
  { key: UNSCHEDULABLE_TAINT, operator: 'Exists', effect: 'NoSchedule' },
];

/** Returns the tolerations of the pods of a daemon set: those of the template and those that the controller adds. */
function tolerationsOf(set: DaemonSet): V1Toleration[] {
  const spec = set.spec?.template.spec;
  const templateTolerations = spec?.tolerations ?? [];
  const added =
    spec?.hostNetwork === true
      ? [...ALWAYS_TOLERATED, { key: NETWORK_UNAVAILABLE_TAINT, operator: 'Exists', effect: 'NoSchedule' }]
      : ALWAYS_TOLERATED;
  const same = (a: V1Toleration, b: V1Toleration): boolean =>
    a.key === b.key && a.operator === b.operator && a.effect === b.effect && a.value === b.value;
  return [
    ...templateTolerations,
    ...added.filter((toleration) => !templateTolerations.some((other) => same(other, toleration))),
  ];
}

/** Whether a pod should run on the node, and whether a running one may stay. */
export function shouldRun(set: DaemonSet, node: Node): { readonly run: boolean; readonly stay: boolean } {
  const spec = set.spec?.template.spec;
  const no = { run: false, stay: false };
  if ((spec?.nodeName ?? '') !== '' && spec?.nodeName !== node.metadata.name) return no;
  const { name = '', labels = {} } = node.metadata;
  if (!podSelectsNode({ spec }, { name, labels })) return no;
  const tolerations = tolerationsOf(set);
  const untolerated = (node.spec?.taints ?? []).filter((taint) => !toleratesTaint(tolerations, taint));
  if (untolerated.some(({ effect }) => effect === 'NoExecute')) return no;
  return { run: !untolerated.some(({ effect }) => effect === 'NoSchedule'), stay: true };
}

/** Returns the node of a daemon's pod, before and after it is scheduled. */
export function nodeOf(pod: Pod): string {
  if ((pod.spec?.nodeName ?? '') !== '') return pod.spec?.nodeName ?? '';
  const terms =
    pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [];
  for (const { matchFields = [] } of terms) {
    for (const { key, operator, values = [] } of matchFields)
      if (key === 'metadata.name' && operator === 'In') return values[0] ?? '';
  }
  return '';
}

/** Returns the pod with a node affinity for its node and with the tolerations of a daemon. */
export function boundToNode(set: DaemonSet, pod: Pod, node: string): Pod {
  const fields = [{ key: 'metadata.name', operator: 'In', values: [node] }];
  const affinity = structuredClone(pod.spec?.affinity ?? {});
  // The node matches the terms of the template, which can therefore be replaced.
  affinity.nodeAffinity = {
    ...affinity.nodeAffinity,
    requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchFields: fields }] },
  };
  return { ...pod, spec: { containers: [], ...pod.spec, affinity, tolerations: tolerationsOf(set) } };
}

/** What a reconciliation creates and deletes. */
export interface DaemonPlan {
  /** The names of the nodes that get a pod. */
  readonly create: readonly string[];
  readonly remove: readonly Pod[];
  /** The pods in `remove` that are deleted because they failed, and because they succeeded. */
  readonly failed: readonly Pod[];
  readonly succeeded: readonly Pod[];
}

/** What all decisions read. `byNode` has the pods of the set by the name of their node. */
export interface DaemonInput {
  readonly set: DaemonSet;
  readonly nodes: readonly Node[];
  readonly byNode: ReadonlyMap<string, readonly Pod[]>;
  readonly hash: string;
  readonly nowMs: number;
}

/**
 * Decides which nodes get a pod, and which pods are deleted. `isWaiting` is true for nodes whose failed pods are not deleted
 * yet, because too many of them failed there lately.
 */
export function planDaemons(input: DaemonInput, isWaiting: (node: string) => boolean): DaemonPlan {
  const { set, nodes, byNode } = input;
  const create: string[] = [];
  const remove: Pod[] = [];
  const failed: Pod[] = [];
  const succeeded: Pod[] = [];
  for (const node of nodes) {
    const name = node.metadata.name ?? '';
    const onNode = byNode.get(name) ?? [];
    const { run, stay } = shouldRun(set, node);
    const alive = onNode.filter((pod) => !isPodTerminating(pod));
    if (run && onNode.length === 0) create.push(name);
    else if (!stay) remove.push(...alive);
    else {
      if (!isWaiting(name)) failed.push(...alive.filter(({ status }) => status?.phase === 'Failed'));
      succeeded.push(...alive.filter(({ status }) => status?.phase === 'Succeeded'));
      const running = alive.filter((pod) => !isPodFinished(pod));
      if (running.length > 1) remove.push(...surplus(input, running));
      // A terminating pod does not delay its successor where a surge is allowed.
      else if (running.length === 0 && run && surgeOf(set, 1) > 0) create.push(name);
    }
  }
  // The pod garbage collector deletes pods that were bound to a node that is gone.
  const nodeNames = new Set(nodes.map((node) => node.metadata.name ?? ''));
  for (const [name, pods] of byNode) if (!nodeNames.has(name)) remove.push(...pods.filter(isUnbound));
  return { create, remove: [...remove, ...failed, ...succeeded], failed, succeeded };
}

const isUnbound = (pod: Pod): boolean => (pod.spec?.nodeName ?? '') === '' && !isPodTerminating(pod);

/** Orders the pods of a node: bound pods come before others, and older ones before younger ones. */
function byPrecedence(a: Pod, b: Pod): number {
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  const bound = (pod: Pod): number => ((pod.spec?.nodeName ?? '') === '' ? 1 : 0);
  return bound(a) - bound(b) || created(a) - created(b) || ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1);
}

/**
 * Returns the pods of a node to delete. The first one stays. During a surge, the first old and the first new pod stay, until
 * the new one is available or the old one is not ready.
 */
function surplus({ set, hash, nowMs }: DaemonInput, running: readonly Pod[]): Pod[] {
  const sorted = running.toSorted(byPrecedence);
  if (surgeOf(set, 1) === 0) return sorted.slice(1);
  const [current, ...others] = sorted.filter((pod) => pod.metadata.labels?.[REVISION_HASH] === hash);
  const [old, ...older] = sorted.filter((pod) => pod.metadata.labels?.[REVISION_HASH] !== hash);
  const isReplaced =
    old !== undefined &&
    current !== undefined &&
    (!isPodReady(old) || isPodAvailable(current, set.spec?.minReadySeconds ?? 0, nowMs));
  return [...others, ...older, ...(isReplaced ? [old] : [])];
}

/** Returns `maxSurge` as a number of pods. Percentages of `total` are rounded up. */
export function surgeOf(set: DaemonSet, total: number): number {
  return scaledValue(set.spec?.updateStrategy?.rollingUpdate?.maxSurge ?? 0, total, { roundUp: true });
}

/** Computes the status. It counts nodes and not pods, as its fields are defined. */
export function computeDaemonStatus({
  set,
  nodes,
  byNode,
  hash,
  nowMs,
}: DaemonInput): NonNullable<DaemonSet['status']> {
  const minReady = set.spec?.minReadySeconds ?? 0;
  const counts = { desired: 0, current: 0, misscheduled: 0, ready: 0, updated: 0, available: 0 };
  for (const node of nodes) {
    const onNode = (byNode.get(node.metadata.name ?? '') ?? []).toSorted(byPrecedence);
    const { run } = shouldRun(set, node);
    if (!run) {
      if (onNode.length > 0) counts.misscheduled++;
      continue;
    }
    counts.desired++;
    const [first] = onNode;
    if (first === undefined) continue;
    counts.current++;
    if (isPodReady(first)) {
      counts.ready++;
      if (isPodAvailable(first, minReady, nowMs)) counts.available++;
    }
    if (first.metadata.labels?.[REVISION_HASH] === hash) counts.updated++;
  }
  const unavailable = counts.desired - counts.available;
  const collisionCount = set.status?.collisionCount;
  return {
    currentNumberScheduled: counts.current,
    numberMisscheduled: counts.misscheduled,
    desiredNumberScheduled: counts.desired,
    numberReady: counts.ready,
    observedGeneration: set.metadata.generation ?? 0,
    ...(counts.updated === 0 ? {} : { updatedNumberScheduled: counts.updated }),
    ...(counts.available === 0 ? {} : { numberAvailable: counts.available }),
    ...(unavailable === 0 ? {} : { numberUnavailable: unavailable }),
    ...(collisionCount === undefined ? {} : { collisionCount }),
  };
}
