/** Component statuses: an old view that says of each part of the control plane that it is well. Nothing is stored. */
import type { KubeObject } from '../../../api/meta/object.ts';
import { newNotFound } from '../../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import type { Rest } from '../rest.ts';
import { looseEntry } from '../store.ts';

const COMPONENTS = ['controller-manager', 'etcd-0', 'scheduler'];

function statusOf(name: string): KubeObject {
  return {
    kind: 'ComponentStatus',
    apiVersion: 'v1',
    metadata: { name, creationTimestamp: null },
    conditions: [{ type: 'Healthy', status: 'True', message: 'ok' }],
  };
}

export function createComponentStatusRest(info: ResourceInfo): Rest {
  return {
    info,
    subresource: undefined,
    get(_context, _namespace, name) {
      if (!COMPONENTS.includes(name)) throw newNotFound({ group: '', resource: 'componentstatuses' }, name);
      return looseEntry(statusOf(name));
    },
    list: () => ({
      entries: COMPONENTS.map((name) => looseEntry(statusOf(name))),
      resourceVersion: '',
      continue: '',
      remainingItemCount: undefined,
    }),
  };
}
