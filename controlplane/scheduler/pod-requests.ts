/**
 * Computes the resource requests of a pod: the sum of its containers and sidecars, but at least the maximum of its init
 * sequence, overridden by pod-level resources, plus overhead. During a resize, the larger value counts.
 */
import { approximate, parseQuantity } from '../../api/meta/quantity.ts';
import type { Pod } from '../../api/kinds/kinds.ts';

/** CPU is in thousandths, and all other resources are in units. */
export type Resources = Map<string, number>;

type Container = NonNullable<Pod['spec']>['containers'][number];
type ResourceTexts = Readonly<Record<string, string>> | undefined;

/** The requests that scoring assumes for containers without requests. */
const ASSUMED: Readonly<Record<string, number>> = { cpu: 100, memory: 200 * 1024 * 1024 };

const amounts = new Map<string, number>();
/** The maximum number of parsed texts that are kept. */
const AMOUNTS_KEPT = 4096;

/** Returns `cpu` in thousandths and other resources in units, rounded up. */
export function amountOf(resource: string, text: string): number {
  const key = resource === 'cpu' ? `c${text}` : text;
  const cached = amounts.get(key);
  if (cached !== undefined) return cached;
  const value = approximate(parseQuantity(text));
  const amount = Math.ceil(resource === 'cpu' ? Number((value * 1000).toFixed(3)) : value);
  if (amounts.size >= AMOUNTS_KEPT) amounts.clear();
  amounts.set(key, amount);
  return amount;
}

/**
 * Parses the amounts by resource name. CPU is in thousandths of a core, and other resources are in units. Amounts are
 * rounded up.
 */
export function resourcesOf(texts: ResourceTexts): Resources {
  const resources: Resources = new Map();
  for (const [name, text] of Object.entries(texts ?? {})) resources.set(name, amountOf(name, text));
  return resources;
}

function add(into: Resources, more: Resources): void {
  for (const [name, amount] of more) into.set(name, (into.get(name) ?? 0) + amount);
}

function atLeast(into: Resources, other: Resources): void {
  for (const [name, amount] of other) into.set(name, Math.max(into.get(name) ?? 0, amount));
}

function sum(a: Resources, b: Resources): Resources {
  const both = new Map(a);
  add(both, b);
  return both;
}

/** The requests of a whole pod. */
export interface PodRequests {
  readonly actual: Resources;
  /** The requests with assumed amounts for containers without requests. Only the CPU and memory of containers count. */
  readonly forScoring: Resources;
}

/** Computes the requests from the specification of the pod, and during a resize also from its status. */
export function podRequests(pod: Pod): PodRequests {
  return { actual: total(pod, containerRequests), forScoring: total(pod, scoringRequests) };
}

type RequestsOf = (container: Container, pod: Pod) => Resources;

function containerRequests(container: Container, pod: Pod): Resources {
  const requests = resourcesOf(container.resources?.requests);
  const statuses = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])];
  const status = statuses.find((one) => one.name === container.name);
  // During a resize, the node must have room for both the desired and the allocated resources.
  if (status?.allocatedResources !== undefined) atLeast(requests, resourcesOf(status.allocatedResources));
  if (status?.resources?.requests !== undefined) atLeast(requests, resourcesOf(status.resources.requests));
  return requests;
}

function scoringRequests(container: Container, pod: Pod): Resources {
  const requests = containerRequests(container, pod);
  return new Map(Object.entries(ASSUMED).map(([name, amount]) => [name, requests.get(name) ?? amount]));
}

function total(pod: Pod, requestsOf: RequestsOf): Resources {
  const requests: Resources = new Map();
  for (const container of pod.spec?.containers ?? []) add(requests, requestsOf(container, pod));
  const sidecars: Resources = new Map();
  const atInit: Resources = new Map();
  for (const container of pod.spec?.initContainers ?? []) {
    const containerAmounts = requestsOf(container, pod);
    if (container.restartPolicy === 'Always') {
      add(requests, containerAmounts);
      add(sidecars, containerAmounts);
      atLeast(atInit, sidecars);
    } else atLeast(atInit, sum(containerAmounts, sidecars));
  }
  atLeast(requests, atInit);
  for (const [name, text] of Object.entries(pod.spec?.resources?.requests ?? {})) {
    if (name === 'cpu' || name === 'memory' || name.startsWith('hugepages-')) requests.set(name, amountOf(name, text));
  }
  for (const [name, text] of Object.entries(pod.spec?.overhead ?? {})) {
    requests.set(name, (requests.get(name) ?? 0) + amountOf(name, text));
  }
  return requests;
}
