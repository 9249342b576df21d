/**
 * Lists why a pod does not fit on this node, in the order in which the kubelet checks: resources, affinity, ports, taints.
 * Pure.
 */
import { podSelectsNode, toleratesTaint } from '../../../api/kinds/node-selection.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { addQuantities, milliUnits, parseQuantity, type Quantity, wholeUnits } from '../../../api/meta/quantity.ts';
import type { NodeObject } from '../../base/model/node.ts';
import type { Pod } from '../../base/model/pod.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import { podResources, requestsOf } from '../../runtime/kuberuntime/resources.ts';

/** A resource of which too little is free. Amounts of CPU are in millicores, those of other resources in whole units. */
export interface LackingResource {
  readonly kind: 'resource';
  readonly resource: string;
  readonly requested: bigint;
  readonly used: bigint;
  readonly capacity: bigint;
}

/** Why a pod does not fit: a resource that is short, or a predicate with the name and the text of the scheduler. */
export type Misfit =
  | LackingResource
  | { readonly kind: 'predicate'; readonly name: string; readonly description: string };

/** Returns all reasons; an empty list if the pod fits beside the others. */
export function misfits(pod: Pod, others: readonly Pod[], node: NodeObject): readonly Misfit[] {
  return [
    ...lackingResources(pod, others, node),
    ...(selectsNode(pod, node) ? [] : [predicate('NodeAffinity', "node(s) didn't match Pod's node affinity/selector")]),
    ...(portsAreFree(pod, others)
      ? []
      : [predicate('NodePorts', "node(s) didn't have free ports for the requested pod ports")]),
    ...(toleratesTaints(pod, node)
      ? []
      : [predicate('TaintToleration', "node(s) had taints that the pod didn't tolerate")]),
  ];
}

/** Returns how much of a resource the pod requests. Every pod requests one unit of the resource `pods`. */
export function requestOf(pod: Pod, resource: string): bigint {
  return resource === 'pods' ? 1n : amount(resource, podResources(pod, requestsOf)[resource]);
}

function amount(resource: string, text: string | undefined): bigint {
  return text === undefined ? 0n : units(resource, parseQuantity(text));
}

function units(resource: string, quantity: Quantity): bigint {
  return resource === 'cpu' ? milliUnits(quantity) : wholeUnits(quantity);
}

function predicate(name: string, description: string): Misfit {
  return { kind: 'predicate', name, description };
}

/** The resources whose lack the kubelet reports first, after `pods`. */
const FIRST = ['cpu', 'memory', 'ephemeral-storage'];

function lackingResources(pod: Pod, others: readonly Pod[], node: NodeObject): readonly LackingResource[] {
  const allocatable = (node.status?.allocatable ?? {}) as Record<string, string>;
  const lacking: LackingResource[] = [];
  const count = allocatable['pods'];
  if (count !== undefined && others.length + 1 > Number(count)) {
    const used = BigInt(others.length);
    lacking.push({ kind: 'resource', resource: 'pods', requested: 1n, used, capacity: amount('pods', count) });
  }
  const wanted = Object.entries(podResources(pod, requestsOf))
    .map(([name, text]) => ({ name, requested: amount(name, text) }))
    .filter(({ requested }) => requested > 0n)
    .toSorted((a, b) => rank(a.name) - rank(b.name));
  if (wanted.length === 0) return lacking;
  const mappings = pod.status?.extendedResourceClaimStatus?.requestMappings ?? [];
  const ofClaim = new Set(mappings.map(({ resourceName }) => resourceName));
  const requests = others.map((other) => podResources(other, requestsOf));
  for (const { name, requested } of wanted) {
    // A resource claim provides this resource, and the scheduler has allocated the devices of the claim.
    if (ofClaim.has(name)) continue;
    const total = ownMember(allocatable, name);
    // The scheduler alone accounts for extended resources that the node does not report.
    if (total === undefined && (name === 'ephemeral-storage' || isExtended(name))) continue;
    const capacity = amount(name, total);
    const used = sum(name, requests);
    if (used + requested > capacity) lacking.push({ kind: 'resource', resource: name, requested, used, capacity });
  }
  return lacking;
}

function rank(resource: string): number {
  const place = FIRST.indexOf(resource);
  return place === -1 ? FIRST.length : place;
}

/** Adds up the requests before rounding, so that many small requests do not count as more than they are. */
function sum(resource: string, requests: readonly Readonly<Record<string, string>>[]): bigint {
  let total = parseQuantity('0');
  for (const { [resource]: text } of requests)
    if (text !== undefined) total = addQuantities(total, parseQuantity(text));
  return units(resource, total);
}

function isExtended(name: string): boolean {
  return name.includes('/') && !name.startsWith('kubernetes.io/') && !name.startsWith('requests.');
}

function selectsNode(pod: Pod, node: NodeObject): boolean {
  const { name, labels = {} } = node.metadata;
  return podSelectsNode(pod, { name, labels });
}

/** Checks only NoExecute taints, and not for static pods, as the kubelet does. */
function toleratesTaints(pod: Pod, node: NodeObject): boolean {
  if (isStaticPod(pod)) return true;
  return (node.spec?.taints ?? []).every(
    (taint) => taint.effect !== 'NoExecute' || toleratesTaint(pod.spec.tolerations ?? [], taint),
  );
}

interface HostPort {
  readonly port: number;
  readonly protocol: string;
  /** Empty: all addresses of the host. */
  readonly ip: string;
}

/** Returns the ports that the pod takes on the host. */
export function hostPorts(pod: Pod): readonly HostPort[] {
  return [
    ...pod.spec.containers,
    ...(pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always'),
  ].flatMap((container) =>
    (container.ports ?? [])
      .map(({ hostPort, containerPort, hostIP = '', protocol = 'TCP' }) => ({
        port: hostPort ?? (pod.spec.hostNetwork === true ? (containerPort ?? 0) : 0),
        ip: hostIP === '0.0.0.0' || hostIP === '::' ? '' : hostIP,
        protocol,
      }))
      .filter(({ port }) => port !== 0),
  );
}

function portsAreFree(pod: Pod, others: readonly Pod[]): boolean {
  const wanted = hostPorts(pod);
  if (wanted.length === 0) return true;
  // Two pods may have tens of thousands of ports, so that pairs are not compared.
  const addresses = new Map<string, Set<string>>();
  for (const { port, protocol, ip } of wanted) {
    const key = `${protocol} ${port}`;
    addresses.set(key, (addresses.get(key) ?? new Set()).add(ip));
  }
  return !others.flatMap(hostPorts).some(({ port, protocol, ip }) => {
    const ips = addresses.get(`${protocol} ${port}`);
    return ips !== undefined && (ip === '' || ips.has('') || ips.has(ip));
  });
}
