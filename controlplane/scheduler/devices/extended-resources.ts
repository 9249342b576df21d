/**
 * Converts requests for extended resources into requests for devices, for the resources that a device class backs and that no
 * device plugin offers on the node. One claim, which the scheduler creates, has all such requests of a pod. Pure.
 */
import { CLASS_RESOURCE_PREFIX, EXTENDED_CLAIM } from '../../../api/kinds/device-claims.ts';
import type { DeviceClass, Pod, ResourceClaim } from '../../../api/kinds/kinds.ts';
import type { NodeInfo } from '../node-info.ts';
import type { PodInfo } from '../pod-info.ts';
import { amountOf } from '../pod-requests.ts';

type Container = NonNullable<Pod['spec']>['containers'][number];
type ExtendedStatus = NonNullable<NonNullable<Pod['status']>['extendedResourceClaimStatus']>;
type DeviceRequest = NonNullable<NonNullable<NonNullable<ResourceClaim['spec']>['devices']>['requests']>[number];

/** Which request of the claim provides which resource of which container. */
export type RequestMapping = ExtendedStatus['requestMappings'][number];

/** The classes by the extended resources that they back. */
export class ExtendedResources {
  readonly #classes = new Map<string, DeviceClass>();

  /**
   * The newest of several classes that back one resource counts, and the first by name if they have the same age, as in
   * kube-scheduler.
   */
  constructor(classes: readonly DeviceClass[]) {
    for (const one of classes) {
      this.#classes.set(`${CLASS_RESOURCE_PREFIX}${one.metadata.name}`, one);
      const resource = one.spec?.extendedResourceName;
      if (resource === undefined) continue;
      const other = this.#classes.get(resource);
      if (other === undefined || isPreferred(one, other)) this.#classes.set(resource, one);
    }
  }

  /** Returns the class whose devices satisfy a request for the extended resource. */
  classOf(resource: string): DeviceClass | undefined {
    return this.#classes.get(resource);
  }
}

function isPreferred(one: DeviceClass, other: DeviceClass): boolean {
  const [created = '', otherCreated = ''] = [one, other].map(({ metadata }) => metadata.creationTimestamp ?? '');
  return created === otherCreated
    ? (one.metadata.name ?? '') < (other.metadata.name ?? '')
    : Date.parse(created) > Date.parse(otherCreated);
}

/** Returns the resources that the pod requests and that a class backs. */
export function backedResources({ requests }: PodInfo, resources: ExtendedResources): readonly string[] {
  return [...requests.actual].flatMap(([name, amount]) =>
    amount > 0 && resources.classOf(name) !== undefined ? [name] : [],
  );
}

/** Whether devices provide the resource on the node, because no device plugin does. */
export function isProvidedByDevices(resource: string, node: NodeInfo, resources: ExtendedResources): boolean {
  return (node.allocatable.get(resource) ?? 0) === 0 && resources.classOf(resource) !== undefined;
}

/** A claim that does not exist yet, with the requests of the pod for one node. */
interface ExtendedClaim {
  readonly claim: ResourceClaim;
  readonly mappings: readonly RequestMapping[];
}

/** Returns the claim for the resources that devices of the node provide, or `undefined` if there are none. */
export function extendedClaimOn(pod: PodInfo, node: NodeInfo, resources: ExtendedResources): ExtendedClaim | undefined {
  const provided = backedResources(pod, resources).filter((name) => isProvidedByDevices(name, node, resources));
  if (provided.length === 0) return undefined;
  const parts = provided
    .toSorted()
    .map((name) => requestsFor(name, resources.classOf(name)?.metadata.name ?? '', pod.pod));
  const requests = parts
    .flatMap((part) => part.requests)
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, deviceClassName, count }): DeviceRequest => ({
      name,
      exactly: { deviceClassName, allocationMode: 'ExactCount', count },
    }));
  return { claim: claimFor(pod, requests), mappings: parts.flatMap((part) => part.mappings) };
}

function claimFor({ pod, uid, namespace }: PodInfo, requests: readonly DeviceRequest[]): ResourceClaim {
  const { name = '' } = pod.metadata;
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: {
      generateName: `${name}-extended-resources-`,
      namespace,
      annotations: { [EXTENDED_CLAIM]: 'true' },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name, uid, controller: true }],
    },
    spec: { devices: { requests: [...requests] } },
  };
}

interface CountedRequest {
  readonly name: string;
  readonly deviceClassName: string;
  readonly count: number;
}

interface ResourceRequests {
  readonly requests: readonly CountedRequest[];
  readonly mappings: readonly RequestMapping[];
}

/**
 * Returns the requests of all containers for one resource. An init container that ends before the next one begins uses the
 * devices of the containers after it, and only the largest of their further requests counts.
 */
function requestsFor(resource: string, deviceClassName: string, { spec }: Pod): ResourceRequests {
  const init = spec?.initContainers ?? [];
  const containers = [...init, ...(spec?.containers ?? [])];
  const isShortLived = (index: number): boolean => index < init.length && containers[index]?.restartPolicy !== 'Always';
  const indexes = [...containers.keys()];
  const requestsAt = (index: number, reusable: readonly CountedRequest[]): ResourceRequests =>
    requestOf({ containers, index, resource, deviceClassName, reusable });
  const longLived = indexes
    .filter((index) => !isShortLived(index))
    .map((index) => ({ index, ...requestsAt(index, []) }));
  const shortLived = indexes.filter(isShortLived).map((index) =>
    requestsAt(
      index,
      longLived.filter((other) => other.index > index).flatMap(({ requests }) => requests),
    ),
  );
  const shortLivedRequests = shortLived.flatMap(({ requests }) => requests);
  const [largest] = shortLivedRequests.toSorted((a, b) => b.count - a.count);
  const replaced = new Set(shortLivedRequests.map(({ name }) => name));
  return {
    requests: [...(largest === undefined ? [] : [largest]), ...longLived.flatMap(({ requests }) => requests)],
    mappings: [
      ...longLived.flatMap(({ mappings }) => mappings),
      ...shortLived
        .flatMap(({ mappings }) => mappings)
        .map((mapping) =>
          largest !== undefined && replaced.has(mapping.requestName)
            ? { ...mapping, requestName: largest.name }
            : mapping,
        ),
    ],
  };
}

/** Returns the request of one container beyond the devices of `reusable`, and where its devices come from. */
function requestOf({
  containers,
  index,
  resource,
  deviceClassName,
  reusable,
}: {
  readonly containers: readonly Container[];
  readonly index: number;
  readonly resource: string;
  readonly deviceClassName: string;
  readonly reusable: readonly CountedRequest[];
}): ResourceRequests {
  const { name: containerName = '', resources = {} } = containers[index] ?? {};
  const requested = resources.requests ?? {};
  const amount = amountOf(resource, Object.hasOwn(requested, resource) ? (requested[resource] ?? '0') : '0');
  if (amount === 0) return { requests: [], mappings: [] };
  const mappings: RequestMapping[] = [];
  let found = 0;
  for (const { name, count } of reusable) {
    mappings.push({ containerName, resourceName: resource, requestName: name });
    found += count;
    if (found >= amount) return { requests: [], mappings };
  }
  // The name has the index of the container, and that of the resource among the sorted resources of the container.
  const name = `container-${index}-request-${Object.keys(requested).toSorted().indexOf(resource)}`;
  mappings.push({ containerName, resourceName: resource, requestName: name });
  return { requests: [{ name, deviceClassName, count: amount - found }], mappings };
}
