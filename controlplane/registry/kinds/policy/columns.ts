/** Defines the table columns of disruption budgets. */
import type { V1PodDisruptionBudgetSpec, V1PodDisruptionBudgetStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, nameColumn, nameOf } from '../../columns/column.ts';

const integer = { type: 'integer' } as const;

export const budgetColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Min Available', 'The minimum number of pods that must be available.'),
    column('Max Unavailable', 'The maximum number of pods that may be unavailable.'),
    column('Allowed Disruptions', 'Calculated number of pods that may be disrupted at this time.', integer),
    ageColumn,
  ],
  cells(object) {
    const { spec, status } = object as Kind<{ spec: V1PodDisruptionBudgetSpec; status: V1PodDisruptionBudgetStatus }>;
    return [
      nameOf(object),
      String(spec?.minAvailable ?? 'N/A'),
      String(spec?.maxUnavailable ?? 'N/A'),
      status?.disruptionsAllowed ?? 0,
      age(object),
    ];
  },
};
