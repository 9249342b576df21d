/**
 * Keeps the status of quotas: the usage of limited resources, counted from the existing objects. Admission charges new objects.
 */
import type { Informer } from '../../../api/client/informer.ts';
import type { DeviceClass, Pod, ResourceClaim, ResourceQuota } from '../../../api/kinds/kinds.ts';
import { resourceQuotas, type ResourceOf, pods, deviceClasses, resourceClaims } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { addQuantities, formatQuantity, newQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { ClaimLookup } from '../../security/admission/claim-owners.ts';
import { isExtendedRequest, PLAIN_COUNTS, quotaMatches, usageOf } from '../../security/admission/quota-usage.ts';
import { every, keyOf, ReconcileLoop, splitKey, type RunController } from '../controller.ts';
import { isPodFinished } from '../pod-state.ts';
import { servedResources } from '../served-resources.ts';
import { isResource } from '../../../api/meta/group-resource.ts';

interface CountedResource {
  readonly group: string;
  readonly resource: string;
}

const POD_AMOUNT = /^(?:cpu|memory|ephemeral-storage|hugepages-.+|requests\..+|limits\..+)$/;

/** Returns the resource whose objects a name of `spec.hard` counts; `undefined` if there is none. */
export function countedBy(name: string): CountedResource | undefined {
  if (name.startsWith('count/')) {
    const [resource = '', ...group] = name.slice('count/'.length).split('.');
    return { group: group.join('.'), resource };
  }
  if (PLAIN_COUNTS.has(name)) return { group: '', resource: name };
  if (name === 'services.nodeports' || name === 'services.loadbalancers') return { group: '', resource: 'services' };
  if (name === 'requests.storage' || name.includes('.storageclass.storage.k8s.io/'))
    return { group: '', resource: 'persistentvolumeclaims' };
  if (name.endsWith('.deviceclass.resource.k8s.io/devices'))
    return { group: 'resource.k8s.io', resource: 'resourceclaims' };
  return POD_AMOUNT.test(name) ? { group: '', resource: 'pods' } : undefined;
}

/** Returns all resources whose objects count for a name. Devices of claims count as the extended resources of their classes. */
function countersOf(name: string): readonly CountedResource[] {
  const counted = countedBy(name);
  if (counted === undefined) return [];
  return isExtendedRequest(name) && counted.resource === 'pods' ? [counted, resourceClaims] : [counted];
}

const countersOfQuota = ({ spec }: ResourceQuota): readonly CountedResource[] =>
  Object.keys(spec?.hard ?? {}).flatMap(countersOf);

const idOf = ({ group, resource }: CountedResource): string => `${group}/${resource}`;

/** Computes the usage of a quota. `objectsOf` returns the objects of its namespace, or `undefined` without such a resource. */
function computeUsed(
  quota: ResourceQuota,
  objectsOf: (counted: CountedResource) => readonly KubeObject[] | undefined,
  lookup: ClaimLookup,
): Record<string, string> {
  const byResource = new Map<string, { readonly counted: CountedResource; readonly names: string[] }>();
  for (const name of Object.keys(quota.spec?.hard ?? {})) {
    for (const counted of countersOf(name)) {
      const entry = byResource.get(idOf(counted));
      if (entry === undefined) byResource.set(idOf(counted), { counted, names: [name] });
      else entry.names.push(name);
    }
  }
  const used = new Map<string, Quantity>();
  for (const { counted, names } of byResource.values()) {
    const objects = objectsOf(counted);
    if (objects === undefined) continue;
    const totals = new Map<string, Quantity>(names.map((name) => [name, used.get(name) ?? newQuantity(0)]));
    for (const object of objects) {
      if (!quotaMatches(quota, counted.resource, object)) continue;
      const usage = usageOf(counted.group, counted.resource, object, lookup);
      for (const [name, total] of totals) {
        const amount = usage.get(name);
        if (amount !== undefined) totals.set(name, addQuantities(total, amount));
      }
    }
    for (const [name, total] of totals) used.set(name, total);
  }
  return Object.fromEntries([...used].map(([name, total]) => [name, formatQuantity(total)]));
}

/** Reconciles `concurrentResourceQuotaSyncs` quotas at a time. */
export const runResourceQuota: RunController = async (environment, signal) => {
  const { client, informers, options, catalog } = environment;
  const quotas = informers.for(resourceQuotas);
  const watched = new Map<string, Informer>();

  const lookup = claimLookup(watched);
  const loop = new ReconcileLoop(environment, {
    workers: options.concurrentResourceQuotaSyncs,
    reconcile: async (key) => {
      const { namespace, name } = splitKey(key);
      const quota = quotas.get(namespace, name);
      if (quota === undefined) return;
      await watchCounted(quota);
      const used = computeUsed(quota, (counted) => watched.get(idOf(counted))?.list(namespace), lookup);
      const status = { hard: { ...quota.spec?.hard }, used };
      const current = { hard: quota.status?.hard ?? {}, used: quota.status?.used ?? {} };
      if (quota.status?.hard !== undefined && semanticEqual(current, status)) return;
      await tolerate(client.update(resourceQuotas, { ...quota, status }, { subresource: 'status' }), isNotFound);
    },
  });

  /** Starts to watch the resources that the quota counts, and waits until they are synced. */
  async function watchCounted(quota: ResourceQuota): Promise<void> {
    const counters = countersOfQuota(quota);
    const wanted = counters.includes(resourceClaims) ? [...counters, deviceClasses] : counters;
    await Promise.all(
      wanted.map(async (counted) => {
        const informer = watched.get(idOf(counted));
        if (informer !== undefined) return informer.synced(signal);
        const served = servedResources(catalog).find((one) => isWatchable(one, counted));
        if (served === undefined) return;
        const cache = informers.for(served as ResourceOf<KubeObject>);
        watched.set(idOf(counted), cache);
        follow(cache, counted);
        return cache.synced(signal);
      }),
    );
  }

  /** Counts again when objects are deleted or shrink, which reduces the usage. */
  function follow(cache: Informer, counted: CountedResource): void {
    const replenish = (object: KubeObject): void => {
      for (const quota of quotas.list(object.metadata.namespace ?? '')) {
        if (countersOfQuota(quota).some((counter) => idOf(counter) === idOf(counted))) loop.enqueue(quota);
      }
    };
    cache.addHandler({
      update: (previous, current) => {
        if (mayReduceUsage(counted, previous, current)) replenish(current);
      },
      delete: replenish,
    });
  }

  quotas.addHandler({
    add: loop.enqueue,
    update: (previous, current) => {
      if (!semanticEqual(previous.spec, current.spec)) loop.enqueue(current);
    },
  });
  const resync = every(environment, options.resourceQuotaSyncPeriodMs, signal, async () => {
    for (const quota of quotas.list()) loop.queue.add(keyOf(quota));
  });
  await Promise.all([loop.run(signal, quotas), resync]);
};

function isWatchable(served: ReturnType<typeof servedResources>[number], counted: CountedResource): boolean {
  const isNamespaced = counted !== deviceClasses;
  return isResource(served, counted) && served.namespaced === isNamespaced && served.verbs.includes('watch');
}

/** Reads claims and what they refer to from the informers, which run for quotas that need them. */
function claimLookup(watched: ReadonlyMap<string, Informer>): ClaimLookup {
  return {
    deviceClass: (name) => watched.get(idOf(deviceClasses))?.get('', name) as DeviceClass | undefined,
    pod: (namespace, name) => watched.get(idOf(pods))?.get(namespace, name) as Pod | undefined,
    claims: (namespace) => (watched.get(idOf(resourceClaims))?.list(namespace) ?? []) as ResourceClaim[],
  };
}

function mayReduceUsage(counted: CountedResource, previous: KubeObject, current: KubeObject): boolean {
  if (counted.group !== '') return false;
  switch (counted.resource) {
    case 'pods':
      return (
        (!isPodFinished(previous as Pod) && isPodFinished(current as Pod)) ||
        !semanticEqual((previous as Pod).spec?.containers, (current as Pod).spec?.containers)
      );
    case 'services':
    case 'persistentvolumeclaims':
      return !semanticEqual(previous['spec'], current['spec']);
    default:
      return false;
  }
}
