/** The statistics of the container runtime boundary (`runtime.ts`). */
import type { ContainerId } from './runtime-identity.ts';

/** The usage of a container since its start. Values that the runtime does not report are 0. */
export interface ContainerStats {
  readonly id: ContainerId;
  readonly labels: Readonly<Record<string, string>>;
  readonly timestampMs: number;
  readonly cpuUsageCoreNs: number;
  readonly memoryWorkingSetBytes: number;
  readonly memoryUsageBytes: number;
  readonly memoryRssBytes: number;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
  readonly writableLayerBytes: number;
  readonly writableLayerInodes: number;
}
