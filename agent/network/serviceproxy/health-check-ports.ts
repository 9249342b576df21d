/**
 * Serves the health check node ports of services, with which a load balancer finds out whether this node has local
 * endpoints of a service with `externalTrafficPolicy: Local`.
 */
import type { Server } from 'node:http';
import { createServer } from '../../../api/http/node-http.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { ConnectionLimit, connectionsWithin } from '../../../api/http/connection-limit.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { HealthCheckPort } from './service-ports.ts';

/** The limit for all health check ports together: load balancers need few connections, and anybody may open some. */
const CONNECTIONS = { atMost: 500, share: 0.1 };

interface HealthCheckPortsOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The maximum number of connections. If absent, it follows from the limit of descriptors. */
  readonly maxConnections?: number;
}

/** Owns one HTTP server for each port. A port that is taken is logged and tried again with the next change. */
export class HealthCheckPorts {
  readonly #logger: Logger;
  readonly #limit: ConnectionLimit;
  readonly #servers = new Map<number, { readonly server: Server; state: HealthCheckPort }>();

  constructor({ clock, logger, maxConnections }: HealthCheckPortsOptions) {
    this.#logger = logger;
    this.#limit = new ConnectionLimit({ clock, logger, most: maxConnections ?? connectionsWithin(CONNECTIONS) });
  }

  /** Serves exactly these ports. */
  async keep(wanted: readonly HealthCheckPort[]): Promise<void> {
    const byPort = new Map(wanted.map((each) => [each.port, each]));
    for (const [port, { server }] of this.#servers) {
      if (byPort.has(port)) continue;
      this.#servers.delete(port);
      await closed(server);
    }
    for (const [port, state] of byPort) {
      const existing = this.#servers.get(port);
      if (existing === undefined) await this.#open(port, state);
      else existing.state = state;
    }
  }

  async close(): Promise<void> {
    await this.keep([]);
  }

  async #open(port: number, first: HealthCheckPort): Promise<void> {
    const server = createServer((_request, response) => {
      const { service, localEndpoints } = this.#servers.get(port)?.state ?? first;
      response.writeHead(localEndpoints > 0 ? 200 : 503, {
        'Content-Type': 'application/json',
        'X-Content-Type-Options': 'nosniff',
        'X-Load-Balancing-Endpoint-Weight': String(localEndpoints),
      });
      response.end(`${JSON.stringify({ service, localEndpoints, serviceProxyHealthy: true })}\n`);
    });
    server.on('connection', (socket) => this.#limit.add(socket));
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject).listen(port, resolve);
      });
      server.unref();
      this.#servers.set(port, { server, state: first });
    } catch (error) {
      this.#logger.warn(
        { port, service: first.service, err: errorMessage(error) },
        'Cannot serve the health check node port of a service',
      );
    }
  }
}

async function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
}
