/** Computes what follows from the conditions and the silence of a node: conditions that become Unknown, and taints. Pure. */
import type { V1NodeCondition, V1Taint } from '@kubernetes/client-node';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Node, Wire } from '../../../api/kinds/kinds.ts';
import {
  DISK_PRESSURE_TAINT,
  MEMORY_PRESSURE_TAINT,
  NETWORK_UNAVAILABLE_TAINT,
  NOT_READY_TAINT,
  PID_PRESSURE_TAINT,
  REGION_LABEL,
  UNREACHABLE_TAINT,
  UNSCHEDULABLE_TAINT,
  ZONE_LABEL,
} from '../../../api/meta/well-known-labels.ts';

/** A condition as it is stored. */
type NodeCondition = Wire<V1NodeCondition>;
/** A taint as it is stored. */
export type Taint = Wire<V1Taint>;

const CONDITION_TAINTS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  Ready: { False: NOT_READY_TAINT, Unknown: UNREACHABLE_TAINT },
  MemoryPressure: { True: MEMORY_PRESSURE_TAINT },
  DiskPressure: { True: DISK_PRESSURE_TAINT },
  NetworkUnavailable: { True: NETWORK_UNAVAILABLE_TAINT },
  PIDPressure: { True: PID_PRESSURE_TAINT },
};
const MANAGED_TAINTS = new Set([
  ...Object.values(CONDITION_TAINTS).flatMap((taints) => Object.values(taints)),
  UNSCHEDULABLE_TAINT,
]);

/** Returns the condition of that type, or undefined. */
export function nodeCondition(node: Node, type: string): NodeCondition | undefined {
  return node.status?.conditions?.find((condition) => condition.type === type);
}

/** Returns the conditions of a node that has not reported for too long; `undefined` if it already has them. */
export function conditionsOfSilent(node: Node, nowMs: number): NodeCondition[] | undefined {
  const now = formatTime(nowMs);
  const conditions = [...(node.status?.conditions ?? [])];
  let changed = false;
  for (const type of ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure']) {
    const at = conditions.findIndex((condition) => condition.type === type);
    const condition = conditions[at];
    if (condition === undefined) {
      conditions.push({
        type,
        status: 'Unknown',
        reason: 'NodeStatusNeverUpdated',
        message: 'Kubelet never posted node status.',
        ...(node.metadata.creationTimestamp ? { lastHeartbeatTime: node.metadata.creationTimestamp } : {}),
        lastTransitionTime: now,
      });
      changed = true;
    } else if (condition.status !== 'Unknown') {
      conditions[at] = {
        ...condition,
        status: 'Unknown',
        reason: 'NodeStatusUnknown',
        message: 'Kubelet stopped posting node status.',
        lastTransitionTime: now,
      };
      changed = true;
    }
  }
  return changed ? conditions : undefined;
}

/**
 * Returns the taints that a node should have: the present taints of other parties, and those for its conditions and for
 * `unschedulable`. `NoExecute` taints, which evict pods, are set only if `mayEvict` is true.
 */
export function wantedTaints(node: Node, options: { readonly mayEvict: boolean; readonly nowMs: number }): Taint[] {
  const current = node.spec?.taints ?? [];
  const wanted: Taint[] = [];
  const keys = new Set<string>();
  for (const [type, taints] of Object.entries(CONDITION_TAINTS)) {
    const key = taints[nodeCondition(node, type)?.status ?? ''];
    if (key !== undefined) keys.add(key);
  }
  if (node.spec?.unschedulable === true) keys.add(UNSCHEDULABLE_TAINT);
  for (const taint of current) {
    if (!MANAGED_TAINTS.has(taint.key)) wanted.push(taint);
    else if (taint.effect === 'NoSchedule' && keys.has(taint.key)) wanted.push(taint);
    else if (taint.effect !== 'NoSchedule' && taint.effect !== 'NoExecute') wanted.push(taint);
    else if (taint.effect === 'NoExecute' && options.mayEvict && keys.has(taint.key)) wanted.push(taint);
    else if (taint.effect === 'NoExecute' && taint.key !== NOT_READY_TAINT && taint.key !== UNREACHABLE_TAINT)
      wanted.push(taint);
  }
  const has = (key: string, effect: string): boolean =>
    wanted.some((taint) => taint.key === key && taint.effect === effect);
  for (const key of keys) {
    if (!has(key, 'NoSchedule')) wanted.push({ key, effect: 'NoSchedule', timeAdded: formatTime(options.nowMs) });
  }
  for (const key of [NOT_READY_TAINT, UNREACHABLE_TAINT]) {
    if (keys.has(key) && options.mayEvict && !has(key, 'NoExecute')) {
      wanted.push({ key, effect: 'NoExecute', timeAdded: formatTime(options.nowMs) });
    }
  }
  return wanted;
}

/** How many nodes of a zone are unhealthy, which determines the rate of evictions. */
export type ZoneState = 'Normal' | 'PartialDisruption' | 'FullDisruption';

/** Returns the key of the node's region and zone, in the form of Kubernetes. It is empty if the node has none of the labels. */
export function zoneOf(node: Node): string {
  const labels = node.metadata.labels ?? {};
  const region = labels[REGION_LABEL] ?? '';
  const zone = labels[ZONE_LABEL] ?? '';
  return region === '' && zone === '' ? '' : `${region}:\u0000:${zone}`;
}

interface ZoneCounts {
  ready: number;
  notReady: number;
}

function stateOf({ ready, notReady }: ZoneCounts, unhealthyThreshold: number): ZoneState {
  if (ready === 0 && notReady > 0) return 'FullDisruption';
  if (notReady > 2 && notReady / (ready + notReady) >= unhealthyThreshold) return 'PartialDisruption';
  return 'Normal';
}

/** Counts ready and other nodes by zone. */
export class ZoneHealth {
  readonly #unhealthyThreshold: number;
  readonly #zones = new Map<string, ZoneCounts>();
  readonly #nodes = new Map<string, { readonly zone: string; readonly isReady: boolean }>();

  constructor(unhealthyThreshold: number) {
    this.#unhealthyThreshold = unhealthyThreshold;
  }

  /**
   * Counts the node as it is now. Returns whether that changes the state of the node's zone, of the zone that it was in before,
   * or `isDark`.
   */
  observe(node: Node): boolean {
    const [name, zone] = [node.metadata.name ?? '', zoneOf(node)];
    return this.#changesState([this.#nodes.get(name)?.zone ?? zone, zone], () => {
      const isReady = nodeCondition(node, 'Ready')?.status === 'True';
      this.#remove(name);
      this.#nodes.set(name, { zone, isReady });
      const counts = this.#zones.get(zone) ?? { ready: 0, notReady: 0 };
      this.#zones.set(zone, counts);
      counts[isReady ? 'ready' : 'notReady'] += 1;
    });
  }

  /** Counts a node no longer. Returns whether that changes the state of its zone, or `isDark`. */
  forget(name: string): boolean {
    return this.#changesState([this.#nodes.get(name)?.zone ?? ''], () => this.#remove(name));
  }

  #changesState(zones: readonly string[], change: () => void): boolean {
    const state = (): string => [...zones.map((zone) => this.state(zone)), this.isDark].join();
    const before = state();
    change();
    return state() !== before;
  }

  #remove(name: string): void {
    const node = this.#nodes.get(name);
    const counts = this.#zones.get(node?.zone ?? '');
    if (node === undefined || counts === undefined) return;
    this.#nodes.delete(name);
    counts[node.isReady ? 'ready' : 'notReady'] -= 1;
    if (counts.ready + counts.notReady === 0) this.#zones.delete(node.zone);
  }

  /** Returns the state of a zone by the share of its nodes that are not ready. */
  state(zone: string): ZoneState {
    return stateOf(this.#zones.get(zone) ?? { ready: 0, notReady: 0 }, this.#unhealthyThreshold);
  }

  /** Returns the number of nodes in a zone. */
  size(zone: string): number {
    const { ready = 0, notReady = 0 } = this.#zones.get(zone) ?? {};
    return ready + notReady;
  }

  /** Whether no node of any zone is ready. */
  get isDark(): boolean {
    return this.#zones.values().every((counts) => counts.ready === 0);
  }

  /** Returns the names of the nodes that are not ready. */
  notReady(): string[] {
    return [...this.#nodes].filter(([, { isReady }]) => !isReady).map(([name]) => name);
  }
}
