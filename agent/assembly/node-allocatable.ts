/** Implements `--enforce-node-allocatable`: limits the cgroups of all pods together, and those of reserved resources. */
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { CgroupManager } from '../host/cgroups/cgroup-resources.ts';
import { NodeAllocatable } from '../host/cgroups/node-allocatable.ts';
import { hostCapacity, maxPids } from '../host/host-facts.ts';
import { podLimits, reservationLimits, reservedFor } from '../node/status/reserved.ts';
import type { PodTable } from '../pods/pod-table.ts';
import type { Base } from './base.ts';
import type { Part } from './lifecycle.ts';

const ENFORCE_PERIOD_MS = 60_000;

/** Keeps the limits of all pods together on the host, and updates the CPU shares of the QoS classes while it runs. */
export interface EnforcedAllocatable extends Part {
  /** The cgroup of all pods; '' if there is none. */
  readonly podsCgroup: string;
  /** The memory that pods can use; 0 if it is not enforced. */
  memoryBytes(): number;
  run(signal: AbortSignal): Promise<void>;
}

/** Creates the part, which sets the limits of all pods and of reserved cgroups while it runs. */
export function enforceAllocatable(
  { flags, clock, logger }: Base,
  manager: CgroupManager,
  table: Pick<PodTable, 'active'>,
  nodeEvent: (reason: string, message: string, type: 'Normal' | 'Warning') => void,
): EnforcedAllocatable {
  const cgroups = new NodeAllocatable({ manager, logger });
  const reserved = reservedFor({ kube: flags.kubeReserved, system: flags.systemReserved, cpus: flags.reservedCpus });
  const limits = (): ReturnType<typeof podLimits> => {
    const { cpus, memoryBytes } = hostCapacity();
    return podLimits(reserved, { cpus, memoryBytes, storageBytes: 0, pids: maxPids() });
  };
  const isEnforced = (name: string): boolean => flags.enforceNodeAllocatable.includes(name);
  const reported = new Set<string>();
  /** Records each event once, because the limits are set again and again. */
  const report = (reason: string, message: string, type: 'Normal' | 'Warning'): void => {
    if (!reported.has(message)) nodeEvent(reason, message, type);
    reported.add(message);
  };
  const reportReserved = (kind: 'Kube' | 'System', cgroup: string, isThere: boolean): void => {
    const updated = `Updated limits on ${kind.toLowerCase()} reserved cgroup ${cgroup}`;
    const failed = `Failed to enforce ${kind} Reserved Cgroup Limits on "${cgroup}": "${cgroup}" cgroup does not exist`;
    if (isThere) report('NodeAllocatableEnforced', updated, 'Normal');
    else report('FailedNodeAllocatableEnforcement', failed, 'Warning');
  };
  const enforcePods = async (): Promise<void> => {
    await cgroups.enforcePods(limits());
    report('NodeAllocatableEnforced', 'Updated Node Allocatable limit across pods', 'Normal');
  };
  const enforce = async (): Promise<void> => {
    if (isEnforced('pods')) await enforcePods();
    for (const [kind, name, cgroup, amounts] of [
      ['Kube', 'kube-reserved', flags.kubeReservedCgroup, flags.kubeReserved],
      ['System', 'system-reserved', flags.systemReservedCgroup, flags.systemReserved],
    ] as const) {
      if (cgroup === '') continue;
      const reservedLimits = reservationLimits(amounts);
      // The CPU alone is compressible: a process with less of it runs slower, but is not killed. 0 leaves a limit unchanged.
      const enforced = isEnforced(name)
        ? reservedLimits
        : isEnforced(`${name}-compressible`)
          ? { ...reservedLimits, memoryBytes: 0, pids: 0 }
          : undefined;
      if (enforced !== undefined) reportReserved(kind, cgroup, await cgroups.enforce(cgroup, enforced));
    }
    await cgroups.updateQosShares(table.active());
  };
  const loop = new WakeableLoop({
    clock,
    onError: (error) =>
      logger.error({ err: error }, 'Cannot update the cgroups of pods and reserved resources, retrying'),
  });
  return {
    podsCgroup: flags.cgroupsPerQos ? cgroups.podsCgroup : '',
    memoryBytes: () => (isEnforced('pods') && flags.cgroupsPerQos ? limits().memoryBytes : 0),
    async run(signal) {
      if (!flags.cgroupsPerQos) return;
      await loop.run(signal, async () => {
        await enforce();
        return ENFORCE_PERIOD_MS;
      });
    },
  };
}
