/** Defines the filters that compare a pod with one node: its name, cordon, labels, taints, features, ports and resources. */
import { isProvidedByDevices, type ExtendedResources } from '../devices/extended-resources.ts';
import type { NodeInfo } from '../node-info.ts';
import type { HostPort, PodInfo } from '../pod-info.ts';
import { podSelectsNode, toleratesTaint, type Taint } from '../../../api/kinds/node-selection.ts';
import { unresolvable, unschedulable, type FilterPlugin, type Rejection } from '../plugin.ts';
import { UNSCHEDULABLE_TAINT } from '../../../api/meta/well-known-labels.ts';

/** Rejects nodes that are cordoned, unless the pod tolerates the taint. */
export const nodeUnschedulable: FilterPlugin = {
  name: 'NodeUnschedulable',
  prepare(pod) {
    const taint: Taint = { key: UNSCHEDULABLE_TAINT, effect: 'NoSchedule' };
    if (toleratesTaint(pod.pod.spec?.tolerations ?? [], taint)) return undefined;
    return {
      check: (node) =>
        node.node.spec?.unschedulable === true ? unresolvable('node(s) were unschedulable') : undefined,
    };
  },
};

/** Rejects all nodes but the one that `spec.nodeName` names. */
export const nodeName: FilterPlugin = {
  name: 'NodeName',
  prepare(pod) {
    const name = pod.pod.spec?.nodeName ?? '';
    if (name === '') return undefined;
    return {
      check: (node) => (node.name === name ? undefined : unresolvable("node(s) didn't match the requested node name")),
    };
  },
};

/** Rejects nodes with a NoSchedule or NoExecute taint that the pod does not tolerate. */
export const taintToleration: FilterPlugin = {
  name: 'TaintToleration',
  prepare(pod) {
    const tolerations = pod.pod.spec?.tolerations ?? [];
    const isUntolerated = (taint: Taint): boolean =>
      (taint.effect === 'NoSchedule' || taint.effect === 'NoExecute') && !toleratesTaint(tolerations, taint);
    return {
      check: ({ taints }) =>
        taints.some(isUntolerated) ? unresolvable('node(s) had untolerated taint(s)') : undefined,
    };
  },
};

/**
 * Rejects nodes that the node selector or the required node affinity does not match. Refuses the pod as a whole if the node
 * names in its affinity contradict each other.
 */
export const nodeAffinity: FilterPlugin = {
  name: 'NodeAffinity',
  prepare({ pod }) {
    const required = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
    if (required === undefined && Object.keys(pod.spec?.nodeSelector ?? {}).length === 0) return undefined;
    const onlyNodes = nodesNamedBy(required?.nodeSelectorTerms ?? []);
    if (onlyNodes?.size === 0) return unresolvable('pod affinity terms conflict');
    return {
      ...(onlyNodes === undefined ? {} : { onlyNodes }),
      check: (node) =>
        podSelectsNode(pod, node) ? undefined : unresolvable("node(s) didn't match Pod's node affinity/selector"),
    };
  },
};

interface NodeTerm {
  readonly matchFields?: readonly {
    readonly key: string;
    readonly operator: string;
    readonly values?: readonly string[];
  }[];
}

/**
 * Returns the names of nodes that the terms list, as the terms of daemon pods do. Returns `undefined` if there are no terms, or
 * one lists no names.
 */
function nodesNamedBy(terms: readonly NodeTerm[]): ReadonlySet<string> | undefined {
  if (terms.length === 0) return undefined;
  const named = new Set<string>();
  for (const { matchFields = [] } of terms) {
    const lists = matchFields.filter(({ key, operator }) => key === 'metadata.name' && operator === 'In');
    const [first, ...others] = lists.map(({ values = [] }) => new Set(values));
    if (first === undefined) return undefined;
    for (const name of first) if (others.every((names) => names.has(name))) named.add(name);
  }
  return named;
}

/** The node must declare the features that the pod's spec needs, because a node with an older agent would ignore them. */
export const nodeDeclaredFeatures: FilterPlugin = {
  name: 'NodeDeclaredFeatures',
  prepare({ pod }) {
    const containers = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
    const restartsAll = containers.some(({ restartPolicyRules = [] }) =>
      restartPolicyRules.some(({ action }) => action === 'RestartAllContainers'),
    );
    if (!restartsAll) return undefined;
    return {
      check: ({ node }) =>
        node.status?.declaredFeatures?.includes('RestartAllContainersOnContainerExits') === true
          ? undefined
          : unresolvable("node(s) didn't match Pod's required features"),
    };
  },
};

/** Rejects nodes where a host port of the pod is in use. Evicting pods can help. */
export const nodePorts: FilterPlugin = {
  name: 'NodePorts',
  prepare(pod) {
    if (pod.hostPorts.length === 0) return undefined;
    const wanted = addressesOfPorts(pod.hostPorts);
    return {
      check: (node) =>
        hasPort(node, wanted) ? unschedulable("node(s) didn't have free ports for the requested pod ports") : undefined,
    };
  },
};

const ANY = '';
const addressOf = ({ ip }: HostPort): string => (ip === '0.0.0.0' || ip === '::' ? ANY : ip);
const keyOf = ({ protocol, port }: HostPort): string => `${protocol} ${port}`;

/** Returns the addresses of each protocol and port. */
function addressesOfPorts(ports: readonly HostPort[]): ReadonlyMap<string, ReadonlySet<string>> {
  const found = new Map<string, Set<string>>();
  for (const port of ports) {
    const addresses = found.get(keyOf(port));
    if (addresses === undefined) found.set(keyOf(port), new Set([addressOf(port)]));
    else addresses.add(addressOf(port));
  }
  return found;
}

function hasPort(node: NodeInfo, wanted: ReadonlyMap<string, ReadonlySet<string>>): boolean {
  for (const { hostPorts } of node.pods.values()) {
    for (const port of hostPorts) {
      const addresses = wanted.get(keyOf(port));
      if (addresses === undefined) continue;
      const address = addressOf(port);
      if (address === ANY || addresses.has(ANY) || addresses.has(address)) return true;
    }
  }
  return false;
}

/** Rejects nodes without room for the requests of the pod, with a reason for each resource. */
export const nodeResourcesFit: FilterPlugin = {
  name: 'NodeResourcesFit',
  prepare(pod, cluster) {
    const resources = cluster.extendedResources();
    return { check: (node) => fits(pod, node, resources) };
  },
};

/** Reports every resource that is insufficient. If the node's capacity is too small, no eviction helps. */
function fits(pod: PodInfo, node: NodeInfo, resources: ExtendedResources): Rejection | undefined {
  const reasons: string[] = [];
  let hopeless = false;
  if (node.pods.size + 1 > node.allowedPods) reasons.push('Too many pods');
  for (const [name, amount] of pod.requests.actual) {
    if (amount === 0) continue;
    const allocatable = node.allocatable.get(name) ?? 0;
    if (amount <= allocatable - (node.requested.get(name) ?? 0)) continue;
    // The filter of devices decides about it.
    if (isProvidedByDevices(name, node, resources)) continue;
    reasons.push(`Insufficient ${name}`);
    hopeless ||= amount > allocatable;
  }
  if (reasons.length === 0) return undefined;
  return hopeless ? unresolvable(...reasons) : unschedulable(...reasons);
}
