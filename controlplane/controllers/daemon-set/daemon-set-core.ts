/**
 * The decisions of daemon sets: which nodes get a pod, which pods are created and deleted, and how an update proceeds. Pure.
 */
import type { V1NodeSelectorTerm, V1Toleration } from '@kubernetes/client-node';
import { scaledValue } from '../../../api/meta/intstr.ts';
import type { DaemonSet, Node, Pod } from '../../../api/machinery/kinds.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { REVISION_HASH } from '../controller-revisions.ts';
import { tolerates } from '../node/taint-eviction.ts';
import { isPodAvailable, isPodFinished, isPodTerminating } from '../pod-state.ts';

const ALWAYS_TOLERATED: readonly V1Toleration[] = [
  { key: 'node.kubernetes.io/not-ready', operator: 'Exists', effect: 'NoExecute' },
  { key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute' },
  { key: 'node.kubernetes.io/disk-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/memory-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/pid-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/unschedulable', operator: 'Exists', effect: 'NoSchedule' },
];

export function tolerationsOf(set: DaemonSet): V1Toleration[] {
  const spec = set.spec?.template.spec;
  const own = spec?.tolerations ?? [];
  const added =
    spec?.hostNetwork === true
      ? [
          ...ALWAYS_TOLERATED,
          { key: 'node.kubernetes.io/network-unavailable', operator: 'Exists', effect: 'NoSchedule' },
        ]
      : ALWAYS_TOLERATED;
  const same = (a: V1Toleration, b: V1Toleration): boolean =>
    a.key === b.key && a.operator === b.operator && a.effect === b.effect && a.value === b.value;
  return [...own, ...added.filter((toleration) => !own.some((other) => same(other, toleration)))];
}

/** Whether a pod should run on the node, and whether a running one may stay. */
export function shouldRun(set: DaemonSet, node: Node): { readonly run: boolean; readonly stay: boolean } {
  const spec = set.spec?.template.spec;
  const no = { run: false, stay: false };
  if ((spec?.nodeName ?? '') !== '' && spec?.nodeName !== node.metadata.name) return no;
  const labels = node.metadata.labels ?? {};
  if (Object.entries(spec?.nodeSelector ?? {}).some(([key, value]) => ownMember(labels, key) !== value)) return no;
  const terms = spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  if (terms !== undefined && !terms.some((term) => matchesTerm(term, node))) return no;
  const tolerations = tolerationsOf(set);
  const untolerated = (node.spec?.taints ?? []).filter(
    (taint) => !tolerations.some((toleration) => tolerates(toleration, taint)),
  );
  if (untolerated.some(({ effect }) => effect === 'NoExecute')) return no;
  return { run: !untolerated.some(({ effect }) => effect === 'NoSchedule'), stay: true };
}

function matchesTerm(term: V1NodeSelectorTerm, node: Node): boolean {
  const { matchExpressions = [], matchFields = [] } = term;
  if (matchExpressions.length === 0 && matchFields.length === 0) return false;
  const test = (value: string | undefined, operator: string, values: readonly string[]): boolean => {
    switch (operator) {
      case 'In':
        return value !== undefined && values.includes(value);
      case 'NotIn':
        return value === undefined || !values.includes(value);
      case 'Exists':
        return value !== undefined;
      case 'DoesNotExist':
        return value === undefined;
      case 'Gt':
        return value !== undefined && Number(value) > Number(values[0]);
      case 'Lt':
        return value !== undefined && Number(value) < Number(values[0]);
      default:
        return false;
    }
  };
  return (
    matchExpressions.every(({ key, operator, values = [] }) =>
      test(ownMember(node.metadata.labels, key), operator, values),
    ) &&
    matchFields.every(
      ({ key, operator, values = [] }) => key === 'metadata.name' && test(node.metadata.name, operator, values),
    )
  );
}

/** The node of a daemon's pod, before and after it is scheduled. */
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

/** The spec of the pod with a node affinity for its node; the scheduler binds it. */
export function boundToNode(set: DaemonSet, pod: Pod, node: string): Pod {
  const fields = [{ key: 'metadata.name', operator: 'In', values: [node] }];
  const affinity = structuredClone(pod.spec?.affinity ?? {});
  const terms = affinity.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  // The controller sets the field, whatever the template contains.
  const nodeSelectorTerms =
    terms === undefined || terms.length === 0
      ? [{ matchFields: fields }]
      : terms.map((term) => ({ ...term, matchFields: fields }));
  affinity.nodeAffinity = {
    ...affinity.nodeAffinity,
    requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms },
  };
  return { ...pod, spec: { containers: [], ...pod.spec, affinity, tolerations: tolerationsOf(set) } };
}

export interface DaemonPlan {
  /** Nodes without a pod. */
  readonly create: readonly string[];
  readonly remove: readonly Pod[];
  /** The failed pods among them, which are recreated. */
  readonly failed: readonly Pod[];
}

export function planDaemons(
  set: DaemonSet,
  nodes: readonly Node[],
  byNode: ReadonlyMap<string, readonly Pod[]>,
  hash: string,
): DaemonPlan {
  const create: string[] = [];
  const remove: Pod[] = [];
  const failed: Pod[] = [];
  for (const node of nodes) {
    const name = node.metadata.name ?? '';
    const here = byNode.get(name) ?? [];
    const { run, stay } = shouldRun(set, node);
    const alive = here.filter((pod) => !isPodTerminating(pod));
    if (!run && !stay) {
      remove.push(...alive);
      continue;
    }
    const finished = alive.filter(isPodFinished);
    failed.push(...finished);
    remove.push(...finished);
    const running = alive.filter((pod) => !isPodFinished(pod));
    if (run && running.length === 0 && here.every(isPodFinished) && finished.length === 0) create.push(name);
    else if (running.length > 1) remove.push(...surplus(set, running, hash));
  }
  const known = new Set(nodes.map((node) => node.metadata.name ?? ''));
  for (const [name, pods] of byNode) if (!known.has(name)) remove.push(...pods.filter((pod) => !isPodTerminating(pod)));
  return { create, remove, failed };
}

/** The oldest pod of a node stays; during a surge, the old and the new pod both may stay. */
function surplus(set: DaemonSet, running: readonly Pod[], hash: string): Pod[] {
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  const sorted = running.toSorted((a, b) => created(a) - created(b));
  const surging = surgeOf(set, 1) > 0;
  if (!surging) return sorted.slice(1);
  const old = sorted.filter((pod) => pod.metadata.labels?.[REVISION_HASH] !== hash);
  const current = sorted.filter((pod) => pod.metadata.labels?.[REVISION_HASH] === hash);
  return [...old.slice(1), ...current.slice(1)];
}

function surgeOf(set: DaemonSet, total: number): number {
  return scaledValue(set.spec?.updateStrategy?.rollingUpdate?.maxSurge ?? 0, total, { roundUp: true });
}

/** The pods that a rolling update deletes now, and the nodes that get a second pod by a surge. */
export function planUpdate(
  set: DaemonSet,
  byNode: ReadonlyMap<string, readonly Pod[]>,
  hash: string,
  wantedCount: number,
  nowMs: number,
): { readonly remove: Pod[]; readonly surge: string[] } {
  const nothing = { remove: [], surge: [] };
  if (set.spec?.updateStrategy?.type === 'OnDelete') return nothing;
  const minReady = set.spec?.minReadySeconds ?? 0;
  const isNew = (pod: Pod): boolean => pod.metadata.labels?.[REVISION_HASH] === hash;
  const most = scaledValue(set.spec?.updateStrategy?.rollingUpdate?.maxUnavailable ?? 1, wantedCount, {
    roundUp: true,
  });
  const surge = surgeOf(set, wantedCount);
  const remove: Pod[] = [];
  const surgeNodes: string[] = [];
  const candidates: Pod[] = [];
  let unavailable = 0;
  let surging = 0;
  for (const [node, pods] of byNode) {
    const alive = pods.filter((pod) => !isPodTerminating(pod) && !isPodFinished(pod));
    const old = alive.find((pod) => !isNew(pod));
    const current = alive.find(isNew);
    if (surge > 0) {
      if (old !== undefined && current === undefined) surgeNodes.push(node);
      else if (old !== undefined && current !== undefined) {
        if (isPodAvailable(current, minReady, nowMs)) remove.push(old);
        else surging++;
      }
      continue;
    }
    if (alive.length === 0 || !alive.some((pod) => isPodAvailable(pod, minReady, nowMs))) {
      unavailable++;
      // An old pod that is not available is deleted at once.
      if (old !== undefined) remove.push(old);
    } else if (old !== undefined) candidates.push(old);
  }
  if (surge > 0) return { remove, surge: surgeNodes.slice(0, Math.max(0, surge - surging)) };
  return { remove: [...remove, ...candidates.slice(0, Math.max(0, most - unavailable))], surge: [] };
}

export function computeDaemonStatus(
  set: DaemonSet,
  nodes: readonly Node[],
  byNode: ReadonlyMap<string, readonly Pod[]>,
  hash: string,
  nowMs: number,
): NonNullable<DaemonSet['status']> {
  const minReady = set.spec?.minReadySeconds ?? 0;
  const counts = { desired: 0, current: 0, misscheduled: 0, ready: 0, updated: 0, available: 0 };
  const created = (pod: Pod): number => Date.parse(pod.metadata.creationTimestamp ?? '') || 0;
  for (const node of nodes) {
    const here = (byNode.get(node.metadata.name ?? '') ?? []).toSorted((a, b) => created(a) - created(b));
    const { run } = shouldRun(set, node);
    if (!run) {
      if (here.length > 0) counts.misscheduled++;
      continue;
    }
    counts.desired++;
    if (here.length === 0) continue;
    counts.current++;
    const best = here.find((pod) => isPodAvailable(pod, 0, nowMs) && !isPodTerminating(pod)) ?? here[0];
    if (best === undefined) continue;
    if (isPodAvailable(best, 0, nowMs)) {
      counts.ready++;
      if (isPodAvailable(best, minReady, nowMs)) counts.available++;
    }
    if (best.metadata.labels?.[REVISION_HASH] === hash) counts.updated++;
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
