/** Requests for groups that another server serves, passed on to it, and its answers (also watches) passed back. */
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../../api/machinery/clock.ts';
import { type AggregatedTarget, type Aggregator, userHeaders } from '../../aggregation/aggregator.ts';
import { BackendError } from '../../aggregation/api-service-target.ts';
import { newStatusError } from '../../../api/meta/status-error.ts';
import type { ResponseHeaders } from '../exchange.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import { forwardedHeaders, isHopByHop } from './forwarded-headers.ts';
import { passBody, requestTarget } from './passed-response.ts';
import { tunnel } from './tunnel.ts';

const CHECK_TIMEOUT_MS = 5000;
const IDENTITY = /^x-remote-/;

/**
 * Takes the request if its group and version are another server's, and requests for what that says of its schemas;
 * `undefined`: they are not.
 */
export function passAggregated(
  aggregator: Aggregator,
  clock: Clock,
): (request: ApiRequest) => MaybePromise<void> | undefined {
  return (request) => {
    const path = request.info.path.replace(/^\/openapi\/v3(?=\/apis\/)/, '');
    const [root, group = '', version = ''] = path.split('/').filter((part) => part !== '');
    if (root !== 'apis' || version === '') return undefined;
    const service = aggregator.find(group, version);
    if (service === undefined) return undefined;
    if (!aggregator.isAvailable(service)) {
      unavailable(request);
      return Promise.resolve();
    }
    let target: AggregatedTarget;
    try {
      target = aggregator.target(service);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      unavailable(request);
      return Promise.resolve();
    }
    return passed(request, target, clock);
  };
}

function unavailable(request: ApiRequest): void {
  request.status = 503;
  request.exchange.send(
    503,
    request.responseHeaders('text/plain; charset=utf-8'),
    Buffer.from('service unavailable\n'),
  );
}

async function passed(request: ApiRequest, target: AggregatedTarget, clock: Clock): Promise<void> {
  const { exchange } = request;
  // Who asks is for this server alone to say.
  const headers = forwardedHeaders(request).filter(([name]) => !IDENTITY.test(name));
  headers.push(['host', target.serverName], ...userHeaders(request.user));
  const query = request.rawQuery === '' ? '' : `?${request.rawQuery}`;
  const url = urlOf(target, `${request.rawPath}${query}`);
  const upgrade = exchange.takeUpgrade();
  if (upgrade !== undefined) {
    await tunnel(request, upgrade, { url, tls: target.tls, headers, clock });
    return;
  }
  const message = await requestTarget({
    url,
    method: exchange.method,
    headers,
    tls: target.tls,
    body: exchange.method === 'GET' || exchange.method === 'HEAD' ? undefined : exchange.bodyStream(),
    signal: request.signal,
  });
  request.status = message.statusCode ?? 502;
  exchange.start(request.status, answerHeaders(request, message));
  await passBody(message, exchange);
}

function urlOf({ host, port }: AggregatedTarget, path: string): URL {
  return new URL(path, `https://${host.includes(':') ? `[${host}]` : host}:${port}`);
}

function answerHeaders(request: ApiRequest, message: IncomingMessage): ResponseHeaders {
  const headers: ResponseHeaders = { 'audit-id': request.auditId };
  for (const [name, value] of Object.entries(message.headers)) {
    if (value !== undefined && !isHopByHop(name)) headers[name] = value;
  }
  return headers;
}

/** For checks, discovery and controllers: an answer of 200 as JSON; any other is a `StatusError` with its code. */
export async function fetchAggregated(
  target: AggregatedTarget,
  path: string,
  headers: readonly (readonly [string, string])[],
): Promise<unknown> {
  const message = await requestTarget({
    url: urlOf(target, path),
    method: 'GET',
    headers: [
      ['host', target.serverName],
      ['accept', 'application/json'],
      ...headers.map(([name, value]): [string, string] => [name, value]),
    ],
    tls: target.tls,
    body: undefined,
    signal: AbortSignal.timeout(CHECK_TIMEOUT_MS),
  });
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  if (message.statusCode !== 200) {
    const why = `bad status from https://${target.host}:${target.port}${path}: ${message.statusCode}`;
    throw newStatusError(message.statusCode ?? 502, '', why);
  }
  return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
}
