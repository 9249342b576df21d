/**
 * Detects long-running requests. They have no timeout and are not counted in flight, but a watch takes seats until it has
 * begun.
 */
import type { RequestInfo } from './request-info.ts';

const STREAMS: ReadonlySet<string> = new Set(['attach', 'exec', 'proxy', 'log', 'portforward']);

/** Whether the request is a watch, or one of exec, attach, port-forward, logs and proxies. */
export function isLongRunning(info: RequestInfo): boolean {
  if (!info.isResource) return false;
  return info.verb === 'watch' || (info.subresource !== '' && STREAMS.has(info.subresource));
}
