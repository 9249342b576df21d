/** Defines the table columns of flow schemas and priority levels. */
import type { FlowSchema, PriorityLevel } from './flowcontrol-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

const NONE = '<none>';

export const flowSchemaColumns: TableColumns = {
  columns: [
    nameColumn,
    column('PriorityLevel', field('flowcontrol.v1.PriorityLevelConfigurationReference', 'name')),
    column('MatchingPrecedence', field('flowcontrol.v1.FlowSchemaSpec', 'matchingPrecedence')),
    column('DistinguisherMethod', field('flowcontrol.v1.FlowSchemaSpec', 'distinguisherMethod')),
    ageColumn,
    column('MissingPL', 'references a broken or non-existent PriorityLevelConfiguration'),
  ],
  cells(object) {
    const { spec, status } = object as FlowSchema;
    return [
      nameOf(object),
      spec?.priorityLevelConfiguration?.name ?? '',
      spec?.matchingPrecedence ?? 0,
      spec?.distinguisherMethod?.type ?? NONE,
      age(object),
      (status?.conditions ?? []).find(({ type }) => type === 'Dangling')?.status ?? '?',
    ];
  },
  // Requests match the schemas in this order.
  rowOrder: (a, b) => precedenceOf(a) - precedenceOf(b) || (nameOf(a) < nameOf(b) ? -1 : 1),
};

const precedenceOf = (object: object): number => (object as FlowSchema).spec?.matchingPrecedence ?? 0;

export const priorityLevelColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Type', field('flowcontrol.v1.PriorityLevelConfigurationSpec', 'type')),
    column(
      'NominalConcurrencyShares',
      field('flowcontrol.v1.LimitedPriorityLevelConfiguration', 'nominalConcurrencyShares'),
    ),
    column('Queues', field('flowcontrol.v1.QueuingConfiguration', 'queues')),
    column('HandSize', field('flowcontrol.v1.QueuingConfiguration', 'handSize')),
    column('QueueLengthLimit', field('flowcontrol.v1.QueuingConfiguration', 'queueLengthLimit')),
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as PriorityLevel;
    const queuing = spec?.limited?.limitResponse?.queuing;
    return [
      nameOf(object),
      spec?.type ?? '',
      spec?.limited?.nominalConcurrencyShares ?? NONE,
      queuing?.queues ?? NONE,
      queuing?.handSize ?? NONE,
      queuing?.queueLengthLimit ?? NONE,
      age(object),
    ];
  },
};
