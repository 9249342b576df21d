/** Serves `/debug/api_priority_and_fairness/`: levels, queues and waiting requests as tables in kube-apiserver's format. */
import { formatMicroTime } from '../../../api/machinery/clock.ts';
import { pageNotFound, reading, sendText, type PathHandlers } from '../path-handlers.ts';
import type { FlowControl } from './flow-control.ts';
import type { PriorityLevel } from './priority-level.ts';
import type { Ticket } from './queue-set.ts';

const PREFIX = '/debug/api_priority_and_fairness/';
const LEVEL_COLUMNS = [
  'PriorityLevelName',
  'ActiveQueues',
  'IsIdle',
  'IsQuiescing',
  'WaitingRequests',
  'ExecutingRequests',
];
const QUEUE_COLUMNS = [
  ...['PriorityLevelName', 'Index', 'PendingRequests', 'ExecutingRequests', 'SeatsInUse', 'NextDispatchR'],
  ...['InitialSeatsSum', 'MaxSeatsSum', 'TotalWorkSum'],
];
const REQUEST_COLUMNS = [
  ...['PriorityLevelName', 'FlowSchemaName', 'QueueIndex', 'RequestIndexInQueue', 'FlowDistingsher', 'ArriveTime'],
  ...['InitialSeats', 'FinalSeats', 'AdditionalLatency'],
];
const DETAIL_COLUMNS = ['UserName', 'Verb', 'APIPath', 'Namespace', 'Name', 'APIVersion', 'Resource', 'SubResource'];

type Row = readonly string[];

/** The paths are not listed at `/`. */
export function installFlowControlDumps(paths: PathHandlers, control: FlowControl): void {
  paths.tree(
    PREFIX,
    reading((request) => {
      const rows = dump(request.info.path.slice(PREFIX.length), [...control.levels.values()], request.query);
      return rows === undefined ? pageNotFound(request) : sendText(request, 200, tableText(rows));
    }),
  );
}

/** Returns `undefined` if there is no dump with that name. */
function dump(name: string, levels: readonly PriorityLevel[], query: URLSearchParams): readonly Row[] | undefined {
  if (name === 'dump_priority_levels') return [LEVEL_COLUMNS, ...levels.map(levelRow)];
  if (name === 'dump_queues') return [QUEUE_COLUMNS, ...levels.flatMap(queueRows)];
  if (name !== 'dump_requests') return undefined;
  const isDetailed = (query.get('includeRequestDetails') ?? '') !== '';
  const columns = isDetailed ? [...REQUEST_COLUMNS, ...DETAIL_COLUMNS] : REQUEST_COLUMNS;
  return [columns, ...levels.flatMap((level) => requestRows(level, isDetailed))];
}

const withoutQueues = (name: string, columns: readonly string[]): Row => [
  name,
  ...columns.slice(1).map(() => '<none>'),
];

function levelRow({ name, isExempt, set }: PriorityLevel): Row {
  if (isExempt) return withoutQueues(name, LEVEL_COLUMNS);
  const active = set.queues.filter(({ waiting }) => waiting.size > 0).length;
  const isIdle = set.waiting === 0 && set.executing === 0;
  return [name, String(active), String(isIdle), 'false', String(set.waiting), String(set.executing)];
}

function queueRows({ name, isExempt, set }: PriorityLevel): readonly Row[] {
  if (isExempt) return [withoutQueues(name, QUEUE_COLUMNS)];
  return set.queues.map((queue) => [
    name,
    ...[queue.index, queue.waiting.size, queue.executing, queue.seatsInUse].map(String),
    seatSeconds(queue.nextDispatch),
    String(queue.seatsWaiting),
    String(queue.seatsWaiting),
    seatSeconds(set.workOf(queue)),
  ]);
}

const seatSeconds = (milliseconds: number): string => `${(milliseconds / 1000).toFixed(8)}ss`;

function requestRows({ name, isExempt, set }: PriorityLevel, isDetailed: boolean): readonly Row[] {
  if (isExempt) return [];
  return set.queues.flatMap((queue) =>
    [...queue.waiting].map((ticket, at) => [
      ...[name, ticket.flow.schema.name, String(queue.index), String(at), ticket.flow.distinguisher],
      ...[formatMicroTime(ticket.subject.nowMs), String(ticket.width), '0', '0s'],
      ...(isDetailed ? detailsOf(ticket) : []),
    ]),
  );
}

function detailsOf({ subject: { user, info } }: Ticket): Row {
  const version = info.group === '' ? info.version : `${info.group}/${info.version}`;
  return [user.name, info.verb, info.path, info.namespace, info.name, version, info.resource, info.subresource];
}

const COLUMN_CHARS = 8;

/** Cells end with a comma and are padded to the width of their column, except for the last one. */
function tableText(rows: readonly Row[]): string {
  const widths: number[] = [];
  for (const row of rows)
    row.slice(0, -1).forEach((cell, at) => {
      widths[at] = Math.max(widths[at] ?? COLUMN_CHARS, cell.length + 2);
    });
  const line = (row: Row): string =>
    row.map((cell, at) => (at < row.length - 1 ? `${cell},`.padEnd(widths[at] ?? 0) : cell)).join('');
  return rows.map((row) => `${line(row)}\n`).join('');
}
