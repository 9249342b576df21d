/**
 * The seats that a request takes: one, and more for lists that read much, by the number and size of the stored objects, as
 * in kube-apiserver.
 */
import type { ApiRequest } from '../request.ts';

export interface ObjectStatistics {
  readonly count: number;
  readonly averageBytes: number;
}

/** `undefined`: unknown here, as of resources that another server serves. */
export type CountObjects = (group: string, resource: string) => ObjectStatistics | undefined;

const BYTES_PER_SEAT = 100_000;
/** A list is streamed from the cache and never wholly in memory. */
const MAX_STREAMED_BYTES = 1_000_000;
const MAX_LIST_SEATS = 100;
/** Of a level's nominal seats, for one list. */
const MAX_SHARE = 0.15;

export function seatsOf(request: ApiRequest, nominalSeats: number, countObjects: CountObjects): number {
  const { info } = request;
  if (!info.isResource || (info.verb !== 'list' && info.verb !== 'watch')) return 1;
  // Only a watch that sends what is there first does the work of a list.
  if (info.verb === 'watch' && !request.rawQuery.includes('sendInitialEvents')) return 1;
  if (info.name !== '') return 1;
  const statistics = countObjects(info.group, info.resource);
  if (statistics === undefined) return 1;
  const most = Math.min(MAX_LIST_SEATS, Math.max(1, Math.ceil(nominalSeats * MAX_SHARE)));
  const { count, averageBytes } = statistics;
  let objects = count;
  if (request.rawQuery !== '') {
    if (info.verb === 'watch' && request.query.get('sendInitialEvents') !== 'true') return 1;
    const limit = Number(request.query.get('limit') ?? 0);
    if (limit > 0) objects = Math.min(count, limit);
  }
  const bytes = Math.min(objects * averageBytes, MAX_STREAMED_BYTES);
  return Math.min(most, Math.max(1, Math.ceil(bytes / BYTES_PER_SEAT)));
}
