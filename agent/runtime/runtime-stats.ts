/** The statistics of the container runtime boundary (`runtime.ts`). */
import type { ContainerId, PodIdentity, SandboxId } from './runtime-identity.ts';

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

export interface NetworkInterfaceStats {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly txBytes: number;
  readonly txErrors: number;
}

export interface SandboxStats {
  readonly id: SandboxId;
  readonly pod: PodIdentity;
  readonly interfaces: readonly NetworkInterfaceStats[];
  readonly processCount: number;
  readonly containers: readonly ContainerStats[];
}
