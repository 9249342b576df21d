/**
 * `proxy`: a plain request passed on to a pod, a service or a node, and the answer back. Redirects are not followed; where
 * they point at the target itself, they are turned to point at the proxy's path.
 */
import type { IncomingMessage } from 'node:http';
import type { ConnectTarget } from '../../registry/rest.ts';
import type { ResponseHeaders } from '../exchange.ts';
import type { ApiRequest } from '../request.ts';
import type { TargetTls } from './connector.ts';
import { forwardedHeaders, isHopByHop } from './forwarded-headers.ts';
import { passBody, requestTarget } from './passed-response.ts';

export async function proxyRequest(request: ApiRequest, target: ConnectTarget, tls: TargetTls): Promise<void> {
  const { exchange } = request;
  const bare = request.info.parts.length === 3 && !request.rawPath.endsWith('/');
  if (bare && (exchange.method === 'GET' || exchange.method === 'HEAD')) {
    redirectToSlash(request);
    return;
  }
  const headers = forwardedHeaders(request);
  headers.push(['host', target.url.host], ['x-forwarded-uri', request.rawPath], ['x-forwarded-proto', 'https']);
  const host = request.header('host') ?? request.header(':authority');
  if (host !== undefined) headers.push(['x-forwarded-host', host]);
  const message = await requestTarget({
    url: target.url,
    method: exchange.method,
    headers,
    tls,
    body: exchange.method === 'GET' || exchange.method === 'HEAD' ? undefined : exchange.bodyStream(),
    signal: request.signal,
  });
  request.status = message.statusCode ?? 502;
  exchange.start(request.status, answerHeaders(request, message, target));
  await passBody(message, exchange);
}

function redirectToSlash(request: ApiRequest): void {
  const headers = request.responseHeaders('text/plain; charset=utf-8');
  headers['location'] = `${request.rawPath}/${request.rawQuery === '' ? '' : `?${request.rawQuery}`}`;
  request.status = 301;
  request.exchange.send(301, headers, undefined);
}

function answerHeaders(request: ApiRequest, message: IncomingMessage, target: ConnectTarget): ResponseHeaders {
  const headers: ResponseHeaders = { 'audit-id': request.auditId };
  for (const [name, value] of Object.entries(message.headers)) {
    if (value !== undefined && !isHopByHop(name)) headers[name] = value;
  }
  const { location } = message.headers;
  if (location !== undefined) headers['location'] = turned(location, request, target);
  return headers;
}

/** A redirect within the target, as a path below the proxy. */
function turned(location: string, request: ApiRequest, target: ConnectTarget): string {
  const absolute = URL.canParse(location, target.url) ? new URL(location, target.url) : undefined;
  if (absolute === undefined || absolute.host !== target.url.host) return location;
  const { path, parts } = request.info;
  const rest = parts.slice(3).join('/');
  const base = rest === '' ? path.replace(/\/$/, '') : path.slice(0, path.lastIndexOf(`/${rest}`));
  return `${base}${absolute.pathname}${absolute.search}`;
}
