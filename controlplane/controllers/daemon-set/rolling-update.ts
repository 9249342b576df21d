/** Decides how the rolling update of a daemon set proceeds, within `maxUnavailable` or `maxSurge`. Pure. */
import { scaledValue } from '../../../api/meta/intstr.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import { REVISION_HASH } from '../controller-revisions.ts';
import { isPodAvailable, isPodTerminating } from '../pod-state.ts';
import { type DaemonInput, shouldRun, surgeOf } from './daemon-set-core.ts';

interface UpdatePlan {
  readonly remove: readonly Pod[];
  /** The nodes that get a second pod. */
  readonly surge: readonly string[];
}

interface NodePods {
  readonly node: string;
  readonly old: Pod | undefined;
  readonly current: Pod | undefined;
  /** Whether the node has pods that `planDaemons` deletes first. */
  readonly hasSurplus: boolean;
}

/** Plans the next step of an update. The plan is empty for the strategy OnDelete. */
export function planUpdate(input: DaemonInput): UpdatePlan {
  const { set, nodes } = input;
  if (set.spec?.updateStrategy?.type === 'OnDelete') return { remove: [], surge: [] };
  const eligible = new Set(nodes.filter((node) => shouldRun(set, node).run).map(({ metadata }) => metadata.name ?? ''));
  const surge = surgeOf(set, eligible.size);
  const all = [...new Set([...input.byNode.keys(), ...eligible])].map((node) => podsOf(input, node));
  return surge > 0 ? planSurge(input, all, eligible, surge) : planReplacements(input, all, eligible.size);
}

function podsOf({ byNode, hash }: DaemonInput, node: string): NodePods {
  const alive = (byNode.get(node) ?? []).filter((pod) => !isPodTerminating(pod));
  const [current, ...others] = alive.filter((pod) => pod.metadata.labels?.[REVISION_HASH] === hash);
  const [old, ...older] = alive.filter((pod) => pod.metadata.labels?.[REVISION_HASH] !== hash);
  return { node, old, current, hasSurplus: others.length + older.length > 0 };
}

const isAvailable = ({ set, nowMs }: DaemonInput, pod: Pod): boolean =>
  isPodAvailable(pod, set.spec?.minReadySeconds ?? 0, nowMs);

/**
 * Plans the deletion of old pods: of all that are not available, and of as many available ones as `maxUnavailable` allows.
 */
function planReplacements(input: DaemonInput, all: readonly NodePods[], desired: number): UpdatePlan {
  const configured = input.set.spec?.updateStrategy?.rollingUpdate?.maxUnavailable ?? 1;
  const maxUnavailable = scaledValue(configured, desired, { roundUp: true }) || (desired > 0 ? 1 : 0);
  const remove: Pod[] = [];
  const candidates: Pod[] = [];
  let unavailable = 0;
  for (const { old, current, hasSurplus } of all) {
    if (hasSurplus || (old === undefined) === (current === undefined)) unavailable++;
    else if (old === undefined) {
      if (current !== undefined && !isAvailable(input, current)) unavailable++;
    } else if (isAvailable(input, old)) candidates.push(old);
    else {
      remove.push(old);
      unavailable++;
    }
  }
  return { remove: [...remove, ...candidates.slice(0, Math.max(0, maxUnavailable - unavailable))], surge: [] };
}

/** Plans new pods beside old ones, and the deletion of old pods. */
function planSurge(
  input: DaemonInput,
  all: readonly NodePods[],
  eligible: ReadonlySet<string>,
  surge: number,
): UpdatePlan {
  const remove: Pod[] = [];
  const leaving: Pod[] = [];
  const replaced: string[] = [];
  const candidates: string[] = [];
  let surging = 0;
  let available = 0;
  for (const { node, old, current, hasSurplus } of all) {
    if (hasSurplus) {
      surging++;
      continue;
    }
    const first = old ?? current;
    if (first !== undefined && isAvailable(input, first)) available++;
    if (old === undefined) continue;
    if (current !== undefined) {
      if (isAvailable(input, current)) remove.push(old);
      else surging++;
    } else if (eligible.has(node)) (isAvailable(input, old) ? candidates : replaced).push(node);
    else (isAvailable(input, old) ? leaving : remove).push(old);
  }
  return {
    remove: [...remove, ...leaving.slice(0, Math.max(0, available - eligible.size))],
    surge: [...replaced, ...candidates.slice(0, Math.max(0, surge - surging))],
  };
}
