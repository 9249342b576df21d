/**
 * Finds the storage that has the objects of a resource: one storage has all objects but those of `--etcd-servers-overrides`.
 * Each storage counts revisions of its own, so a resource version is comparable only with those of the same resource.
 */
import type { Storage } from './storage.ts';

/** A storage that has some resources alone. */
export interface StorageOverride {
  readonly storage: Storage;
  /** The resources as keys begin with them: `/core/events/`. */
  readonly resources: ReadonlySet<string>;
}

/** All storages of a control plane. */
export interface Storages {
  readonly storage: Storage;
  readonly overrides: readonly StorageOverride[];
}

/** Returns the beginning of the keys of a resource: `/core/events/`. The core group is `''`. */
export const prefixOf = (group: string, resource: string): string => `/${group === '' ? 'core' : group}/${resource}/`;

/** Returns the storage of a resource. `prefix` is the beginning of its keys. */
export function storageOf({ storage, overrides }: Storages, prefix: string): Storage {
  return overrides.find(({ resources }) => resources.has(prefix))?.storage ?? storage;
}

/** Returns all storages. The first one has all resources without an override. */
export function allStorages({ storage, overrides }: Storages): readonly Storage[] {
  return [storage, ...overrides.map((one) => one.storage)];
}
