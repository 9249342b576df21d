/**
 * Runs the agent's cgroups with the systemd driver on this host: executes the steps of its argument one after the other, and
 * then prints its warnings. Each run is like a restarted agent.
 */
import { createCgroupManager } from '../../agent/host/cgroups/cgroup-manager.ts';
import { type CgroupLimits, NodeAllocatable } from '../../agent/host/cgroups/node-allocatable.ts';
import { createPodCgroups } from '../../agent/host/cgroups/pod-cgroups.ts';
import type { Pod } from '../../agent/base/model/pod.ts';
import { type Logger, silentLogger } from '../../api/component/logger.ts';

export interface Steps {
  /** Used instead of the host's mount point. */
  readonly mountPoint?: string;
  readonly enforcePods?: CgroupLimits;
  readonly enforce?: readonly [name: string, limits: CgroupLimits];
  readonly qosOf?: readonly Pod[];
  readonly ensure?: Pod;
  readonly remove?: Pod;
}

const steps = JSON.parse(process.argv[2] ?? '{}') as Steps;
const warnings: unknown[] = [];
const logger = {
  ...silentLogger,
  warn: (fields: { readonly error?: unknown }, message: string) => warnings.push(message, String(fields.error)),
} as Logger;
const { mountPoint = '/sys/fs/cgroup' } = steps;
const manager = await createCgroupManager({ driver: 'systemd', root: '', mountPoint, logger });
const node = new NodeAllocatable({ manager, logger });
const pods = createPodCgroups({ manager, perQos: true, podPidsLimit: 77, cpuQuota: true, cpuPeriodUs: 100_000 });
if (steps.enforcePods !== undefined) await node.enforcePods(steps.enforcePods);
if (steps.enforce !== undefined) await node.enforce(...steps.enforce);
if (steps.qosOf !== undefined) await node.updateQosShares(steps.qosOf);
if (steps.ensure !== undefined) await pods.ensure(steps.ensure);
if (steps.remove !== undefined) await pods.remove(steps.remove);
console.log(JSON.stringify(warnings));
