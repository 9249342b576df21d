/**
 * Decides whether this node admits a pod. The scheduler checks resources, node selectors, required affinity and taints too,
 * but static pods and racing bindings bypass it. Pure. Reasons and messages are the kubelet's.
 */
import { podSelectsNode, toleratesTaint } from '../../../api/kinds/node-selection.ts';
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  milliUnits,
  parseQuantity,
  wholeUnits,
  type Quantity,
} from '../../../api/meta/quantity.ts';
import type { NodeObject, Pod } from '../../model/core-types.ts';
import { isCritical, podResources, qosClass, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import { isStaticPod } from './pod-manager.ts';

export interface Refusal {
  readonly reason: string;
  readonly message: string;
}

export interface PodAdmission {
  admit(pod: Pod, others: readonly Pod[]): Refusal | undefined;
}

export interface AdmissionOptions {
  readonly node: () => NodeObject;
  readonly allowedUnsafeSysctls: readonly string[];
  readonly pressure: (kind: 'memory' | 'disk' | 'pid') => boolean;
  /** The host's kernel enforces AppArmor profiles. */
  readonly appArmor: () => boolean;
  /** Rejects pods while the node shuts down. */
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

export function createPodAdmission(options: AdmissionOptions): PodAdmission {
  return {
    admit(pod, others) {
      return (
        sysctls(pod, options) ??
        evictionPressure(pod, options) ??
        unsupported(pod, options) ??
        selector(pod, options.node()) ??
        taints(pod, options.node()) ??
        ports(pod, others) ??
        resources(pod, others, options.node()) ??
        appArmor(pod, options) ??
        options.shutdown?.()
      );
    },
  };
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

/** Rejects pods that this host can never run. */
function unsupported(pod: Pod, { node }: AdmissionOptions): Refusal | undefined {
  const { os, securityContext } = pod.spec;
  const label = pod.metadata.labels?.['kubernetes.io/os'];
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

function appArmor({ spec }: Pod, options: AdmissionOptions): Refusal | undefined {
  const containers = [...spec.containers, ...(spec.initContainers ?? [])];
  const profiles = [spec.securityContext, ...containers.map((container) => container.securityContext)];
  const isAsked = profiles.some(
    (context) => context?.appArmorProfile !== undefined && context.appArmorProfile.type !== 'Unconfined',
  );
  if (!isAsked || options.appArmor()) return undefined;
  return { reason: 'AppArmor', message: 'Cannot enforce AppArmor: AppArmor is not enabled on the host' };
}

function evictionPressure(pod: Pod, { pressure }: AdmissionOptions): Refusal | undefined {
  if (isStaticPod(pod) || isCritical(pod)) return undefined;
  const evicted = (conditions: string): Refusal => ({
    reason: 'Evicted',
    message: `The node had condition: [${conditions}]. `,
  });
  if (pressure('disk')) return evicted('DiskPressure');
  if (pressure('pid')) return evicted('PIDPressure');
  if (
    pressure('memory') &&
    qosClass(pod) === 'BestEffort' &&
    !(pod.spec.tolerations ?? []).some((toleration) => toleration.key === 'node.kubernetes.io/memory-pressure')
  )
    return evicted('MemoryPressure');
  return undefined;
}

function selector(pod: Pod, node: NodeObject): Refusal | undefined {
  const { name, labels = {} } = node.metadata;
  return podSelectsNode(pod, { name, labels })
    ? undefined
    : {
        reason: 'NodeAffinity',
        message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
      };
}

/** Checks only NoExecute taints, and not for static pods, as the kubelet does. */
function taints(pod: Pod, node: NodeObject): Refusal | undefined {
  if (isStaticPod(pod)) return undefined;
  const isTolerated = (node.spec?.taints ?? []).every(
    (taint) => taint.effect !== 'NoExecute' || toleratesTaint(pod.spec.tolerations ?? [], taint),
  );
  return isTolerated
    ? undefined
    : {
        reason: 'TaintToleration',
        message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
      };
}

function hostPorts(pod: Pod): readonly string[] {
  return [
    ...pod.spec.containers,
    ...(pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always'),
  ].flatMap((container) =>
    (container.ports ?? [])
      .map((port) => ({
        port: port.hostPort ?? (pod.spec.hostNetwork === true ? (port.containerPort ?? 0) : 0),
        ip: port.hostIP ?? '',
        protocol: port.protocol ?? 'TCP',
      }))
      .filter(({ port }) => port !== 0)
      .map(({ port, ip, protocol }) => `${protocol}/${port}/${ip === '0.0.0.0' || ip === '::' ? '' : ip}`),
  );
}

function ports(pod: Pod, others: readonly Pod[]): Refusal | undefined {
  const wanted = hostPorts(pod);
  if (wanted.length === 0) return undefined;
  const taken = others.flatMap(hostPorts);
  const clash = wanted.some((port) => {
    const [protocol, number, ip] = port.split('/');
    return taken.some((other) => {
      const [otherProtocol, otherNumber, otherIp] = other.split('/');
      return protocol === otherProtocol && number === otherNumber && (ip === otherIp || ip === '' || otherIp === '');
    });
  });
  return clash
    ? {
        reason: 'NodePorts',
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
      }
    : undefined;
}

function resources(pod: Pod, others: readonly Pod[], node: NodeObject): Refusal | undefined {
  const allocatable = (node.status?.allocatable ?? {}) as Record<string, string>;
  const count = allocatable['pods'];
  if (count !== undefined && others.length + 1 > Number(count)) {
    return {
      reason: 'OutOfpods',
      message: `Node didn't have enough resource: pods, requested: 1, used: ${others.length}, capacity: ${count}`,
    };
  }
  for (const [name, text] of Object.entries(podResources(pod, requestsOf))) {
    const capacity = allocatable[name];
    const wanted = parseQuantity(text);
    if (compareQuantities(wanted, parseQuantity('0')) === 0) continue;
    if (capacity === undefined) {
      // The scheduler alone accounts for extended resources that the node does not report.
      if (name === 'ephemeral-storage' || isExtended(name)) continue;
      return {
        reason: `OutOf${name}`,
        message: `Node didn't have enough resource: ${name}, requested: ${text}, used: 0, capacity: 0`,
      };
    }
    let used: Quantity = parseQuantity('0');
    for (const other of others) {
      const theirs = podResources(other, requestsOf)[name];
      if (theirs !== undefined) used = addQuantities(used, parseQuantity(theirs));
    }
    if (compareQuantities(addQuantities(used, wanted), parseQuantity(capacity)) > 0) {
      const show = (quantity: Quantity): string => String(name === 'cpu' ? milliUnits(quantity) : wholeUnits(quantity));
      return {
        reason: `OutOf${name}`,
        message: `Node didn't have enough resource: ${name}, requested: ${show(wanted)}, used: ${show(parseQuantity(formatQuantity(used)))}, capacity: ${show(parseQuantity(capacity))}`,
      };
    }
  }
  return undefined;
}

function isExtended(name: string): boolean {
  return name.includes('/') && !name.startsWith('kubernetes.io/') && !name.startsWith('requests.');
}
