/** Defines the table columns of services. */
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { Service, ServiceSpec } from './service-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, formatLabels, nameColumn, nameOf, orNone } from '../../columns/column.ts';

function externalAddress(service: Service): string {
  const spec = service.spec ?? {};
  const externalIps = spec.externalIPs ?? [];
  switch (spec.type) {
    case 'LoadBalancer': {
      const ofIngress = (service.status?.loadBalancer?.ingress ?? []).flatMap(({ ip = '', hostname = '' }) =>
        ip !== '' ? [ip] : hostname !== '' ? [hostname] : [],
      );
      const all = [...ofIngress, ...externalIps];
      return all.length === 0 ? '<pending>' : all.join(',');
    }
    case 'ExternalName':
      return spec.externalName ?? '';
    default:
      return externalIps.length === 0 ? '<none>' : externalIps.join(',');
  }
}

function portText(spec: ServiceSpec): string {
  const ports = (spec.ports ?? []).map(({ port, nodePort, protocol }) =>
    (nodePort ?? 0) > 0 ? `${port}:${nodePort}/${protocol ?? ''}` : `${port}/${protocol ?? ''}`,
  );
  return ports.length === 0 ? '<none>' : ports.join(',');
}

export const serviceColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Type', field('core.v1.ServiceSpec', 'type')),
    column('Cluster-IP', field('core.v1.ServiceSpec', 'clusterIP')),
    column('External-IP', field('core.v1.ServiceSpec', 'externalIPs')),
    column('Port(s)', field('core.v1.ServiceSpec', 'ports')),
    ageColumn,
    column('Selector', field('core.v1.ServiceSpec', 'selector'), { wide: true }),
  ],
  cells(object: KubeObject) {
    const service = object as Service;
    const spec = service.spec ?? {};
    return [
      nameOf(object),
      spec.type ?? '',
      orNone(spec.clusterIPs?.[0] ?? spec.clusterIP),
      externalAddress(service),
      portText(spec),
      age(object),
      formatLabels(spec.selector as Record<string, string> | undefined),
    ];
  },
};
