/**
 * What a pod asks of a node: the sum of its containers and sidecars, at least the most that its init sequence needs, as
 * overridden by pod-level resources, plus overhead (specification of pod resources; a resize counts with the larger side).
 */
import { approximate, parseQuantity } from '../../api/meta/quantity.ts';
import type { Pod } from '../../api/machinery/kinds.ts';

/** cpu in thousandths, everything else in units. */
export type Resources = Map<string, number>;

type Container = NonNullable<Pod['spec']>['containers'][number];
type ResourceTexts = Readonly<Record<string, string>> | undefined;

/** What scoring assumes of containers that ask for nothing. */
const ASSUMED: Readonly<Record<string, number>> = { cpu: 100, memory: 200 * 1024 * 1024 };

const amounts = new Map<string, number>();
const AMOUNTS_KEPT = 4096;

/** `cpu` in thousandths (rounded up), else the value rounded up. */
export function amountOf(resource: string, text: string): number {
  const key = resource === 'cpu' ? `c${text}` : text;
  const known = amounts.get(key);
  if (known !== undefined) return known;
  const value = approximate(parseQuantity(text));
  const amount = Math.ceil(resource === 'cpu' ? Number((value * 1000).toFixed(3)) : value);
  if (amounts.size >= AMOUNTS_KEPT) amounts.clear();
  amounts.set(key, amount);
  return amount;
}

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

export interface PodRequests {
  readonly actual: Resources;
  /** With the assumed amounts where a container names none; cpu and memory only. */
  readonly forScoring: Resources;
}

export function podRequests(pod: Pod): PodRequests {
  return { actual: total(pod, containerRequests), forScoring: total(pod, scoringRequests) };
}

type RequestsOf = (container: Container, pod: Pod) => Resources;

function containerRequests(container: Container, pod: Pod): Resources {
  const requests = resourcesOf(container.resources?.requests);
  const statuses = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])];
  const status = statuses.find((one) => one.name === container.name);
  // While a resize is under way the node must hold both what is wanted and what is still allocated.
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
    const own = requestsOf(container, pod);
    if (container.restartPolicy === 'Always') {
      add(requests, own);
      add(sidecars, own);
      atLeast(atInit, sidecars);
    } else atLeast(atInit, sum(own, sidecars));
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
