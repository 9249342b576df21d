/**
 * Defines the interfaces of filters and scores. A filter is prepared once for a pod and a state of the cluster, and then called
 * for single nodes. Trials (nominated pods, preemption) move pods and report each move, so that nothing is prepared twice.
 */
import type { TimeSlice } from '../../api/machinery/time-slice.ts';
import type { Cluster } from './cluster-state.ts';
import type { NodeInfo } from './node-info.ts';
import type { PodInfo } from './pod-info.ts';

/** Why a pod does not fit, in kube-scheduler's words. */
export interface Rejection {
  /** `unresolvable` means that evicting other pods would not help. */
  readonly kind: 'unschedulable' | 'unresolvable';
  readonly reasons: readonly string[];
}

/** Creates a rejection that an eviction may cure. */
export function unschedulable(...reasons: string[]): Rejection {
  return { kind: 'unschedulable', reasons };
}

/** Creates a rejection that no eviction can cure. */
export function unresolvable(...reasons: string[]): Rejection {
  return { kind: 'unresolvable', reasons };
}

/**
 * The error of a filter that ends the attempt on all nodes, because something is wrong with the pod or with what it refers to.
 * `filter` is the filter's name.
 */
export class FilterError extends Error {
  constructor(filter: string, message: string) {
    super(`running "${filter}" filter plugin: ${message}`);
  }
}

/** A pod that a trial adds to a node (`by` 1) or removes from it (`by` -1). */
export interface PodMove {
  readonly pod: PodInfo;
  readonly node: NodeInfo;
  readonly by: 1 | -1;
}

/** A filter for one pod. `check` returns undefined for a node that fits. */
export interface PreparedFilter {
  /** The names of the only nodes that can pass. Some may not exist. Absent if all nodes must be checked. */
  readonly onlyNodes?: ReadonlySet<string>;
  /** Returns why the node does not fit, or `undefined`. Throws `FilterError`. */
  check(node: NodeInfo): Rejection | undefined;
  /** Updates what was prepared over all nodes. Absent if `check` reads everything from the node. */
  moved?(move: PodMove): void;
}

/** The result of `prepare`: `undefined` if the filter does not concern the pod, or a rejection that counts for all nodes. */
type Prepared = PreparedFilter | Rejection | undefined;

/** A filter, with the name of kube-scheduler's plugin. It is prepared once for each pod. */
export interface FilterPlugin {
  readonly name: string;
  prepare(pod: PodInfo, cluster: Cluster, slice: TimeSlice): Prepared | Promise<Prepared>;
}

type Scores = readonly number[] | undefined;

/** The cluster and the time slice of one scheduling attempt. */
export interface SchedulingContext {
  readonly cluster: Cluster;
  readonly slice: TimeSlice;
}

/** Compares the nodes that passed all filters. */
export interface ScorePlugin {
  readonly name: string;
  readonly weight: number;
  /** Returns a score from 0 to 100 for each of `nodes`, or `undefined` if the plugin does not concern this pod. */
  score(pod: PodInfo, nodes: readonly NodeInfo[], context: SchedulingContext): Scores | Promise<Scores>;
}
