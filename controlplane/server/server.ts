/** Binds the handler chain to a port (`createServer`). It owns connections and requests. */
import { limitedLogger } from '../../api/machinery/limited-logger.ts';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Authenticator } from '../security/authentication/authentication.ts';
import type { Authorizer } from '../security/authorization/authorization.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import type { TextDecoders } from './body.ts';
import type { Connector } from './connect/connector.ts';
import type { Encodings } from '../model/encoding.ts';
import type { Exchange } from './exchange.ts';
import type { AuditSink } from './filters/audit.ts';
import type { PriorityAndFairnessOptions } from './filters/priority-and-fairness.ts';
import { createHandler } from './handler.ts';
import { Listener, type ServingCertificate, type TlsOptions } from './listener.ts';
import type { PathHandlers } from './path-handlers.ts';
import { ApiRequest, type MaybePromise } from './request.ts';
import { noObserver, type RequestObserver } from './request-metrics.ts';

/** The parts of the server and its limits. Times are in milliseconds. */
export interface ServerOptions {
  readonly catalog: ResourceCatalog;
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tls: TlsOptions;
  readonly onHandshakeError?: () => void;
  /** Encodings other than JSON. */
  readonly encodings: Encodings;
  readonly decoders: TextDecoders;
  /** Handlers of paths other than resources: health, version, metrics, discovery, OpenAPI, keys. */
  readonly paths: PathHandlers;
  /** Streams to agents and proxies. */
  readonly connector: Connector;
  readonly observer?: RequestObserver;
  readonly audit?: AuditSink;
  /** The value of `--request-timeout`, and the time in which a client must take a complete response over HTTP/2. */
  readonly requestTimeoutMs?: number;
  /** The time in which the headers of a request must arrive. */
  readonly headersTimeoutMs?: number;
  /** The number of responses that clients have not taken beyond which the time to take one is shortened. */
  readonly manyStreams?: number;
  /** API priority and fairness. Without it, requests in flight are only counted, up to the two following numbers. */
  readonly fairness?: PriorityAndFairnessOptions;
  /** The values of `--max-requests-inflight` and `--max-mutating-requests-inflight`. */
  readonly maxReading?: number;
  readonly maxMutating?: number;
  /** The memory that the watches of a priority level may take. The default follows from that of the host. */
  readonly watchMemoryBytes?: number;
  /** Handles requests of other control planes, before the chain. Returns whether it took the request. */
  readonly peers?: ((exchange: Exchange) => boolean) | undefined;
  /** Handles requests for aggregated servers. Returns `undefined` for all others. */
  readonly aggregated?: (request: ApiRequest) => MaybePromise<void> | undefined;
}

/** A server on one port. */
export interface ApiServer {
  /** Listens on a port. Port 0 selects a free one. */
  listen(port: number, host: string): Promise<AddressInfo>;
  /** Sets the certificate for new connections. */
  replaceCertificate(certificate: ServingCertificate): void;
  /** Resolves when all connections have ended, or after `graceMs`. */
  close(graceMs?: number): Promise<void>;
}

const DEFAULT_GRACE_MS = 2_000;

/** Creates the API server. Opens nothing before `listen`. */
export function createServer(options: ServerOptions): ApiServer {
  const logger = limitedLogger(options.logger, options.clock);
  const handler = createHandler({
    ...options,
    logger,
    observer: options.observer ?? noObserver,
    audit: options.audit,
    requestTimeoutMs: options.requestTimeoutMs ?? 60_000,
    fairness: options.fairness,
    watchMemoryBytes: options.watchMemoryBytes,
    inFlight: { maxReading: options.maxReading ?? 400, maxMutating: options.maxMutating ?? 200 },
  });
  const whenAnsweringFails = { logger, what: 'Answering a request' };
  const listener = new Listener({
    tls: options.tls,
    clock: options.clock,
    logger,
    headersTimeoutMs: options.headersTimeoutMs,
    takeTimeoutMs: options.requestTimeoutMs,
    manyStreams: options.manyStreams,
    onHandshakeError: options.onHandshakeError,
    onExchange: (exchange: Exchange) => {
      if (options.peers?.(exchange) === true) return;
      // The outermost filter responds to every error, so only an error of that filter itself arrives here.
      const answering = handler(new ApiRequest(exchange, options.authorizer, options.clock));
      if (answering !== undefined) background(answering, whenAnsweringFails);
    },
  });
  return {
    listen: (port, host) => listener.listen(port, host),
    replaceCertificate: (certificate) => listener.replaceCertificate(certificate),
    close: (graceMs = DEFAULT_GRACE_MS) => listener.close(graceMs),
  };
}
