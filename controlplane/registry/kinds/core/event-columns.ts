/** Defines the table columns of events. */
import type { Cell, TableColumns } from '../../strategy.ts';
import { column, field, NAME_TEXT, nameOf, since } from '../../columns/column.ts';
import type { Event } from './event-types.ts';

const wide = { wide: true } as const;

function times(event: Event): { first: Cell; last: Cell } {
  const stamp = (time: string | null | undefined, other: string | null | undefined): string | null | undefined =>
    time === undefined || time === null ? other : time;
  const first = stamp(event.firstTimestamp, event.eventTime);
  const last = event.series?.lastObservedTime ?? stamp(event.lastTimestamp, first);
  return { first: since(first), last: since(last) };
}

function source(event: Event): string {
  const component = event.source?.component ?? event.reportingComponent ?? '';
  const host = event.source?.host ?? event.reportingInstance ?? '';
  return host === '' ? component : `${component}, ${host}`;
}

export const eventColumns: TableColumns = {
  columns: [
    column('Last Seen', field('core.v1.Event', 'lastTimestamp')),
    column('Type', field('core.v1.Event', 'type')),
    column('Reason', field('core.v1.Event', 'reason')),
    column('Object', field('core.v1.Event', 'involvedObject')),
    column('Subobject', field('core.v1.ObjectReference', 'fieldPath'), wide),
    column('Source', 'The component reporting this event. Should be a short machine understandable string.', wide),
    column('Message', field('core.v1.Event', 'message')),
    column('First Seen', field('core.v1.Event', 'firstTimestamp'), wide),
    column('Count', field('core.v1.Event', 'count'), wide),
    column('Name', NAME_TEXT, { format: 'name', wide: true }),
  ],
  cells(object) {
    const event = object as Event;
    const { first, last } = times(event);
    const target = event.involvedObject;
    const about =
      (target?.name ?? '') === ''
        ? (target?.kind ?? '').toLowerCase()
        : `${(target?.kind ?? '').toLowerCase()}/${target?.name ?? ''}`;
    return [
      last,
      event.type ?? '',
      event.reason ?? '',
      about,
      target?.fieldPath ?? '',
      source(event),
      (event.message ?? '').trim(),
      first,
      event.series?.count ?? event.count ?? 1,
      nameOf(object),
    ];
  },
};
