/** The statistics of the container runtime boundary (`runtime.ts`). */
import type { ContainerId, PodIdentity, SandboxId } from './runtime-identity.ts';

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

/** The counters of an interface of the pod since it was created. */
export interface NetworkInterfaceStats {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly txBytes: number;
  readonly txErrors: number;
}

/** The usage of a pod. The interfaces are those inside the pod. */
export interface SandboxStats {
  readonly id: SandboxId;
  readonly pod: PodIdentity;
  readonly interfaces: readonly NetworkInterfaceStats[];
  readonly processCount: number;
  readonly containers: readonly ContainerStats[];
}
