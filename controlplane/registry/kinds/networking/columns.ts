/** Defines the table columns of the networking group. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { formatLabelSelector } from '../../../../api/meta/selector.ts';
import type { Ingress, IngressClass, IpAddress, NetworkPolicy, ServiceCidr } from './networking-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';
import { groupResourceName } from '../../../../api/meta/group-resource.ts';

const SHOWN_HOSTS = 3;

function hosts(rules: readonly { readonly host?: string | undefined }[]): string {
  const shown: string[] = [];
  let more = false;
  for (const { host = '' } of rules) {
    if (shown.length === SHOWN_HOSTS) more = true;
    else if (host !== '') shown.push(host);
  }
  if (shown.length === 0) return '*';
  return more ? `${shown.join(',')} + ${rules.length - SHOWN_HOSTS} more...` : shown.join(',');
}

function addresses(ingress: Ingress): string {
  const found = new Set<string>();
  for (const { ip = '', hostname = '' } of ingress.status?.loadBalancer?.ingress ?? []) {
    if (ip !== '') found.add(ip);
    else if (hostname !== '') found.add(hostname);
  }
  return [...found].sort().join(',');
}

export const ingressColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Class', 'The name of the IngressClass resource that should be used for additional configuration'),
    column('Hosts', 'Hosts that incoming requests are matched against before the ingress rule'),
    column('Address', 'Address is a list containing ingress points for the load-balancer'),
    column('Ports', 'Ports of TLS configurations that open'),
    ageColumn,
  ],
  cells(object) {
    const ingress = object as Ingress;
    const { spec } = ingress;
    return [
      nameOf(object),
      spec?.ingressClassName ?? '<none>',
      hosts(spec?.rules ?? []),
      addresses(ingress),
      (spec?.tls ?? []).length > 0 ? '80, 443' : '80',
      age(object),
    ];
  },
};

export const ingressClassColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Controller', 'Controller that is responsible for handling this class'),
    column('Parameters', 'A reference to a resource with additional parameters'),
    ageColumn,
  ],
  cells(object) {
    const { metadata, spec } = object as IngressClass;
    const isDefault = metadata.annotations?.['ingressclass.kubernetes.io/is-default-class'] === 'true';
    const name = `${nameOf(object)}${isDefault ? ' (default)' : ''}`;
    return [name, spec?.controller ?? '', parametersText(spec?.parameters), age(object)];
  },
};

function parametersText(parameters: NonNullable<IngressClass['spec']>['parameters']): string {
  if (parameters === undefined) return '<none>';
  const { apiGroup, kind = '', name = '' } = parameters;
  return `${apiGroup === undefined ? kind : `${kind}.${apiGroup}`}/${name}`;
}

export const networkPolicyColumns: TableColumns = {
  columns: [nameColumn, column('Pod-Selector', field('networking.v1.NetworkPolicySpec', 'podSelector')), ageColumn],
  cells(object) {
    const { spec } = object as NetworkPolicy;
    return [nameOf(object), formatLabelSelector((spec?.podSelector ?? {}) as V1LabelSelector), age(object)];
  },
};

export const serviceCidrColumns: TableColumns = {
  columns: [nameColumn, column('CIDRs', field('networking.v1.ServiceCIDRSpec', 'cidrs')), ageColumn],
  cells: (object) => [nameOf(object), ((object as ServiceCidr).spec?.cidrs ?? []).join(','), age(object)],
};

export const ipAddressColumns: TableColumns = {
  columns: [nameColumn, column('ParentRef', field('networking.v1.IPAddressSpec', 'parentRef'))],
  cells(object) {
    const ref = (object as IpAddress).spec?.parentRef;
    // kube-apiserver has a cell for the age, but no column.
    if (ref === undefined) return [nameOf(object), '<none>', age(object)];
    const { group = '', resource = '', namespace = '', name = '' } = ref;
    const path = [groupResourceName({ group, resource }).toLowerCase(), namespace, name]
      .filter((part) => part !== '')
      .join('/');
    return [nameOf(object), path, age(object)];
  },
};
