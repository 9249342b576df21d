/** Serves component statuses, a deprecated API that reports each part of the control plane as healthy. Nothing is stored. */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { newBadRequest, newNotFound } from '../../../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../../../api/schema/schema.ts';
import { column, nameColumn, nameOf } from '../../columns/column.ts';
import type { Rest } from '../../../model/rest.ts';
import type { TableColumns } from '../../strategy.ts';
import { unstoredEntry } from '../../store.ts';

const COMPONENTS = ['controller-manager', 'etcd-0', 'scheduler'];

function statusOf(name: string): KubeObject {
  return {
    kind: 'ComponentStatus',
    apiVersion: 'v1',
    metadata: { name },
    conditions: [{ type: 'Healthy', status: 'True', message: 'ok' }],
  };
}

/** The columns of component statuses. `statusOf` reports all components as healthy. */
export const componentStatusColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Status', 'Status of the component conditions'),
    column('Message', 'Message of the component conditions'),
    column('Error', 'Error of the component conditions'),
  ],
  cells: (object) => [nameOf(object), 'Healthy', 'ok', ''],
};

/** Serves get and list of component statuses. */
export function createComponentStatusRest(info: ResourceInfo): Rest {
  return {
    info,
    subresource: undefined,
    get(_context, _namespace, name) {
      if (!COMPONENTS.includes(name)) throw newNotFound({ group: '', resource: 'componentstatus' }, name);
      return unstoredEntry(statusOf(name));
    },
    list(_context, _namespace, { labelSelector, fieldSelector }) {
      for (const { field } of fieldSelector.requirements) {
        if (field !== 'metadata.name' && field !== 'metadata.namespace')
          throw newBadRequest(
            `${quoteText(field)} is not a known field selector: only "metadata.name", "metadata.namespace"`,
          );
      }
      const chosen = COMPONENTS.filter(
        (name) =>
          labelSelector.matches(undefined) && fieldSelector.matches((field) => (field === 'metadata.name' ? name : '')),
      );
      return {
        entries: chosen.map((name) => unstoredEntry(statusOf(name))),
        resourceVersion: '',
        continue: '',
        remainingItemCount: undefined,
      };
    },
  };
}
