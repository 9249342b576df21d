/** Defines what kinds need from the control plane. The registry passes it to the kinds whose strategies read it. */
import type { Clock } from '../../api/machinery/clock.ts';
import type { StoredResource } from './store.ts';

/** The dependencies of kinds beyond the objects themselves. */
export interface KindOptions {
  readonly clock: Clock;
  /** The value of `--service-cluster-ip-range`: one range, or one of each family. */
  readonly serviceClusterCidrs: readonly string[];
  /** The value of `--service-node-port-range`. */
  readonly serviceNodePorts: { readonly from: number; readonly to: number };
  /** The value of `--event-ttl`. */
  readonly eventTtlMs: number;
  /**
   * The objects of other kinds. They are complete once all stores are open, so kinds may read them from the first request on.
   */
  readonly stores: { get(group: string, resource: string): StoredResource };
}
