/** Requests that may last: no timeout, no place among the requests in flight. */
import type { RequestInfo } from './request-info.ts';

const STREAMS: ReadonlySet<string> = new Set(['attach', 'exec', 'proxy', 'log', 'portforward']);

export function isLongRunning(info: RequestInfo): boolean {
  if (!info.isResource) return false;
  return info.verb === 'watch' || info.verb === 'proxy' || (info.subresource !== '' && STREAMS.has(info.subresource));
}
