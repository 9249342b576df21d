/** Defines the table columns of endpoints and endpoint slices. */
import type { V1Endpoints, V1EndpointSlice } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

const SHOWN = 3;

/** Shows the first items and the number of the others. */
function firstOf(items: readonly string[], none: string): string {
  if (items.length === 0) return none;
  const shown = items.slice(0, SHOWN).join(',');
  return items.length <= SHOWN ? shown : `${shown} + ${items.length - SHOWN} more...`;
}

const hostPort = (ip: string, port: number): string => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`);

export const endpointsColumns: TableColumns = {
  columns: [nameColumn, column('Endpoints', field('core.v1.Endpoints', 'subsets')), ageColumn],
  cells(object) {
    const subsets = (object as Kind<Pick<V1Endpoints, 'subsets'>>).subsets ?? [];
    if (subsets.length === 0) return [nameOf(object), '<none>', age(object)];
    const targets = subsets.flatMap(({ addresses = [], ports = [] }) => {
      const ips = addresses.map(({ ip = '' }) => ip);
      return ports.length === 0 ? ips : ports.flatMap(({ port = 0 }) => ips.map((ip) => hostPort(ip, port)));
    });
    return [nameOf(object), firstOf(targets, ''), age(object)];
  },
};

export const endpointSliceColumns: TableColumns = {
  columns: [
    nameColumn,
    column('AddressType', field('discovery.v1.EndpointSlice', 'addressType')),
    column('Ports', field('discovery.v1.EndpointSlice', 'ports')),
    column('Endpoints', field('discovery.v1.EndpointSlice', 'endpoints')),
    ageColumn,
  ],
  cells(object) {
    const { addressType, endpoints, ports } = object as Kind<
      Pick<V1EndpointSlice, 'addressType' | 'endpoints' | 'ports'>
    >;
    const numbers = (ports ?? []).map(({ port, name }) => (port === undefined ? (name ?? '*') : String(port)));
    const addresses = (endpoints ?? []).flatMap((endpoint) => endpoint.addresses ?? []);
    return [nameOf(object), addressType ?? '', firstOf(numbers, '<unset>'), firstOf(addresses, '<unset>'), age(object)];
  },
};
