/** Defines the table columns of API services. */
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, nameColumn, nameOf } from '../../columns/column.ts';
import type { ApiService } from './api-service-types.ts';

export const apiServiceColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Service', 'The reference to the service that hosts this API endpoint.'),
    column('Available', 'Whether this service is available.'),
    ageColumn,
  ],
  cells(object) {
    const { spec, status } = object as ApiService;
    const service = spec?.service;
    const available = (status?.conditions ?? []).find(({ type }) => type === 'Available');
    return [
      nameOf(object),
      service === undefined ? 'Local' : `${service.namespace ?? ''}/${service.name ?? ''}`,
      availability(available?.status, available?.reason),
      age(object),
    ];
  },
};

function availability(status: string | undefined, reason = ''): string {
  if (status === undefined) return 'Unknown';
  return status === 'True' ? 'True' : `${status} (${reason})`;
}
