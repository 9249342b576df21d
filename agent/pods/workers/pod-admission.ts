/**
 * Decides whether this node admits a pod: at once, after less important pods have terminated, or not at all. The scheduler
 * checks resources, node selectors, required affinity and taints too, but static pods and racing bindings bypass it. Pure.
 * Reasons and messages are the kubelet's.
 */
import type { Refusal } from '../../base/model/refusal.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { Pod } from '../../base/model/pod.ts';
import { isCriticalPod } from '../../base/model/pod-kinds.ts';
import { qosClass } from '../../runtime/kuberuntime/resources.ts';
import { toleratesTaint } from '../../../api/kinds/node-selection.ts';
import { preemptionVictims } from './critical-preemption.ts';
import { type Misfit, misfits } from './node-fit.ts';
import { MEMORY_PRESSURE_TAINT, OS_LABEL } from '../../../api/meta/well-known-labels.ts';

/** The decision about a pod. */
export type Verdict =
  | { readonly kind: 'admit' }
  | { readonly kind: 'refuse'; readonly refusal: Refusal }
  /** The pod fits after the victims have terminated. `resource` is the first one of which too little is free. */
  | { readonly kind: 'preempt'; readonly victims: readonly Pod[]; readonly resource: string };

/** Decides about pods one at a time, in the order of their arrival. */
export interface PodAdmission {
  /** Returns why the node's pressure or the pod's sysctls refuse the pod; `undefined` if `admit` decides. */
  refusal(pod: Pod): Refusal | undefined;
  /** Decides about a pod that has its exclusive resources. */
  admit(pod: Pod, others: readonly Pod[]): Verdict;
}

interface AdmissionOptions {
  readonly node: () => NodeObject;
  readonly allowedUnsafeSysctls: readonly string[];
  /** Returns how many devices of each resource pods have, those of the pod under admission included. */
  readonly allocatedDevices?: () => ReadonlyMap<string, number>;
  readonly pressure: (kind: 'memory' | 'disk' | 'pid') => boolean;
  /** The host's kernel enforces AppArmor profiles. */
  readonly appArmor: () => boolean;
  /** Returns why pods are refused while the node shuts down; `undefined` otherwise. */
  readonly shutdown?: () => Refusal | undefined;
}

const SAFE_SYSCTLS = new Set([
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.ping_group_range',
  'net.ipv4.ip_unprivileged_port_start',
  'net.ipv4.ip_local_reserved_ports',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_wmem',
]);

/** Creates the admission of pods. */
export function createPodAdmission(options: AdmissionOptions): PodAdmission {
  return {
    refusal: (pod) => evictionPressure(pod, options) ?? sysctls(pod, options),
    admit(pod, others) {
      const before = unsupported(pod, options);
      if (before !== undefined) return refuse(before);
      const verdict = fit(pod, others, withDevices(options.node(), options.allocatedDevices?.()));
      if (verdict.kind === 'refuse') return verdict;
      // A preemption must not terminate pods for one that is refused afterwards.
      const after = appArmor(pod, options) ?? options.shutdown?.();
      return after === undefined ? verdict : refuse(after);
    },
  };
}

/**
 * Counts devices that pods have as allocatable. After a restart, no device is allocatable until its plugin has registered
 * again, and pods with devices must not be rejected in the meantime.
 */
function withDevices(node: NodeObject, allocated: ReadonlyMap<string, number> = new Map()): NodeObject {
  const allocatable: Record<string, string> = { ...(node.status?.allocatable as Record<string, string> | undefined) };
  for (const [resource, count] of allocated)
    if (Number(allocatable[resource] ?? 0) < count) allocatable[resource] = String(count);
  return { ...node, status: { ...node.status, allocatable } };
}

function refuse(refusal: Refusal): Verdict {
  return { kind: 'refuse', refusal };
}

/**
 * Decides whether the pod fits on the node beside the others. A critical pod is refused only for what no preemption can change.
 */
function fit(pod: Pod, others: readonly Pod[], node: NodeObject): Verdict {
  const all = misfits(pod, others, node);
  const lacking = all.filter((misfit) => misfit.kind === 'resource');
  const [first] = isCriticalPod(pod) ? all.filter((misfit) => misfit.kind === 'predicate') : all;
  if (first !== undefined) return refuse(refusalFor(first));
  const [firstLacking] = lacking;
  if (firstLacking === undefined) return { kind: 'admit' };
  const choice = preemptionVictims(pod, others, lacking);
  if (choice.kind === 'victims') return { kind: 'preempt', victims: choice.pods, resource: firstLacking.resource };
  const missing = choice.missing.map(({ resource, amount }) => `(res: ${resource}, q: ${amount}), `).join('');
  return refuse({
    reason: 'UnexpectedAdmissionError',
    message: `Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [${missing}]`,
  });
}

function refusalFor(misfit: Misfit): Refusal {
  switch (misfit.kind) {
    case 'predicate':
      return { reason: misfit.name, message: `Predicate ${misfit.name} failed: ${misfit.description}` };
    case 'resource': {
      const { resource, requested, used, capacity } = misfit;
      return {
        reason: `OutOf${resource}`,
        message: `Node didn't have enough resource: ${resource}, requested: ${requested}, used: ${used}, capacity: ${capacity}`,
      };
    }
  }
}

function sysctls(pod: Pod, { allowedUnsafeSysctls }: AdmissionOptions): Refusal | undefined {
  for (const { name = '' } of pod.spec.securityContext?.sysctls ?? []) {
    const plain = name.replaceAll('/', '.');
    const allowed =
      SAFE_SYSCTLS.has(plain) ||
      allowedUnsafeSysctls.some((pattern) =>
        pattern.endsWith('*') ? plain.startsWith(pattern.slice(0, -1)) : plain === pattern,
      );
    if (!allowed) return { reason: 'SysctlForbidden', message: `forbidden sysctl: "${name}" not allowlisted` };
  }
  return undefined;
}

/** Returns the refusal of a pod that this host can never run, and `undefined` for other pods. */
function unsupported(pod: Pod, { node }: AdmissionOptions): Refusal | undefined {
  const { os, securityContext } = pod.spec;
  const label = pod.metadata.labels?.[OS_LABEL];
  if (label !== undefined && label !== 'linux')
    return {
      reason: 'PodOSSelectorNodeLabelDoesNotMatch',
      message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    };
  if (os !== undefined && os.name !== 'linux')
    return { reason: 'PodOSNotSupported', message: "Failed to admit pod as the OS field doesn't match node OS" };
  const { features } = node().status ?? {};
  if (securityContext?.supplementalGroupsPolicy === 'Strict' && features?.supplementalGroupsPolicy !== true)
    return {
      reason: 'SupplementalGroupsPolicyNotSupported',
      message: 'SupplementalGroupsPolicy=Strict is not supported in this node',
    };
  return undefined;
}

/** Refuses a pod with an AppArmor profile on a host without AppArmor. A pod that runs already is not checked. */
function appArmor({ spec, status }: Pod, options: AdmissionOptions): Refusal | undefined {
  if ((status?.phase ?? 'Pending') !== 'Pending') return undefined;
  const containers = [...spec.containers, ...(spec.initContainers ?? [])];
  const contexts = [spec.securityContext, ...containers.map((container) => container.securityContext)];
  const hasProfile = contexts.some(
    (context) => context?.appArmorProfile !== undefined && context.appArmorProfile.type !== 'Unconfined',
  );
  if (!hasProfile || options.appArmor()) return undefined;
  return { reason: 'AppArmor', message: 'Cannot enforce AppArmor: AppArmor is not enabled on the host' };
}

const PRESSURES = [
  ['memory', 'MemoryPressure'],
  ['disk', 'DiskPressure'],
  ['pid', 'PIDPressure'],
] as const;

/**
 * Refuses a pod while the node is short of memory, disk space or process ids. Critical pods are not refused. Memory pressure
 * alone refuses only BestEffort pods that do not tolerate its taint.
 */
function evictionPressure(pod: Pod, { pressure }: AdmissionOptions): Refusal | undefined {
  if (isCriticalPod(pod)) return undefined;
  const conditions = PRESSURES.filter(([kind]) => pressure(kind)).map(([, condition]) => condition);
  if (conditions.length === 0) return undefined;
  const taint = { key: MEMORY_PRESSURE_TAINT, effect: 'NoSchedule' };
  if (
    conditions.every((condition) => condition === 'MemoryPressure') &&
    (qosClass(pod) !== 'BestEffort' || toleratesTaint(pod.spec.tolerations ?? [], taint))
  )
    return undefined;
  return { reason: 'Evicted', message: `The node had condition: [${conditions.join(' ')}]. ` };
}
