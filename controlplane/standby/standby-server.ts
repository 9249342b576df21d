/**
 * Serves the port of a standby, without an API: requests for the API get 503 with the reason, `/readyz` fails, and `/livez`
 * succeeds. Other control planes of the cluster, and commands on this host, read its state and promote it, and administrators
 * read its metrics.
 */
import { limitedLogger } from '../../api/machinery/limited-logger.ts';
import type { AddressInfo } from 'node:net';
import type { Logger } from '../../api/component/logger.ts';
import { METRICS_TYPE, type MetricsRegistry } from '../../api/component/metrics.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Exchange } from '../server/exchange.ts';
import { Listener, type ServingCertificate, type TlsOptions } from '../server/listener.ts';

import type { PeerCheck } from './identity.ts';
import { peerPaths, type PeerRoute, sendUnavailable } from './peer-paths.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** Who may do what at the server, and what it answers. */
interface StandbyServerOptions {
  readonly tls: TlsOptions;
  readonly isPeer: PeerCheck;
  readonly routes: readonly PeerRoute[];
  /** Whether a connection has a certificate of an administrator, who may read the metrics. */
  readonly isAdministrator: PeerCheck;
  readonly metrics: MetricsRegistry;
  /** Returns why there is no API. */
  readonly reason: () => string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A server on one port. */
interface StandbyServer {
  /** Listens on a port. Port 0 selects a free one. Rejects with the system's error. */
  listen(port: number, host: string): Promise<AddressInfo>;
  /** Sets the certificate for new connections. */
  replaceCertificate(certificate: ServingCertificate): void;
  close(): Promise<void>;
}

const CLOSE_GRACE_MS = 1000;
const TEXT = { 'content-type': TEXT_TYPE, 'x-content-type-options': 'nosniff' };

/** Creates the server of a standby. Opens nothing before `listen`. */
export function createStandbyServer(options: StandbyServerOptions): StandbyServer {
  const { clock, tls, isPeer, isAdministrator, metrics, reason } = options;
  const logger = limitedLogger(options.logger, clock);
  const takesPeer = peerPaths(options);
  const onExchange = (exchange: Exchange): void => {
    if (takesPeer(exchange)) return;
    const [path = ''] = exchange.target.split('?', 1);
    if (path === '/livez' || path === '/healthz') exchange.send(200, TEXT, 'ok');
    else if (path === '/readyz') exchange.send(503, TEXT, `[-]standby failed: ${reason()}\nreadyz check failed\n`);
    else if (path === '/metrics' && (isPeer(exchange.connection) || isAdministrator(exchange.connection)))
      exchange.send(200, { ...TEXT, 'content-type': METRICS_TYPE }, metrics.text());
    else sendUnavailable(exchange, reason());
  };
  const listener = new Listener({ tls, clock, logger, onExchange });
  return {
    listen: (port, host) => listener.listen(port, host),
    replaceCertificate: (certificate) => listener.replaceCertificate(certificate),
    close: () => listener.close(CLOSE_GRACE_MS),
  };
}
