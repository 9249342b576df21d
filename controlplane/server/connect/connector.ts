/**
 * Connects clients to agents and proxy targets. The resource finds the target of a request (`Rest.connect`). The connector
 * tunnels an upgrade byte for byte, streams a log, or forwards a plain request.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Dialer } from '../../../api/http/dialer.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { newBadRequest } from '../../../api/meta/status-error.ts';
import { type AgentCredentials, agentTls } from '../../model/agent-request.ts';
import type { ConnectTarget, Rest } from '../../model/rest.ts';
import { checkLogAccept } from '../media-type.ts';
import type { ApiRequest, MaybePromise } from '../request.ts';
import { parseRequestPath, rawAfter } from '../../../api/http/request-path.ts';
import { ForwardedConnections } from './forwarded-connections.ts';
import { forwardedHeaders, hostOf, type StrippedHeaders } from './forwarded-headers.ts';
import { streamLog } from './log.ts';
import { proxyRequest } from './proxy.ts';
import { tunnel } from './tunnel.ts';
import type { TargetTls } from './passed-response.ts';

/** Serves exec, attach, port-forward, logs and proxies. */
export interface Connector {
  /** Resolves when the stream has ended. */
  connect(request: ApiRequest, rest: Rest): MaybePromise<void>;
}

/** The number of segments from the resource to the subresource: `pods/p/proxy`. */
const PROXY_PARTS = 3;

interface ConnectorOptions {
  readonly dialer: Dialer;
  readonly stripped: StrippedHeaders;
  /** Called for each connection, because certificates are rotated. */
  readonly agentCredentials: () => AgentCredentials | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly connections?: ForwardedConnections;
}

/**
 * Creates the connector. Rejects with a 400 for `dryRun` on other subresources than logs, and for a stream without an upgrade.
 * Answers 204 if the target is empty.
 */
export function createConnector(options: ConnectorOptions): Connector {
  const { connections = new ForwardedConnections() } = options;
  return {
    async connect(request, rest) {
      const { info, exchange } = request;
      const subresource = rest.subresource?.name ?? '';
      if (subresource === 'log') checkLogAccept(request.header('accept'));
      if (subresource !== 'log' && request.query.has('dryRun')) throw newBadRequest('dryRun is not supported');
      const consumed = request.path.segments.length - info.parts.length + PROXY_PARTS;
      const rawPath = rawAfter(request.path, consumed);
      const target = await rest.connect?.(request, rest.info.namespaced ? info.namespace : '', info.parts[1] ?? '', {
        method: exchange.method,
        path: rawPath === '' ? '' : parseRequestPath(rawPath).decoded,
        rawPath,
        query: request.query,
        rawQuery: request.rawQuery,
      });
      if (target === undefined) return;
      if (target === 'empty') request.sendNothing();
      else await connections.forward(request, () => passTo(target, request, rest, options));
    },
  };
}

async function passTo(
  target: ConnectTarget,
  request: ApiRequest,
  rest: Rest,
  options: ConnectorOptions,
): Promise<void> {
  const { dialer, clock, stripped } = options;
  const tls = tlsFor(target, options);
  if (target.plain) await streamLog(request, rest, { ...target, tls, dialer });
  else if (request.exchange.canUpgrade) {
    const headers: [string, string][] = [['host', hostOf(target.origin)], ...forwardedHeaders(request, stripped)];
    await tunnel(request, { ...target, dialer, tls, headers, clock });
  } else if (rest.subresource?.name === 'proxy') await proxyRequest(request, { ...target, tls, dialer }, stripped);
  else throw newBadRequest('Upgrade request required');
}

/**
 * Returns the TLS settings of a target. Only agents are verified (`agentTls`), and only if this server has credentials for
 * them. kube-apiserver does not verify the certificates of pods and services either.
 */
function tlsFor(target: ConnectTarget, options: ConnectorOptions): TargetTls {
  const credentials = target.purpose === 'kubelet' ? options.agentCredentials() : undefined;
  if (credentials === undefined) return { rejectUnauthorized: false };
  return agentTls(credentials, target.origin, { anyCertificate: target.anyCertificate === true });
}
