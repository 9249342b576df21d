/**
 * Estimates the seats of a request: one, and more for lists that read much, by the number and size of the stored objects, as in
 * kube-apiserver.
 */
import { queryBoolean } from '../request-info.ts';
import type { ApiRequest } from '../request.ts';

/** The stored objects of a resource. */
export interface ObjectStatistics {
  readonly count: number;
  readonly averageBytes: number;
}

/** Returns `undefined` if the numbers are unknown, as for resources of aggregated servers. */
export type CountObjects = (group: string, resource: string) => ObjectStatistics | undefined;

const BYTES_PER_SEAT = 100_000;
/** The maximum size that counts for a list, because a list is streamed from the cache and never wholly in memory. */
const MAX_STREAMED_BYTES = 1_000_000;
const MAX_LIST_SEATS = 100;
/** The share of a level's nominal seats that one list may take. */
const MAX_SHARE = 0.15;

/**
 * A watch that sends the existing objects first does the work of a list. kube-apiserver counts only watches with
 * `sendInitialEvents`, but a watch without a resource version also gets the existing objects.
 */
function sendsExisting(query: URLSearchParams): boolean {
  const initial = query.get('sendInitialEvents');
  if (initial !== null) return queryBoolean(initial);
  return ['', '0'].includes(query.get('resourceVersion') ?? '');
}

const SELECTORS = ['labelSelector', 'fieldSelector'] as const;

/** A watch that begins with the existing objects counts as a list. The maximum is a share of the level's seats, and 100. */
export function seatsOf(request: ApiRequest, nominalSeats: number, countObjects: CountObjects): number {
  const { info } = request;
  if (!info.isResource || (info.verb !== 'list' && info.verb !== 'watch')) return 1;
  if (info.name !== '') return 1;
  if (info.verb === 'watch' && !sendsExisting(request.query)) return 1;
  const statistics = countObjects(info.group, info.resource);
  if (statistics === undefined) return 1;
  const most = Math.min(MAX_LIST_SEATS, Math.max(1, Math.ceil(nominalSeats * MAX_SHARE)));
  const { count, averageBytes } = statistics;
  let objects = count;
  // A selector is evaluated for every object, even if the client requests few.
  if (request.rawQuery !== '' && !SELECTORS.some((name) => request.query.has(name))) {
    const limit = Number(request.query.get('limit') ?? 0);
    if (limit > 0) objects = Math.min(count, limit);
  }
  const bytes = Math.min(objects * averageBytes, MAX_STREAMED_BYTES);
  return Math.min(most, Math.max(1, Math.ceil(bytes / BYTES_PER_SEAT)));
}
