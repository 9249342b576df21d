/** Defines the table columns of quotas. */
import type { V1ResourceQuotaStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, nameColumn, nameOf } from '../../columns/column.ts';

export const quotaColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Request', 'Request represents a minimum amount of cpu/memory that a container may consume.'),
    column(
      'Limit',
      'Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.',
    ),
    ageColumn,
  ],
  cells(object) {
    const { status } = object as Kind<{ status: V1ResourceQuotaStatus }>;
    const hard = (status?.hard ?? {}) as Record<string, string>;
    const used = (status?.used ?? {}) as Record<string, string>;
    const requests: string[] = [];
    const limits: string[] = [];
    for (const name of Object.keys(hard).sort()) {
      (name.startsWith('limits.') ? limits : requests).push(
        `${name}: ${ownMember(used, name) ?? '0'}/${ownMember(hard, name) ?? '0'}`,
      );
    }
    return [nameOf(object), requests.join(', '), limits.join(', '), age(object)];
  },
};
