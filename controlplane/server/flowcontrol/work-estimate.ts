/**
 * Estimates the seats of a request: one, and more for lists that read much, by the number and size of the stored objects, as in
 * kube-apiserver. Here a write takes more seats for a large body or object, too.
 */
import { queryBoolean, type RequestInfo } from '../request-info.ts';
import type { ApiRequest } from '../request.ts';

/** The stored objects of a resource. */
export interface ObjectStatistics {
  readonly count: number;
  readonly averageBytes: number;
}

/** Returns `undefined` if the numbers are unknown, as for resources of aggregated servers. */
export type CountObjects = (group: string, resource: string) => ObjectStatistics | undefined;

/** Returns the size of a stored object as JSON, and 0 if there is none or it is unknown. */
type ObjectBytes = (object: Pick<RequestInfo, 'group' | 'resource' | 'namespace' | 'name'>) => number;

/** What the estimate knows of stored objects. */
export interface StoredObjects {
  readonly countObjects: CountObjects;
  readonly objectBytes: ObjectBytes;
}

/** The bytes of a list or of a written object for which a request takes one more seat. */
const BYTES_PER_SEAT = 100_000;
/** The maximum size that counts for a list, because a list is streamed from the cache and never wholly in memory. */
const MAX_STREAMED_BYTES = 1_000_000;
/** The maximum number of seats of one request. */
const MAX_SEATS = 100;
/** The share of a level's nominal seats that one request may take. */
const MAX_SHARE = 0.15;

/**
 * Whether a watch sends the existing objects first, and so does the work of a list. kube-apiserver counts only watches with
 * `sendInitialEvents`, but a watch without a resource version also gets the existing objects.
 */
function sendsExisting(query: URLSearchParams): boolean {
  const initial = query.get('sendInitialEvents');
  if (initial !== null) return queryBoolean(initial);
  return ['', '0'].includes(query.get('resourceVersion') ?? '');
}

const SELECTORS = ['labelSelector', 'fieldSelector'] as const;

const WRITES: ReadonlySet<string> = new Set(['create', 'update', 'patch', 'delete']);

/**
 * Returns the seats of a request. `bodyBytes` is the size of the body that was received. A watch that begins with the existing
 * objects counts as a list.
 */
export function seatsOf(
  request: ApiRequest,
  nominalSeats: number,
  { countObjects, objectBytes, bodyBytes = 0 }: StoredObjects & { readonly bodyBytes?: number },
): number {
  const { info } = request;
  if (!info.isResource) return 1;
  const most = Math.min(MAX_SEATS, Math.max(1, Math.ceil(nominalSeats * MAX_SHARE)));
  if (WRITES.has(info.verb)) {
    const bytes = Math.max(bodyBytes, info.name === '' ? 0 : objectBytes(info));
    return Math.min(most, Math.max(1, Math.ceil(bytes / BYTES_PER_SEAT)));
  }
  if (info.verb !== 'list' && info.verb !== 'watch') return 1;
  if (info.name !== '') return 1;
  if (info.verb === 'watch' && !sendsExisting(request.query)) return 1;
  const statistics = countObjects(info.group, info.resource);
  if (statistics === undefined) return 1;
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
