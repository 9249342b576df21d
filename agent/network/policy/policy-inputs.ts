/**
 * The part of the cluster's state that network policies depend on, as plain data: the compiler reads it, and the agent stores
 * it, so that a restarted node has rules before the API server responds.
 */
import type { Namespace, NetworkPolicy, Pod } from '../../../api/kinds/kinds.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The specification of a NetworkPolicy, as the API server stores it. */
export type PolicySpec = NonNullable<NetworkPolicy['spec']>;

/** A peer of an ingress or egress rule. */
export type PolicyPeer = NonNullable<NonNullable<PolicySpec['ingress']>[number]['from']>[number];

interface NamedPort {
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
}

/** A pod with addresses of its own. */
export interface PolicyPod {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly ips: readonly string[];
  readonly ports: readonly NamedPort[];
  /** Whether it runs on this node, which then enforces the policies that select it. */
  readonly isLocal: boolean;
}

/** All inputs of a compilation. They are stored in this form, so that fields may be added, but must keep their meaning. */
export interface PolicyInputs {
  readonly policies: readonly { readonly namespace: string; readonly name: string; readonly spec: PolicySpec }[];
  readonly namespaces: readonly { readonly name: string; readonly labels: Readonly<Record<string, string>> }[];
  /** The pods of the cluster, and the name server of this node in place of pods of CoreDNS. */
  readonly pods: readonly PolicyPod[];
  /** The addresses at which this node answers the queries of its pods. Agents of earlier releases stored none. */
  readonly nameServers?: readonly string[];
}

/** A pod of this node whose sandbox this agent has seen. Its status may not have the addresses yet. */
export interface LocalPod {
  readonly pod: Pod;
  readonly ips: readonly string[];
}

interface ObservedState {
  readonly policies: readonly NetworkPolicy[];
  readonly namespaces: readonly Namespace[];
  readonly pods: readonly Pod[];
  readonly nodeName: string;
  /** The addresses of `kube-dns`, if the nodes serve it. */
  readonly nameServers?: readonly string[];
}

/**
 * Reads the inputs from the objects of the API. Pods on the host's network are left out: their traffic is that of the node,
 * and only an ipBlock can match it.
 */
export function policyInputs({ policies, namespaces, pods, nodeName, nameServers = [] }: ObservedState): PolicyInputs {
  const createdAt = ({ metadata }: Pod): string => String(metadata.creationTimestamp ?? '');
  return {
    policies: policies.map(({ metadata, spec }) => ({
      namespace: metadata.namespace ?? '',
      name: metadata.name ?? '',
      spec: spec ?? {},
    })),
    namespaces: namespaces.map(({ metadata }) => ({ name: metadata.name ?? '', labels: metadata.labels ?? {} })),
    pods: [
      ...nameServerPods(nameServers),
      ...pods
        .filter(hasNetwork)
        .sort((a, b) => (createdAt(a) < createdAt(b) ? 1 : createdAt(a) > createdAt(b) ? -1 : 0))
        .map((pod) => policyPod(pod, { ips: addressesOf(pod), isLocal: pod.spec?.nodeName === nodeName })),
    ],
    nameServers,
  };
}

/**
 * Adds the pods whose sandboxes are known here, by `namespacedName`. If two pods have the same address, the one whose sandbox
 * is known has it, or else the newer one: the other has terminated.
 */
export function withLocalPods(inputs: PolicyInputs, local: ReadonlyMap<string, LocalPod>): PolicyInputs {
  const usedIps = new Set<string>();
  const claimed = (ips: readonly string[]): string[] =>
    ips.filter((ip) => ip !== '' && !usedIps.has(ip) && usedIps.add(ip) !== undefined);
  const byName = new Map(inputs.pods.map((pod) => [`${pod.namespace}/${pod.name}`, pod]));
  const sandboxed = [...local].map(([key, { pod, ips }]): PolicyPod => {
    // Labels may have changed since the sandbox was created.
    const labels = byName.get(key)?.labels ?? pod.metadata.labels ?? {};
    return { ...policyPod(pod, { ips: claimed(ips), isLocal: true }), labels };
  });
  const others = inputs.pods
    .filter(({ namespace, name }) => !local.has(`${namespace}/${name}`))
    .map((pod) => ({ ...pod, ips: claimed(pod.ips) }));
  return { ...inputs, pods: [...sandboxed, ...others].filter(({ ips }) => ips.length > 0) };
}

/** Returns the name server of this node as a pod of CoreDNS (`name-servers.ts`), which the selectors of egress rules match. */
function nameServerPods(ips: readonly string[]): PolicyPod[] {
  if (ips.length === 0) return [];
  return [
    {
      ...{ namespace: SYSTEM_NAMESPACE, name: 'kube-dns', labels: { 'k8s-app': 'kube-dns' }, ips, isLocal: false },
      ports: [
        { name: 'dns', protocol: 'UDP', port: 53 },
        { name: 'dns-tcp', protocol: 'TCP', port: 53 },
      ],
    },
  ];
}

function policyPod(pod: Pod, { ips, isLocal }: Pick<PolicyPod, 'ips' | 'isLocal'>): PolicyPod {
  // Of the init containers, only sidecars serve ports while the pod runs.
  const sidecars = (pod.spec?.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always');
  const containers = [...sidecars, ...(pod.spec?.containers ?? [])];
  return {
    namespace: pod.metadata.namespace ?? '',
    name: pod.metadata.name ?? '',
    labels: pod.metadata.labels ?? {},
    ips,
    ports: containers.flatMap(({ ports }) =>
      (ports ?? []).flatMap(({ name, protocol, containerPort }) =>
        name === undefined || name === '' ? [] : [{ name, protocol: protocol ?? 'TCP', port: containerPort }],
      ),
    ),
    isLocal,
  };
}

function hasNetwork({ spec, status }: Pod): boolean {
  return spec?.hostNetwork !== true && status?.phase !== 'Succeeded' && status?.phase !== 'Failed';
}

function addressesOf({ status }: Pod): readonly string[] {
  const ips = (status?.podIPs ?? []).map(({ ip }) => ip ?? '');
  return ips.length > 0 ? ips : [status?.podIP ?? ''];
}

/** Whether a change of a pod can change rules. */
export function concernsPolicies(before: Pod, after: Pod): boolean {
  return (
    hasNetwork(before) !== hasNetwork(after) ||
    before.metadata.uid !== after.metadata.uid ||
    before.spec?.nodeName !== after.spec?.nodeName ||
    addressesOf(before).join() !== addressesOf(after).join() ||
    !sameLabels(before.metadata.labels ?? {}, after.metadata.labels ?? {})
  );
}

/** Compares two sets of labels, in any order of their keys. */
export function sameLabels(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key]);
}
