/**
 * Defines the paths by which control planes of one cluster, and `orchlet promote`, reach each other. Serves them before the
 * handler chain of the API: no user of the API can open them, whatever rights that user has.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { limitedLogger } from '../../api/machinery/limited-logger.ts';
import { stringifyJson } from '../../api/codec/json.ts';
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { newServiceUnavailable, newStatusError, isStatusError, type StatusError } from '../../api/meta/status-error.ts';
import type { Exchange } from '../server/exchange.ts';
import type { PeerCheck } from './identity.ts';

/** The prefix of all paths between control planes. */
export const PEER_PREFIX = '/orchlet/control-plane/';
/**
 * GET: the stream of the log (`frames.ts`). The query has the position of the copy: `after` is its last revision, and `newest`
 * and `checksum` identify its newest record. Without them, a snapshot is sent. `url` is the URL of the standby.
 */
export const LOG_PATH = `${PEER_PREFIX}log`;
/**
 * POST with the successor, as JSON: this control plane takes no more writes, and answers with its last revision. `by` is the
 * URL of the successor. With `promotedAt`, the last revision that it had copied when it was promoted, a control plane that was
 * promoted later refuses (409).
 */
export const FENCE_PATH = `${PEER_PREFIX}fence`;
/** GET: the state of a first control plane. */
export const FIRST_PATH = `${PEER_PREFIX}first`;
/** GET: the state of a standby. */
export const STANDBY_PATH = `${PEER_PREFIX}standby`;
/** POST: makes a standby the first. With `force=true` in the query, also if the former first does not answer. */
export const PROMOTE_PATH = `${PEER_PREFIX}promote`;

/** The state of a first control plane, as `FIRST_PATH` answers it. */
export interface FirstReport {
  /** The newest revision of the storage. */
  readonly revision: number;
  /** What it had copied when it was promoted, if it was. */
  readonly promotion: { readonly from: string; readonly revision: number; readonly atMs: number } | undefined;
}

/** Returns the URL of a server. `host` is a name or an address. An IPv6 address has no brackets. */
export const peerUrl = (host: string, port: number): string =>
  `https://${host.includes(':') ? `[${host}]` : host}:${port}`;

/** Whether a value has the form of the URL of a control plane. */
export const isPeerUrl = (value: unknown): value is string =>
  typeof value === 'string' && /^https:\/\/[^\s/]{1,300}$/.test(value);

/** A request of a control plane, which has been identified. */
interface PeerRequest {
  readonly exchange: Exchange;
  readonly query: URLSearchParams;
}

/** A path with its one method and its handler. */
export interface PeerRoute {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Sends the response, or throws a `StatusError`, which is answered with its code. */
  handle(request: PeerRequest): Promise<void>;
}

/** The routes, and who may use them. */
interface PeerPathsOptions {
  readonly isPeer: PeerCheck;
  readonly routes: readonly PeerRoute[];
  readonly logger: Logger;
  readonly clock: Clock;
}

/**
 * Returns a handler that takes requests below the prefix, and returns whether it took the request. It answers 403 to clients
 * that are no control plane, and then 404 or 405 where there is no route.
 */
export function peerPaths({ isPeer, routes, logger, clock }: PeerPathsOptions): (exchange: Exchange) => boolean {
  const refusalLogger = limitedLogger(logger, clock);
  return (exchange) => {
    if (!exchange.target.startsWith(PEER_PREFIX)) return false;
    const [path, query = ''] = exchange.target.split('?', 2);
    const route = routes.find((one) => one.path === path);
    if (!isPeer(exchange.connection)) {
      refusalLogger.warn(
        { path, remote: exchange.connection.remoteAddress },
        'Refused a client that is no control plane',
      );
      sendError(exchange, newStatusError(403, 'Forbidden', 'only control planes of this cluster may use this path'));
    } else if (route === undefined)
      sendError(exchange, newStatusError(404, 'NotFound', 'this control plane has no such path'));
    else if (route.method !== exchange.method)
      sendError(exchange, newStatusError(405, 'MethodNotAllowed', `the method is ${route.method}`));
    else {
      exchange.connection.accepted?.();
      background(answer(route, { exchange, query: new URLSearchParams(query) }), {
        logger,
        what: 'Answering a control plane',
      });
    }
    return true;
  };
}

async function answer(route: PeerRoute, request: PeerRequest): Promise<void> {
  const { exchange } = request;
  try {
    await route.handle(request);
  } catch (error) {
    if (isStatusError(error)) sendError(exchange, error);
    else if (exchange.answered) exchange.abort();
    else {
      sendError(exchange, newStatusError(500, 'InternalError', errorMessage(error)));
      throw error;
    }
  }
}

/** Sends a complete response in JSON. */
export function sendJson(exchange: Exchange, status: number, body: object): void {
  exchange.send(status, { 'content-type': 'application/json' }, stringifyJson(body));
}

/** Sends the Status of the error with its code, or with 500 if it has none. */
function sendError(exchange: Exchange, error: StatusError): void {
  sendJson(exchange, error.status.code ?? 500, error.status);
}

/** Sends a 503 with the reason why there is no API. */
export function sendUnavailable(exchange: Exchange, message: string): void {
  sendError(exchange, newServiceUnavailable(message));
}
