/** Defines the table columns of role bindings. Roles have the default columns. */
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

interface Bound {
  readonly roleRef?: { readonly kind?: string; readonly name?: string };
  readonly subjects?: readonly { readonly kind?: string; readonly name?: string; readonly namespace?: string }[];
}

function bindingColumns(struct: string, kind: string): TableColumns {
  return {
    columns: [
      nameColumn,
      column('Role', field(`rbac.v1.${struct}`, 'roleRef')),
      ageColumn,
      column('Users', `Users in the ${kind}`, { wide: true }),
      column('Groups', `Groups in the ${kind}`, { wide: true }),
      column('ServiceAccounts', `ServiceAccounts in the ${kind}`, { wide: true }),
    ],
    cells(object) {
      const { roleRef } = object as Bound;
      return [
        nameOf(object),
        `${roleRef?.kind ?? ''}/${roleRef?.name ?? ''}`,
        age(object),
        subjectsOf(object, 'User'),
        subjectsOf(object, 'Group'),
        subjectsOf(object, 'ServiceAccount'),
      ];
    },
  };
}

function subjectsOf(object: KubeObject, kind: string): string {
  return ((object as Bound).subjects ?? [])
    .filter((subject) => subject.kind === kind)
    .map(({ name = '', namespace = '' }) => (kind === 'ServiceAccount' ? `${namespace}/${name}` : name))
    .join(', ');
}

export const roleBindingColumns = bindingColumns('RoleBinding', 'roleBinding');
export const clusterRoleBindingColumns = bindingColumns('ClusterRoleBinding', 'clusterRoleBinding');
