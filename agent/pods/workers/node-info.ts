/** Defines what the pod workers and the volumes read of their node. */
import type { NodeObject } from '../../base/model/node.ts';

/** The node of this agent. Results are shared and must not be changed. */
export interface NodeInfo {
  readonly name: string;
  /** Returns the node as the API server last had it, else as the agent would register it. */
  node(): NodeObject;
  /** Returns the host's addresses, at most one for each family. The first is the primary one. */
  hostIps(): readonly string[];
  /** Returns the allocatable resources as quantities, as in `status.allocatable`. */
  allocatable(): Readonly<Record<string, string>>;
  /** Returns the ranges of pod addresses; empty while none are known. */
  podCidrs(): readonly string[];
  /** Calls the listener for each change of the ranges, and at once if they are known. */
  onPodCidrs(listener: (cidrs: readonly string[]) => void): void;
}
