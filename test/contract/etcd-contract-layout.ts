/** Defines the layout of etcd in tests whose keys and values are not those of objects. */
import type { EtcdValueLayout } from '../../controlplane/storage/etcd/etcd-reader.ts';
import { plainValues } from '../../controlplane/storage/value-transformer.ts';

/** Returns a layout that puts the prefix before keys and leaves values as they are. */
export const layoutBelow = (prefix: string): EtcdValueLayout => ({
  prefix,
  keys: { toEtcd: (key) => prefix + key, fromEtcd: (key) => key.slice(prefix.length) },
  values: { toEtcd: (value) => value, fromEtcd: (value) => value },
  transformer: plainValues,
});
