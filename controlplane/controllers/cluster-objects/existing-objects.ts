/**
 * Reads the objects that every cluster has, and creates those that are missing. Every write is safe beside another server that
 * does the same.
 */
import type { Client, Resource } from '../../../api/client/client.ts';
import type { ResourceOf } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isNotFound, tolerate, tolerateRaces } from '../../../api/meta/status-error.ts';

/** Resolves to the stored object, and to `undefined` if it is missing, or if `--runtime-config` leaves the kind out. */
export async function findObject<T extends KubeObject>(
  client: Client,
  resource: ResourceOf<T>,
  namespace: string,
  name: string,
): Promise<T | undefined> {
  return (await tolerate(client.get(resource, namespace, name), isNotFound)) as T | undefined;
}

/**
 * Resolves to all objects of a resource of the cluster by name, and to `undefined` if `--runtime-config` leaves the kind out.
 */
export async function objectsByName<T extends KubeObject>(
  client: Client,
  resource: ResourceOf<T>,
): Promise<ReadonlyMap<string, KubeObject> | undefined> {
  const list = await tolerate(client.list(resource), isNotFound);
  return list && new Map(list.items.map((object) => [object.metadata.name ?? '', object]));
}

/**
 * Creates an object. Leaves an object of that name as it is. Another server may create or delete it, or end its namespace, at
 * the same time.
 */
export async function createIfMissing(client: Client, resource: Resource, object: KubeObject): Promise<void> {
  await tolerateRaces(client.create(resource, object.metadata.namespace ?? '', object));
}
