/** Lists the resources that the API serves, each in the first version that discovery has. */
import type { Resource } from '../../api/client/client.ts';
import type { ResourceCatalog } from '../model/rest.ts';

/** A resource with its verbs, as discovery lists them. */
export interface ServedResource extends Resource {
  readonly verbs: readonly string[];
}

/** Lists the served resources. Events, which two groups serve, are listed once, in the core group. */
export function servedResources(catalog: Pick<ResourceCatalog, 'resources'>): ServedResource[] {
  const seen = new Set<string>();
  const served: ServedResource[] = [];
  for (const { group, version, resource, kind, namespaced, verbs } of catalog.resources()) {
    const key = `${group}/${resource}`;
    if (seen.has(key) || key === 'events.k8s.io/events') continue;
    seen.add(key);
    served.push({ group, version, resource, kind, namespaced, verbs });
  }
  return served;
}

/**
 * Whether objects of the resource can be listed, watched and deleted, so that garbage collection and the deletion of namespaces
 * process them.
 */
export function isContent({ verbs }: ServedResource): boolean {
  return ['list', 'watch', 'delete'].every((verb) => verbs.includes(verb));
}
