/**
 * Forwards requests for groups that another server serves, byte for byte as they were authorized, and returns its responses.
 */
import type { Dialer } from '../../../api/http/dialer.ts';
import { parseJson } from '../../../api/codec/json.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { GatheredBytes } from '../../../api/machinery/gathered-bytes.ts';
import { type AggregatedTarget, type Aggregator, userHeaders } from '../../registry/aggregation/aggregator.ts';
import { BackendError } from '../../model/service-backend.ts';
import { apiForwardingFault } from '../../../api/http/request-path.ts';
import { newBadRequest, newStatusError } from '../../../api/meta/status-error.ts';
import { sendText } from '../path-handlers.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import { ForwardedConnections } from './forwarded-connections.ts';
import { answerHeaders, forwardedHeaders, type StrippedHeaders } from './forwarded-headers.ts';
import { passBody, requestTarget } from './passed-response.ts';
import { tunnel } from './tunnel.ts';

const CHECK_TIMEOUT_MS = 5000;
/** The maximum number of values in a response, because a response is parsed at once. */
const MAX_ANSWER_VALUES = 400_000;

/** What forwarding to other servers needs. Requests count towards `connections`, which may be shared. */
interface AggregatedOptions {
  readonly clock: Clock;
  readonly stripped: StrippedHeaders;
  readonly dialer: Dialer;
  readonly connections?: ForwardedConnections;
}

/**
 * Handles the request if an APIService names another server for its group and version, also for the OpenAPI document of that
 * group. Returns `undefined` for all others. Throws a 400 for a path that servers might interpret differently. Answers 503 if
 * the other server is unavailable or has no address.
 */
export function passAggregated(
  aggregator: Pick<Aggregator, 'find' | 'isAvailable' | 'target'>,
  options: AggregatedOptions,
): (request: ApiRequest) => MaybePromise<void> | undefined {
  const { connections = new ForwardedConnections() } = options;
  return (request) => {
    const { segments } = request.path;
    const from = segments[0] === 'openapi' && segments[1] === 'v3' ? 2 : 0;
    if (segments[from] !== 'apis') return undefined;
    const [group = '', version = ''] = segments.slice(from + 1, from + 3);
    if (version === '') return undefined;
    const service = aggregator.find(group, version);
    if (service === undefined) return undefined;
    const fault = apiForwardingFault(request.path, request.rawQuery);
    if (fault !== '') throw newBadRequest(`the path cannot be forwarded: ${fault}`);
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
    return connections.forward(request, () => forwardTo(request, target, options));
  };
}

function unavailable(request: ApiRequest): void {
  sendText(request, 503, 'service unavailable\n');
}

async function forwardTo(
  request: ApiRequest,
  aggregated: AggregatedTarget,
  { clock, stripped, dialer }: AggregatedOptions,
): Promise<void> {
  const { tls, serverName } = aggregated;
  const { exchange } = request;
  // The other server limits its own watches.
  if (request.info.verb === 'watch') request.place?.leave();
  await request.place?.enter();
  const headers = forwardedHeaders(request, stripped);
  headers.push(['host', serverName], ...userHeaders(request.user));
  const target = request.rawQuery === '' ? request.rawPath : `${request.rawPath}?${request.rawQuery}`;
  const dialed = dialingOf(aggregated, dialer);
  if (exchange.canUpgrade) {
    await tunnel(request, { ...dialed, target, tls, headers, clock });
    return;
  }
  const message = await requestTarget({
    ...dialed,
    target,
    method: exchange.method,
    headers,
    tls,
    body: exchange.method === 'GET' || exchange.method === 'HEAD' ? undefined : exchange.bodyStream(),
    signal: request.signal,
  });
  request.status = message.statusCode ?? 502;
  exchange.start(request.status, answerHeaders(request, message));
  await passBody(message, exchange);
}

const dialingOf = ({ host, port, service }: AggregatedTarget, dialer: Dialer) =>
  ({ dialer, purpose: 'aggregation', name: service, origin: { secure: true, host, port } }) as const;

interface AggregatedGet {
  /** Percent-encoded, with its query. */
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly maxBytes: number;
}

/**
 * Sends a GET. Returns the JSON of a response with code 200. Any other response is a `StatusError` with its code, and one with
 * more than `maxBytes` is an error.
 */
export async function fetchAggregated(
  dialer: Dialer,
  target: AggregatedTarget,
  { path, headers, maxBytes }: AggregatedGet,
): Promise<unknown> {
  const message = await requestTarget({
    ...dialingOf(target, dialer),
    target: path,
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
  const gathered = new GatheredBytes();
  for await (const chunk of message as AsyncIterable<Buffer>) {
    gathered.push(chunk);
    if (gathered.size > maxBytes)
      throw new Error(`https://${target.host}:${target.port}${path} answers with more than ${maxBytes} bytes`);
  }
  if (message.statusCode !== 200) {
    const why = `bad status from https://${target.host}:${target.port}${path}: ${message.statusCode}`;
    throw newStatusError(message.statusCode ?? 502, '', why);
  }
  return parseJson(gathered.take(), { maxValues: MAX_ANSWER_VALUES }).value;
}
