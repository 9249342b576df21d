/** Implements listers of objects that never change, for the parts of the control plane that read objects through listers. */
import type { Resource } from '../../api/client/client.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import type { ResourceOf } from '../../api/client/resources.ts';
import type { Lister, Listers } from '../../controlplane/model/listers.ts';

/** Returns listers of these objects, which have all of them from the start. */
export function fixedListers(
  objects: readonly { readonly resource: Resource; readonly object: KubeObject }[],
): Listers {
  return {
    of<T extends KubeObject>(resource: ResourceOf<T>): Lister<T> {
      const mine = (): T[] =>
        objects
          .filter((row) => row.resource.resource === resource.resource && row.resource.group === resource.group)
          .map((row) => row.object as T);
      const get = (namespace: string, name: string): T | undefined =>
        mine().find((object) => (object.metadata.namespace ?? '') === namespace && object.metadata.name === name);
      return {
        get,
        live: (namespace, name) => Promise.resolve(get(namespace, name)),
        list: (namespace) =>
          mine().filter((object) => namespace === undefined || (object.metadata.namespace ?? '') === namespace),
        subscribe: (listener) => mine().forEach((current) => listener({ current, previous: undefined })),
        synced: () => Promise.resolve(),
      };
    },
    synced: () => Promise.resolve(),
  };
}
