/** Registers the number of stored objects by resource, and the size of the storage's file. Both are read at each scrape. */
import { statSync } from 'node:fs';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import { storageSize } from '../storage/size-metric.ts';
import type { Storage } from '../storage/storage.ts';
import { groupResourceName } from '../../api/meta/group-resource.ts';

interface StorageMetricsOptions {
  readonly storages: readonly Pick<Storage, 'counts'>[];
  /** The path of the SQLite database. It is empty for another storage, which has no file of this process. */
  readonly file: string;
}

/** Registers the metrics of the storage. The names and help texts are those of kube-apiserver. */
export function registerStorageMetrics(metrics: MetricsRegistry, { storages, file }: StorageMetricsOptions): void {
  const stored = metrics.gauge({
    name: 'apiserver_storage_objects',
    help: 'Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.',
    labels: ['resource'],
  });
  const objects = metrics.gauge({
    name: 'apiserver_resource_objects',
    help: 'Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.',
    labels: ['group', 'resource'],
  });
  const size = storageSize(metrics);
  metrics.collect(() => {
    for (const [prefix, count] of storages.flatMap((storage) => [...storage.counts()])) {
      const [, storedGroup = '', resource = ''] = prefix.split('/');
      const group = storedGroup === 'core' ? '' : storedGroup;
      stored.with(groupResourceName({ group, resource })).set(count);
      objects.with(group, resource).set(count);
    }
    const bytes = file === '' ? undefined : statSync(file, { throwIfNoEntry: false })?.size;
    if (bytes !== undefined) size.with('orchlet').set(bytes);
  });
}
