/** Serves `/debug/api_priority_and_fairness/`: levels, queues and requests as tables in kube-apiserver's format. */
import { pageNotFound, reading, sendText, type PathHandlers } from '../path-handlers.ts';
import type { FlowControl } from './flow-control.ts';
import type { PriorityLevel } from './priority-level.ts';
import type { Queue, Ticket } from './queue-set.ts';
import { apiVersionOf } from '../../../api/meta/object.ts';

const PREFIX = '/debug/api_priority_and_fairness/';
const LEVEL_COLUMNS = [
  ...['PriorityLevelName', 'ActiveQueues', 'IsIdle', 'IsQuiescing', 'WaitingRequests', 'ExecutingRequests'],
  ...['DispatchedRequests', 'RejectedRequests', 'TimedoutRequests', 'CancelledRequests'],
];
const QUEUE_COLUMNS = [
  ...['PriorityLevelName', 'Index', 'PendingRequests', 'ExecutingRequests', 'SeatsInUse', 'NextDispatchR'],
  ...['InitialSeatsSum', 'MaxSeatsSum', 'TotalWorkSum'],
];
const REQUEST_COLUMNS = [
  ...['PriorityLevelName', 'FlowSchemaName', 'QueueIndex', 'RequestIndexInQueue', 'FlowDistingsher', 'ArriveTime'],
  ...['InitialSeats', 'FinalSeats', 'AdditionalLatency', 'StartTime'],
];
const DETAIL_COLUMNS = ['UserName', 'Verb', 'APIPath', 'Namespace', 'Name', 'APIVersion', 'Resource', 'SubResource'];

type Row = readonly string[];

/** Adds the debugging paths of priority and fairness. The paths are not listed at `/`. */
export function installFlowControlDumps(paths: PathHandlers, control: FlowControl): void {
  paths.tree(
    PREFIX,
    reading((request) => {
      const levels = [...control.levels.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
      const rows = dump(request.info.path.slice(PREFIX.length), levels, request.query);
      return rows === undefined ? pageNotFound(request) : sendText(request, 200, tableText(rows));
    }),
  );
}

/** Returns the columns and the rows of a dump, or `undefined` if there is no dump with that name. */
function dump(name: string, levels: readonly PriorityLevel[], query: URLSearchParams): readonly Row[] | undefined {
  if (name === 'dump_priority_levels') return [LEVEL_COLUMNS, ...levels.map(levelRow)];
  if (name === 'dump_queues') return [QUEUE_COLUMNS, ...levels.flatMap(queueRows)];
  if (name !== 'dump_requests') return undefined;
  const isDetailed = (query.get('includeRequestDetails') ?? '') !== '';
  const columns = isDetailed ? [...REQUEST_COLUMNS, ...DETAIL_COLUMNS] : REQUEST_COLUMNS;
  return [columns, ...levels.flatMap((level) => requestRows(level, isDetailed))];
}

function levelRow({ name, set }: PriorityLevel): Row {
  const active = set.queues.filter(({ waiting }) => waiting.size > 0).length;
  const isIdle = set.waiting === 0 && set.executing === 0;
  // A level that is deleted is gone at once. Requests that waited too long count as cancelled, as in kube-apiserver.
  const [isQuiescing, timedOut] = [false, 0];
  const counts = [set.waiting, set.executing, set.dispatched, set.rejected, timedOut, set.cancelled];
  return [name, active, isIdle, isQuiescing, ...counts].map(String);
}

function queueRows({ name, set }: PriorityLevel): readonly Row[] {
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

/**
 * Returns the rows of a level's requests. The index -1 means that a request has seats, so that it has no place in its queue, or
 * that its level has no queues.
 */
function requestRows(level: PriorityLevel, isDetailed: boolean): readonly Row[] {
  const { queues, running } = level.set;
  const rowOf = (ticket: Ticket, queue: number, place: number): Row =>
    requestRow(level, ticket, { queue, place, isDetailed });
  const executing = (queue: Queue | undefined): readonly Row[] =>
    [...running].filter((ticket) => ticket.queue === queue).map((ticket) => rowOf(ticket, queue?.index ?? -1, -1));
  return [
    ...queues.flatMap((queue) => [
      ...[...queue.waiting].map((ticket, place) => rowOf(ticket, queue.index, place)),
      ...executing(queue),
    ]),
    ...executing(undefined),
  ];
}

function requestRow(
  { name }: PriorityLevel,
  ticket: Ticket,
  { queue, place, isDetailed }: { readonly queue: number; readonly place: number; readonly isDetailed: boolean },
): Row {
  const { subject, flow, arrivedMs, startedMs, state, width } = ticket;
  const startTime = state === 'waiting' ? NO_TIME : timeText(subject.nowMs + startedMs - arrivedMs);
  return [
    ...[name, flow.schema.name, String(queue), String(place), flow.distinguisher],
    ...[timeText(subject.nowMs), String(width), '0', '0s', startTime],
    ...(isDetailed ? detailsOf(ticket) : []),
  ];
}

/** The start of a request that has not started. */
const NO_TIME = '0001-01-01T00:00:00Z';

/** Formats a time in RFC 3339, without zeros at the end of the fraction. */
const timeText = (ms: number): string => new Date(ms).toISOString().replace(/\.?0{0,3}Z$/, 'Z');

function detailsOf({ subject: { user, info } }: Ticket): Row {
  const version = apiVersionOf(info);
  return [user.name, info.verb, info.path, info.namespace, info.name, version, info.resource, info.subresource];
}

/** The least width of a column. */
const COLUMN_CHARS = 8;

/** Formats rows as a table. Cells end with a comma and are padded to the width of their column, except for the last one. */
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
