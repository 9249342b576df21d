/** What kinds need from the control plane. The registry gives it to the kinds whose strategies read it. */
import type { Clock } from '../../api/machinery/clock.ts';
import type { StoredResource } from './store.ts';

/** The dependencies of kinds beyond the objects themselves. */
export interface KindOptions {
  readonly clock: Clock;
  /** `--service-cluster-ip-range`: one range, or one of each family. */
  readonly serviceClusterCidrs: readonly string[];
  /** `--service-node-port-range`. */
  readonly serviceNodePorts: { readonly from: number; readonly to: number };
  /** `--event-ttl`. */
  readonly eventTtlMs: number;
  /** Other kinds' objects. They are complete when all stores are open, so kinds read them at the first request. */
  readonly stores: { get(group: string, resource: string): StoredResource };
}
